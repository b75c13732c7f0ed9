"""Every estimator has one file, one test and a page, and each names the other two."""

import re
from pathlib import Path

import pytest

from ascribe.estimators import BUILT_IN

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("module", sorted({module for module, _ in BUILT_IN.values()}))
def test_code_test_and_page_name_each_other(module: str) -> None:
    files = {
        "code": f"src/ascribe/estimators/{module}.py",
        "test": f"tests/estimators/test_{module}.py",
    }
    code = (ROOT / files["code"]).read_text(encoding="utf-8")
    (files["page"],) = re.findall(r"^Page: (docs/estimators/\w+\.md)\.", code, re.MULTILINE)
    for kind, path in files.items():
        text = (ROOT / path).read_text(encoding="utf-8")
        missing = [other for name, other in files.items() if name != kind and other not in text]
        assert not missing, f"{path} does not name {missing}"
