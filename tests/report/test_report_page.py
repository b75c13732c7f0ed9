"""The page as a file: complete, small, the same every time, and without a way out."""

import gzip
import json
import re
from base64 import b64decode, b64encode
from hashlib import sha256
from pathlib import Path

import pytest

from ascribe import recipe
from ascribe.reports import Picture, picture
from ascribe.reports.figures import COLORS, MEANINGS
from tests.conftest import write_jsonl
from tests.report.injections import INJECTIONS
from tests.report.toys import sound

SCRIPT = re.compile(r"<script([^>]*)>(.*?)</script>", re.DOTALL)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Picture:
    folder = tmp_path_factory.mktemp("page")
    file = write_jsonl(folder / "rollouts.jsonl", sound())
    return picture([file], recipe("gigpo"), compare=recipe("grpo"))


@pytest.fixture(scope="module")
def page(made: Picture, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("page") / "report.html"
    assert made.write(path) == path.stat().st_size
    return path.read_text(encoding="utf-8")


def test_only_the_scripts_of_the_page_may_run(page: str) -> None:
    (data_kind, _), script, *packed = SCRIPT.findall(page)
    assert 'type="application/json"' in data_kind
    assert packed
    assert all(re.fullmatch(r' type="application/gzip" id="[\w-]+"', kind) for kind, _ in packed)
    assert all(re.fullmatch(r"[\w+/=]+", content) for _, content in packed)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy is not None
    allowed = b64encode(sha256(script[1].encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{allowed}';" in policy[1]
    assert "unsafe" not in policy[1]


def test_the_page_names_no_other_address(page: str) -> None:
    without_data = SCRIPT.sub("", page)
    assert "http" not in without_data.replace("http-equiv", "")
    assert not re.search(r"\b(src|href)=(?!\"#)", without_data)


def test_our_scripts_put_text_on_the_page_as_text() -> None:
    folder = Path(__file__).parents[2] / "src/ascribe/reports/assets"
    for script in folder.glob("*.js"):
        code = script.read_text(encoding="utf-8")
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in code


def test_the_same_rollouts_give_the_same_page(made: Picture, page: str, tmp_path: Path) -> None:
    file = write_jsonl(tmp_path / "rollouts.jsonl", sound())
    again = picture([file], recipe("gigpo"), compare=recipe("grpo"))
    again.write(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page


def test_every_figure_has_a_table_and_a_place(made: Picture, page: str) -> None:
    placed = " ".join(re.findall(r'data-figures="([^"]*)"', page)).split()
    assert {figure.name for figure in made.figures} <= set(placed)
    tables = made.tables()
    assert all(tables[figure.table] for figure in made.figures)


def test_the_data_of_the_page_is_json(made: Picture, page: str) -> None:
    found = SCRIPT.search(page)
    assert found is not None
    data = json.loads(found[2])
    assert data["answers"]["training"]["headline"] == made.verdict.headline
    assert data["chunks"] == len(made.browser["chunks"])
    packed = dict(SCRIPT.findall(page)[2:])
    sessions = packed[' type="application/gzip" id="packed-sessions"']
    assert json.loads(gzip.decompress(b64decode(sessions))) == made.answers["sessions"]
    assert data["files"] == ["rollouts.jsonl"]


@pytest.mark.slow
def test_ten_thousand_long_steps_fit_into_five_megabytes(tmp_path: Path) -> None:
    rows = sound(groups=50, size=8, length=25)
    for number, row in enumerate(rows):
        row["state"] = f"{number}: {'<long & twisted> ' * 60}"
        row["action"] = f"{number}: {'thinking about it ' * 60}"
        row["observation"] = f"{number}: {'seen. ' * 200}"
        row["response"] = f"{number}: {'said. ' * 200}"
    made = picture([write_jsonl(tmp_path / "rows.jsonl", rows)], recipe("gigpo"))
    assert len(rows) == 10_000
    assert made.browser["sessions"] == made.browser["of_sessions"] == 400
    assert made.write(tmp_path / "report.html") < 5_000_000


def test_injections_stay_inside_the_data(tmp_path: Path) -> None:
    rows = sound(groups=len(INJECTIONS) // 5 + 1, size=2)
    for row, text in zip(rows[:: 2 * 1], [*INJECTIONS, *INJECTIONS], strict=False):
        row["state"] = row["action"] = text
    file = write_jsonl(tmp_path / "rows.jsonl", rows)
    made = picture([file], recipe("gigpo"))
    made.write(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert len(SCRIPT.findall(page)) == 3 + len(made.browser["chunks"])
    assert "hacked" not in SCRIPT.sub("", page)


def test_a_colour_has_one_meaning_in_all_figures(tmp_path: Path) -> None:
    """Batches with steps of many reasons: every name in a legend has its own colour, everywhere."""
    mixed = sound(groups=8)
    for row in mixed:
        if row["group"] in ("task 0", "task 1"):
            row["reward"] = float(row["group"] == "task 1" and row["step"] == 4)
        if row["group"] == "task 2" and row["step"] == 3:
            row["state"] = row["trajectory"]
        if row["group"] == "task 3" and row["step"] == 2:
            row["state"] = None
    mixed = [row for row in mixed if row["group"] != "task 4" or row["trajectory"].endswith("0")]
    equal = [row | {"reward": 0.0} for row in sound(groups=2)]
    files = [
        write_jsonl(tmp_path / f"{n}.jsonl", rows) for n, rows in enumerate([mixed, equal, equal])
    ]
    color_of: dict[str, str] = {}
    for some in (files, files[1:]):
        for figure in picture(some, recipe("gigpo"), compare=recipe("grpo")).figures:
            scale = figure.spec.get("encoding", {}).get("color", {}).get("scale")
            for name, color in zip(*scale.values(), strict=True) if scale else ():
                assert color_of.setdefault(name, color) == color == COLORS[name]
    assert {"credited", "zero variance", "singleton", "missing state"} < set(color_of)
    assert color_of["credited"] != color_of["zero variance"]
    assert len(set(COLORS.values())) == len(MEANINGS)
