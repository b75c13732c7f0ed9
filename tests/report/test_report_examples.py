"""The committed example reports: what the files beside them give, small, and nothing private."""

import json
import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest

from ascribe.steps.files import table_to_arrow

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "docs" / "examples"
NAMES = ("textcraft", "trl", "verl")
DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    file = ROOT / "scripts" / "example_reports.py"
    spec = spec_from_file_location("example_reports", file)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def data(name: str) -> Any:
    page = (EXAMPLES / f"{name}.html").read_text(encoding="utf-8")
    found = DATA.search(page)
    assert found is not None
    return json.loads(found[1])


def test_every_file_has_its_page() -> None:
    names = sorted(file.name for file in EXAMPLES.iterdir())
    assert names == sorted(f"{name}{end}" for name in NAMES for end in (".html", ".parquet"))


@pytest.mark.parametrize("name", NAMES)
def test_a_page_says_what_its_file_gives(script: ModuleType, name: str) -> None:
    """If this fails after a change of the report: python scripts/example_reports.py write."""
    made = script.example(EXAMPLES / f"{name}.parquet")
    shown = data(name)
    assert shown["verdict"]["headline"] == made.verdict.headline
    assert shown["verdict"]["findings"] == made.verdict.rows()
    assert shown["tables"] == json.loads(json.dumps(made.tables()))


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_small_and_name_no_folder(name: str) -> None:
    page, file = EXAMPLES / f"{name}.html", EXAMPLES / f"{name}.parquet"
    assert page.stat().st_size < 1.5e6
    assert file.stat().st_size < 1e5
    folders = re.compile(r"/(work|root|home|tmp|Users|mnt|var)/")
    assert not folders.search(json.dumps(data(name)))
    assert not folders.search(json.dumps(pq.read_table(file).to_pylist()))


@pytest.mark.parametrize("name", NAMES)
def test_a_step_was_trained_with_the_credit_that_is_shown(name: str) -> None:
    """The dumps of both engines hold the advantages that they trained with."""
    columns = pq.read_schema(EXAMPLES / f"{name}.parquet").names
    assert ("trained_advantage" in columns) == (name != "textcraft")
    assert not [column for column in columns if column.endswith("_ids") or column == "prompt"]
    findings = {each["finding"] for each in data(name)["verdict"]["findings"]}
    assert "trained_differently" not in findings


def test_what_is_kept_of_files(script: ModuleType, tmp_path: Path) -> None:
    from ascribe import StepTable
    from tests.report.toys import sound

    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    for path in paths:
        table = table_to_arrow(StepTable.from_dicts(sound()))
        pq.write_table(table.append_column("prompt", table.column("state").cast("string")), path)
    kept = script.kept(paths)
    assert "prompt" not in kept.column_names
    assert kept.column("iteration").to_pylist() == [0] * 120 + [1] * 120
    assert "iteration" not in script.kept(paths[:1]).column_names
