"""The example reports of the site: small, nothing private, and the same each time."""

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


def module(path: str) -> ModuleType:
    spec = spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    loaded = module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    write, folder = module("docs/ext/reports.py").write_report, tmp_path_factory.mktemp("examples")
    return {name: write(EXAMPLES / f"{name}.parquet", folder) for name in NAMES}


def data(page: Path) -> Any:
    found = DATA.search(page.read_text(encoding="utf-8"))
    assert found is not None
    return json.loads(found[1])


def test_only_their_files_are_kept() -> None:
    names = sorted(file.name for file in EXAMPLES.iterdir())
    assert names == [f"{name}.parquet" for name in NAMES]


def test_a_file_gives_the_same_page_again(pages: dict[str, Path], tmp_path: Path) -> None:
    again = module("docs/ext/reports.py").write_report(EXAMPLES / "verl.parquet", tmp_path)
    assert again.read_bytes() == pages["verl"].read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_small_and_name_no_folder(pages: dict[str, Path], name: str) -> None:
    page, file = pages[name], EXAMPLES / f"{name}.parquet"
    assert page.stat().st_size < 1.5e6
    assert file.stat().st_size < 1e5
    folders = re.compile(r"/(work|root|home|tmp|Users|mnt|var)/")
    assert not folders.search(json.dumps(data(page)))
    assert not folders.search(json.dumps(pq.read_table(file).to_pylist()))


@pytest.mark.parametrize("name", NAMES)
def test_a_step_was_trained_with_the_credit_that_is_shown(
    pages: dict[str, Path], name: str
) -> None:
    """The dumps of both engines hold the advantages that they trained with."""
    columns = pq.read_schema(EXAMPLES / f"{name}.parquet").names
    assert ("trained_advantage" in columns) == (name != "textcraft")
    assert not [column for column in columns if column.endswith("_ids") or column == "prompt"]
    findings = {each["finding"] for each in data(pages[name])["answers"]["training"]["findings"]}
    assert "trained_differently" not in findings


def test_what_is_kept_of_files(tmp_path: Path) -> None:
    from ascribe import StepTable
    from tests.report.toys import sound

    script = module("scripts/example_reports.py")
    paths = [tmp_path / f"{number}.parquet" for number in range(2)]
    for path in paths:
        table = table_to_arrow(StepTable.from_dicts(sound()))
        pq.write_table(table.append_column("prompt", table.column("state").cast("string")), path)
    kept = script.kept(paths)
    assert "prompt" not in kept.column_names
    assert kept.column("iteration").to_pylist() == [0] * 120 + [1] * 120
    assert "iteration" not in script.kept(paths[:1]).column_names
