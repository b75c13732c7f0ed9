"""The pages tell the truth: their code runs, their tables cover the source, their links lead on."""

import json
import re
import sys
from dataclasses import fields
from itertools import pairwise
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ascribe import RECIPES, Diagnosis, Severity, StepTable, TableError, check
from ascribe.cli import app, commands, load_command
from ascribe.estimators import GiGPO
from ascribe.estimators.diagnostics import StateGroups, ToolCredit
from ascribe.sessions.reading.format import formats
from ascribe.steps.table import KNOWN_COLUMNS
from ascribe_lab.envs.repository.sandbox import SandboxError, check_sandbox

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "ext"))

import executed  # noqa: E402
import generated  # noqa: E402
import install_lines  # noqa: E402
import links  # noqa: E402
import notebooks  # noqa: E402
import presets  # noqa: E402

PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts),
]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_code_prints_what_the_page_shows(name: str, tmp_path: Path) -> None:
    page = text(name)
    if name == "docs/environments/external.md":
        try:
            check_sandbox()
        except SandboxError as error:
            pytest.skip(str(error))
    assert executed.replay(page, tmp_path) == page
    for picture in executed.PICTURE.findall(page):
        assert (tmp_path / picture).is_file()


TABLE = text("docs/import.md").partition("## Which format is my log?")[2].partition("\n## ")[0]
FORMATS = re.findall(r"^\| [^|]+ \| `(\w[\w-]*)` \|", TABLE, re.MULTILINE)


def test_the_table_of_formats_has_every_format() -> None:
    samples = {name for name, each in formats().items() if each.example}
    assert {*FORMATS, "fields"} == samples | {"claude-code"}


@pytest.mark.parametrize("name", FORMATS)
def test_the_command_of_each_format_reads_its_sample(name: str, tmp_path: Path) -> None:
    sample = ROOT / "tests" / "data" / formats()[name].example
    if name == "claude-code":  # its sessions are told apart by the names of files
        turn = {"sessionId": "s", "isSidechain": False, "timestamp": "2026-01-01T00:00:00Z"}
        asked = {"type": "user", "uuid": "1", "parentUuid": None, **turn}
        said = {"type": "assistant", "uuid": "2", "parentUuid": "1", **turn}
        asked["message"] = {"role": "user", "content": "Which port?"}
        said["message"] = {"role": "assistant", "content": "80", "id": "m"}
        sample = tmp_path / "s.jsonl"
        sample.write_text(f"{json.dumps(asked)}\n{json.dumps(said)}\n")
    for options in ([], ["--format", name]):
        command = ["import", str(sample), "--out", str(tmp_path / "t.parquet"), "--force", *options]
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
        assert formats()[name].title in " ".join(done.output.split())


@pytest.mark.parametrize("name", NAMES)
def test_links_to_files_lead_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text(name)):
        assert ((ROOT / name).parent / target).is_file(), target


SITE = [name for name in NAMES if name.startswith("docs/")]


def test_the_site_is_small() -> None:
    assert len(SITE) <= 60
    assert sum(len(text(name).split()) for name in SITE) <= 55_000
    entries = text("docs/index.md").split("```{toctree}\n:hidden:\n")[1].split("```")[0]
    assert len(entries.split()) <= 12


@pytest.mark.parametrize("name", SITE)
def test_a_page_begins_with_its_readers(name: str) -> None:
    title, _, first = text(name).split("\n")[:3]
    assert title.startswith("# ")
    assert re.match("For (people|those|whoever|everyone|engineers) ?", first), first


@pytest.mark.parametrize("name", SITE)
def test_a_page_installs_from_a_clone_and_the_site_by_name(name: str) -> None:
    lines = install_lines.COMMAND.findall(text(name))
    assert [line for line in lines if re.search("ascribe-(rl|lab)|-e |--editable", line)] == []
    site = install_lines.released(text(name))
    assert "clone -->" not in site
    for line in install_lines.COMMAND.findall(site):
        assert not re.search(r"""[\s"']\.(/lab)?(?=[\s"'[]|$)""", line)


@pytest.mark.parametrize(
    ("line", "released"),
    [
        ('pip install ".[report]"', 'pip install "ascribe-rl[report]"'),
        ('pip install . "./lab[maths]"', 'pip install ascribe-rl "ascribe-lab[maths]"'),
        ("`pip install .` (x. y)", "`pip install ascribe-rl` (x. y)"),
        ("pip install numpy==2.1 # . here", "pip install numpy==2.1 # . here"),
    ],
)
def test_an_install_line_of_a_release(line: str, released: str) -> None:
    assert install_lines.released(line) == released


@pytest.mark.parametrize("name", NAMES)
def test_every_mark_is_filled(name: str) -> None:
    assert "<!-- generate" not in generated.fill(text(name))


def test_an_output_that_is_not_shown_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no text block"):
        executed.replay("```python\nprint(1)\n```\n", tmp_path)


def test_a_wrong_output_is_found(tmp_path: Path) -> None:
    page = "```python\nprint(1)\n```\n\n```text\n2\n```\n\n```console\n$ echo 3\n4\n```\n"
    assert executed.replay(page, tmp_path) == page.replace("2\n", "1\n").replace("4\n", "3\n")


def test_a_link_to_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="x"><a href="#x"><a href="b#x"><img src="c.svg">')
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "index.html").write_text('<a href="../a.html#x"><a href="https://a.b/c">')
    assert links.broken_links(tmp_path) == ["a.html: b#x", "a.html: c.svg"]


def test_a_page_becomes_a_notebook() -> None:
    file, shown, shell = "# a.py\nx = 1\n", "print(1)\n", "$ echo 3\n3\n"
    page = f"# Title\n\n```python\n{file}```\n\n```python\n{shown}```\n\n```text\n1\n```\n\n"
    cells = notebooks.notebook(f"{page}```console\n{shell}```\n")["cells"]
    sources = ["# Title", "%%writefile a.py\n# a.py\nx = 1", "print(1)", "!echo 3"]
    assert [cell["source"] for cell in cells] == sources
    assert [cell["outputs"][0]["text"] for cell in cells[2:]] == ["1\n", "3\n"]


def test_a_block_that_names_a_file_is_written_and_not_run(tmp_path: Path) -> None:
    page = "```python\n# a.py\nprint(1)\n```\n\n```console\n$ python a.py\n1\n```\n"
    assert executed.replay(page, tmp_path) == page


def test_the_drawing_has_every_floor() -> None:
    drawn = generated.fill("<!-- generate: house -->")
    assert "\n\n" not in drawn  # an empty line would end the HTML block of Markdown
    for package in generated.house.QUESTIONS:
        for names in generated.house.floors(package):
            assert all(f">{name}</text>" in drawn for name in names)


def test_a_command_sees_the_exit_code_of_the_one_before(tmp_path: Path) -> None:
    page = "```console\n$ false\n$ echo $?\n1\n```\n"
    assert executed.replay(page, tmp_path) == page


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_page_or_a_section(name: str) -> None:
    page, _, anchor = generated.tables.home(name).partition("#")
    found = text(f"docs/{page}")
    if anchor:
        found = found.split(f"\n## {anchor}\n")[1].split("\n## ")[0]
    shown = "bipace_q" if name == "bipace_diff" else name
    for part in ("Code: `src", "Test: `tests", "$$", "What goes wrong"):
        assert part in found, part
    assert f"<!-- generate: parameters {shown} -->" in found
    link = generated.tables.home(name).removeprefix("estimators/")
    assert f"[`{name}`]({link})" in text("docs/estimators/index.md")


@pytest.mark.parametrize("kind", [Diagnosis, StateGroups, ToolCredit])
def test_every_number_of_a_diagnosis_is_explained(kind: type) -> None:
    section = text("docs/check.md").split(f"\n### {kind.__name__}\n")[1].split("\n##")[0]
    explained = re.findall(r"^- `(\w+)`: ", section, re.MULTILINE)
    assert explained == [field.name for field in fields(kind)]


def test_every_column_is_described() -> None:
    section = text("docs/format.md").split("\n## Columns\n")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == KNOWN_COLUMNS


def test_the_schema_refuses_what_the_check_refuses() -> None:
    jsonschema = pytest.importorskip("jsonschema", reason="needs the extra pivots")
    schema = json.loads(generated.tables.schema())
    valid = jsonschema.Draft202012Validator(schema).is_valid
    row = {"group": 1, "trajectory": "a", "step": 0, "state": None, "action": "x", "reward": 1}
    assert valid(row)
    assert valid(row | {"valid": True, "fingerprint": [0.5], "value": None, "seen": "elsewhere"})
    wrong = [{"step": -1}, {"step": 0.5}, {"reward": None}, {"reward": 1e101}, {"group": None}]
    for change in (*wrong, {"valid": 1}, {"fingerprint": []}, {"entropy": "low"}):
        assert not valid(row | change)
        assert _refused(row | change)
    assert not valid({name: row[name] for name in row if name != "reward"})
    padding = dict.fromkeys(row) | {"padding": True}
    assert valid(padding)
    assert not valid(padding | {"padding": False})


def _refused(row: dict[str, object]) -> bool:
    try:
        return check(StepTable.from_dicts([row])).worst >= Severity.ERROR
    except TableError:
        return True


def test_every_command_has_a_section() -> None:
    names = _commands({name: load_command(name) for name in commands()})
    page = text("docs/commands.md")
    assert sorted(re.findall(r"^### ascribe (.+)$", page, re.MULTILINE)) == sorted(names)
    for command in names:
        assert f"<!-- generate: options {command} -->" in page


def _commands(group: dict[str, Any]) -> list[str]:
    """The names of all commands, with those of the groups that they are in."""
    found = []
    for name, command in group.items():
        inner = _commands(command.commands) if hasattr(command, "commands") else []
        found += [f"{name} {each}" for each in inner] or [name]
    return found


# The table of GiGPO's presets, against the obvious computation.


def test_the_example_has_what_the_page_says_of_it() -> None:
    steps = presets.STEPS
    lengths = {name: sum(step[1] == name for step in steps) for name in "abcde"}
    assert lengths == {"a": 2, "b": 4, "c": 2, "d": 3, "e": 1}
    assert [number for number, step in enumerate(steps) if not step[-1]] == [3]
    visits = [(step[1], step[3]) for step in steps]
    again = {visit for visit in visits if visits.count(visit) > 1}
    assert again == {("b", "garden"), ("b", "hall")}
    for state in ("hall", "kitchen", "garden"):
        assert {step[0] for step in steps if step[3] == state} == {"apple", "pear"}


FORMS = {
    "paper": GiGPO(),
    "paper, penalty 0.1": GiGPO(invalid_penalty=0.1),
    **{name: GiGPO.preset(name) for name in GiGPO.presets},
}


@pytest.mark.parametrize("form", FORMS)
def test_the_preset_table_shows_what_the_obvious_computation_gives(form: str) -> None:
    head, _, *rows = [line.strip("| ").split(" | ") for line in presets.rows_table().splitlines()]
    column = [name.strip("`") for name in head].index(form)
    shown = [row[column].strip("*") for row in rows]
    assert shown == by_hand(FORMS[form])


@pytest.mark.parametrize("form", GiGPO.presets)
def test_every_preset_differs_from_the_paper_and_bold_says_where(form: str) -> None:
    head, _, *rows = [line.strip("| ").split(" | ") for line in presets.rows_table().splitlines()]
    column = [name.strip("`") for name in head].index(form)
    differs = [row[column].strip("*") != row[1] for row in rows]
    assert any(differs)
    assert [row[column].startswith("**") for row in rows] == differs


def test_the_parameter_table_names_every_change_of_every_preset() -> None:
    named = re.findall(r"^\| `(\w+)` \|", presets.parameters_table(), re.MULTILINE)
    assert named == sorted({name for preset in GiGPO.presets.values() for name in preset})


def by_hand(recipe: GiGPO) -> list[str]:
    """The cells of one column, computed row by row in plain Python."""
    steps = presets.STEPS
    fine = [0.0 if step[6] else recipe.invalid_penalty for step in steps]
    late = recipe.penalty_timing == "after"
    paid = [step[5] - (0.0 if late else f) for step, f in zip(steps, fine, strict=True)]
    off = fine if late else [0.0] * len(steps)

    to_go = paid.copy()
    for i, j in reversed(list(pairwise(range(len(steps))))):
        if steps[i][1] == steps[j][1]:
            to_go[i] += recipe.gamma * to_go[j]
    whole = [sum(p for p, s in zip(paid, steps, strict=True) if s[1] == o[1]) for o in steps]

    by_step = recipe.baseline_unit == "step"
    episode = [
        compare(
            whole[i] - off[i] if by_step else whole[i],
            [
                whole[j] - off[j] if by_step else whole[j]
                for j, other in enumerate(steps)
                if other[0] == step[0] and (by_step or other[2] == 0)
            ],
            recipe,
            raw=recipe.group_of_one == "raw",
        )
        for i, step in enumerate(steps)
    ]
    local = [
        compare(
            to_go[i] - off[i],
            [
                to_go[j] - off[j]
                for j, other in enumerate(steps)
                if other[3] == step[3] and (recipe.scope == "batch" or other[0] == step[0])
            ],
            recipe,
        )
        for i, step in enumerate(steps)
    ]
    return [cell(*terms) for terms in zip(episode, local, strict=True)]


def compare(value: float, peers: list[float], recipe: GiGPO, *, raw: bool = False) -> float | None:
    if len(peers) == 1:
        return value if raw else None
    if max(peers) == min(peers):
        return None
    mean = sum(peers) / len(peers)
    if recipe.normalise == "mean":
        return value - mean
    std = sqrt(sum((peer - mean) ** 2 for peer in peers) / (len(peers) - 1))
    return (value - mean) / (std + 1e-6)


def cell(episode: float | None, local: float | None) -> str:
    def shown(value: float | None) -> str:
        return "–" if value is None else f"{round(value, 2) + 0.0:+.2f}"

    credited = [value for value in (episode, local) if value is not None]
    return f"{shown(sum(credited) if credited else None)} ({shown(episode)}, {shown(local)})"
