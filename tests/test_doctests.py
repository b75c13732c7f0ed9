"""Every public name has an example in its docstring that prints what it says."""

from pathlib import Path

import pytest

import ascribe
from tests.doctests import failures, listed

pytestmark = pytest.mark.unit


@pytest.mark.parametrize("name", listed("ascribe"))
def test_its_example_is_true(name: str, tmp_path: Path) -> None:
    if name == "ascribe.report":
        pytest.importorskip("vl_convert", reason="needs the extra report")
    assert failures(name, tmp_path) == ""


def test_every_public_name_is_listed() -> None:
    assert {f"ascribe.{name}" for name in ascribe.__all__} <= set(listed("ascribe"))
