"""The contract of adapters finds the faults that it names; ``ascribe adapters check`` prints them.

The adapters of real trainers are in ``test_adapter_TRAINER.py``.
"""

import ast
import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ascribe
from ascribe.cli import app
from ascribe.engines.adapters import check_seams, credit_batch
from ascribe.engines.adapters.contract import EPISODES, PARTS, check_adapter
from examples.adapter import ListAdapter
from tests.engines import adapter_toys as toys

ADAPTERS = Path(ascribe.__file__).parent / "engines" / "adapters"


def test_a_sound_adapter_keeps_every_part() -> None:
    results = check_adapter(ListAdapter())
    assert [result.name for result in results] == list(PARTS)
    assert all(result.kept for result in results), results


@pytest.mark.parametrize(
    ("adapter", "part", "detail"),
    [
        (toys.OneStepAdapter, "each turn is a step", "episode 0 has 3 turns and 1 steps"),
        (toys.LostRewardAdapter, "returns are the rewards", "episode 2 has the return 0, not 0.5"),
        (toys.ShiftedAdapter, "credit is on responses alone", "tokens of episode 0"),
        (toys.OneGroupAdapter, "groups are separate", "dr_grpo credits"),
        (toys.PositionAdapter, "order does not matter", "in reverse order, gigpo credits"),
        (toys.NoLimitsAdapter, "a truncated episode counts, and says so", "is not truncated"),
        (toys.FailedCountsAdapter, "a failed episode does not count", "a failed episode"),
        (toys.RaisingAdapter, "credit is the library's", "KeyError"),
    ],
)
def test_a_fault_is_found(adapter: type, part: str, detail: str) -> None:
    (result,) = [each for each in check_adapter(adapter()) if each.name == part]
    assert not result.kept
    assert detail in result.detail


def test_the_command() -> None:
    runner = CliRunner()
    name = "tests.engines.adapter_toys:{}"
    sound = runner.invoke(app, ["adapters", "check", name.format("ListAdapter")])
    assert sound.exit_code == 0, sound.output
    assert sound.output.count("yes") == len(PARTS)
    broken = runner.invoke(app, ["adapters", "check", name.format("OneGroupAdapter"), "--json"])
    assert broken.exit_code == 1
    found = json.loads(broken.output)
    assert not found["kept"]
    assert {part["name"] for part in found["parts"] if not part["kept"]} >= {"groups are separate"}
    for wrong in ("nowhere:Adapter", name.format("Nothing"), "ListAdapter"):
        assert runner.invoke(app, ["adapters", "check", wrong]).exit_code == 2


def test_a_recipe_with_state_is_refused() -> None:
    adapter = ListAdapter()
    with pytest.raises(ValueError, match="carries state"):
        credit_batch(adapter, adapter.example(EPISODES), "ccpo")


def test_a_release_without_what_ours_overrides_is_refused() -> None:
    class Trainer:
        def update(self) -> None: ...

    check_seams(Trainer, "update")
    with pytest.raises(ImportError, match="Trainer has no credit, advantages, which credit for"):
        check_seams(Trainer, "update", "credit", "advantages")


def test_the_pages_have_what_the_tests_of_adapters_run_and_no_other_lines() -> None:
    """Those tests run in environments of their own; a page that is renamed fails here first."""
    tests = [path.read_text() for path in Path(__file__).parent.glob("test_adapter_*.py")]
    wanted = dict(re.findall(r'snippet\("([^"]+)"(?:, "(\w+)")?', "".join(tests)))
    assert len(wanted) >= 4
    assert wanted.keys() == {path.stem for path in ADAPTERS.glob("[a-z]*.py")} - {"contract"}
    for trainer, language in wanted.items():
        assert "ascribe.engines.adapters" in toys.snippet(trainer, language or "py")


def test_every_adapter_is_short() -> None:
    """Without its list of options."""
    own = {"__init__.py", "contract.py"}
    lines = {}
    for path in ADAPTERS.glob("*.py"):
        text = path.read_text()
        lists = [
            node.end_lineno - node.lineno + 1
            for node in ast.parse(text).body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "OPTIONS"
        ]
        assert len(lists) == (path.name not in own), path
        lines[path.name] = len(text.splitlines()) - sum(lists)
    assert len(lines.keys() - own) >= 4
    assert {name: count for name, count in lines.items() if name not in own and count > 230} == {}
