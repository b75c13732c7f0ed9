"""State keys: what is removed and sorted, what is kept, and what a proposal takes up."""

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ascribe import StepTable
from ascribe.cli import app
from ascribe.groups.canonical import RULES
from ascribe.groups.keys import StateKey, choose, keyed, measure, propose, tools_before
from ascribe.steps.files import read_table
from ascribe.steps.table import Coded
from tests.groups.planted import RIGHT, WRONG, played
from tests.strategies import step_tables

pytestmark = pytest.mark.unit

ROOMS = ("hall", "kitchen", "garden", "cellar")
THINGS = ("apple 1", "apple 2", "knife 1", "mug 3")


def walks(seed: int = 0, *, order_matters: bool = False) -> tuple[StepTable, Coded]:
    """Random walks that show a room, what is carried in any order, a counter and a clock."""
    random = Random(seed)
    rows, true = [], []
    for task in range(3):
        for number in range(6):
            room, carried = 0, ["apple 1"]
            for step in range(8):
                shown = carried if order_matters else random.sample(carried, len(carried))
                place = ROOMS[room]
                true.append(f"{place} {carried if order_matters else sorted(carried)}")
                things = ", ".join(f"a {thing}" for thing in shown)
                move = random.randrange(2)
                rows.append(
                    {
                        "group": f"task {task}",
                        "trajectory": f"{task}/{number}",
                        "step": step,
                        "state": f"[12:{random.randrange(60):02}:07] Step {step + 1} of 8. You are "
                        f"in the {place}.\nYou carry: {things}.\nScore: {room}",
                        "action": f"{move}",
                        "reward": 0.0,
                    }
                )
                if move and (missing := [thing for thing in THINGS if thing not in carried]):
                    carried.append(missing[room % len(missing)])
                elif order_matters:  # the first one carried decides
                    room = THINGS.index(carried[0])
                    carried = [*carried[1:], carried[0]]
                else:
                    room = (room + 1) % 4
    table = StepTable.from_dicts(rows)
    return table, Coded.encode(true)


def test_a_proposal_finds_the_true_states() -> None:
    table, truth = walks()
    key = propose(table)
    assert key == StateKey(("times", "step # of", "lists"))
    before, after = measure(table, truth=truth), measure(table, key, truth)
    assert before.alone > 0.9
    assert math.isnan(before.consistency) or before.consistency < 0.5
    assert after.alone < 0.2
    assert after.purity == 1.0
    assert after.found == 1.0
    assert after.consistency == 1.0
    assert eval(repr(key)) == key


def test_an_order_that_matters_is_kept() -> None:
    table, truth = walks(order_matters=True)
    key = propose(table)
    assert key == StateKey(("times", "step # of"))
    assert measure(table, key, truth).purity == 1.0


def test_ids_are_removed_if_they_say_nothing() -> None:
    """A session reads a file in a folder of its own; the hash of a commit decides what is next."""
    rows = [
        {"group": "g", "trajectory": f"t{n}", "step": step, "action": "go", "reward": 0.0}
        | {"state": f"in /tmp/tmp{n:02d}abcdef: {'abc'[step]}"}
        for n in range(10)
        for step in range(3)
    ]
    assert propose(StepTable.from_dicts(rows)) == StateKey(("temporary",))
    for row in rows:
        which = "0a1b2c3" if int(str(row["trajectory"])[1:]) % 2 else "3c2b1a0"
        row["state"] = f"at {which}" if row["step"] == 0 else f"{which[:2] * int(row['step'])}"
    assert propose(StepTable.from_dicts(rows)) == StateKey()


def test_words_for_a_key() -> None:
    assert StateKey().in_words() == "as they are"
    assert StateKey(("times", "ids")).in_words() == "without times and ids"
    key = StateKey(("times", "step # of", "lists"))
    assert key.in_words() == "without times and by the rules step # of, lists"


@pytest.mark.parametrize("name", WRONG)
def test_a_rule_that_merges_different_states_is_refused(name: str) -> None:
    world = WRONG[name]
    table, truth = played(world, tasks=8, size=32, seed=1)
    key, tried = choose(table)
    (found,) = (each for each in tried if each.rule == world.rule)
    assert not found.kept
    assert "removes what predicts" in found.why
    assert world.rule not in key.rules
    if name != "pages with one title and adverts":  # nothing in it recurs but the title
        assert measure(table, key, truth).purity == 1.0


@pytest.mark.parametrize("size", [8, 32])
@pytest.mark.parametrize("name", RIGHT)
def test_a_rule_that_merges_the_same_states_is_kept(name: str, size: int) -> None:
    world = RIGHT[name]
    table, truth = played(world, tasks=8, size=size, seed=1)
    key, tried = choose(table)
    quality = measure(table, key, truth)
    assert key.rules == (world.rule,)
    assert (quality.purity, quality.found) == (1.0, 1.0)
    (found,) = (each for each in tried if each.rule == world.rule)
    assert found.alone[1] == quality.alone < 0.2


def test_without_rewards_next_states_decide() -> None:
    """Where every episode fails, what it rests on is said."""
    table, _ = played(RIGHT["a shuffled inventory"], tasks=8, size=8, seed=0)
    key, (found,) = choose(replace(table, reward=np.zeros(len(table))))
    assert key == StateKey(("lists",))
    assert found.why == "no difference in next states"
    assert all(map(math.isnan, found.predicts))


def test_a_rule_for_one_tool() -> None:
    """A list is a set if ``bag`` shows it and a queue if ``queue`` does."""
    random, rows = Random(0), []
    for number in range(600):
        seen, order = "look", ["ant", "bee", "cat"]
        for step in range(8):
            order = random.sample(order, 3)
            action = random.choice(["bag", "queue", "serve", "serve"])
            rows.append(
                {"group": f"{number % 4}", "trajectory": f"{number}", "step": step}
                | {"state": ", ".join(order) + (" queue" if seen == "queue" else "")}
                | {"action": json.dumps({"name": action, "arguments": {}}), "reward": 0.0}
            )
            if action == "serve":
                won = order[0] == "bee" if seen == "queue" else random.random() < 0.3
                rows[-1]["reward"] = float(won)
                break
            seen = action
    key = propose(StepTable.from_dicts(rows))
    assert key == StateKey(("lists@bag",))
    assert key("b, a", "bag") == key("a, b", "bag") != key("b, a", "queue") == key("b, a")


HOSTILE = ["1", "a", "(", "[a, ", "/tmp/a", "/a", "0a", "ab-", "_", " ", "1:", "12:34", "a_1"]
HOSTILE += [
    "ok ",
    "FAILED ",
    "1 passed ",
    "<title",
    "title: ",
    "Error",
    "x.",
    "- ",
    ", ",
    "1h",
    "é",
]


@pytest.mark.parametrize("piece", HOSTILE)
def test_a_hostile_text_takes_linear_time(piece: str) -> None:
    key, times = StateKey((*RULES, "a # b")), []
    for size in (10_000, 40_000):
        text = (piece * size)[:size]
        begin = process_time()
        key(text)
        key(text + "\n1 failed")
        times.append(process_time() - begin)
    assert times[1] < 1 or times[1] < 12 * times[0]


def test_nothing_is_proposed_where_nothing_is_gained() -> None:
    columns = {"group": ["g"] * 4, "trajectory": list("aabb"), "step": [0, 1, 0, 1]}
    columns |= {"state": ["b, a", "c", "b, a", "d"], "action": ["x"] * 4, "reward": [0.0] * 4}
    assert propose(StepTable.from_columns(columns)) == StateKey()


FULL = StateKey(("times", "temporary", "ids", "hashes", "step #", "lists", "bullets"))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Step 3\nYou see a mug 1, a pen 2.", "Step 9\nYou see a pen 2, a mug 1."),
        ("Inventory: [oak log] (2) [stick] (1)", "Inventory: [stick] (1) [oak log] (2)"),
        ("at 2026-01-02T03:04:05Z: ready", "at 2025-11-12T13:14:15Z: ready"),
        ("On the shelf, you see a cup 2, and a pen 1.", "On the shelf, you see a pen 1, a cup 2."),
        ("Items:\n- axe\n- rope", "Items:\n- rope\n- axe"),
        ('{"step": 1, "has": ["b", "a"]}', '{"step": 2, "has": ["a", "b"]}'),
        ('{"has": ["b", "a"], "x": 1}', '{"x": 1, "has": ["a", "b"]}'),
        ("carried: 2 oak log, 1 stick", "carried: 1 stick, 2 oak log"),
        ("doors: oak 2 left, elm 3 left", "doors: elm 3 left, oak 2 left"),
        ("in /tmp/tmpab12cd_9/a.py", "in /tmp/tmpzzzzzzzz/a.py"),
        ("in /tmp/tmp.Ab12Cd34Ef/a.py", "in /tmp/tmp.ZZZZZZZZZZ/a.py"),
        ("in /tmp/run-a1b2c3/a.py", "in /tmp/run-9z8y7x/a.py"),
        ("/var/folders/x7/abc_1/T/a.py", "/private/var/folders/q2/def_2/T/a.py"),
        ("[main 3f2a1bc] fix", "[main 9e8d7c6] fix"),
        ("image sha256:0a1b2c3d4e5f", "image sha256:5f4e3d2c1b0a"),
        ("call_doan962gje4n4if596453fnj failed", "call_aahg28l898jffff075m04c17 failed"),
    ],
)
def test_equal_situations(one: str, other: str) -> None:
    assert FULL(one) == FULL(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Inventory: [oak log] (2) [stick] (1)", "Inventory: [oak log] (1) [stick] (2)"),
        ("You have 3 coins.", "You have 4 coins."),
        ("a mug 1, a pen 2", "a mug 2, a pen 1"),
        ('{"a": 1, "b": 2}', '{"a": 2, "b": 1}'),
        ("[('a', 1), ('b', 2)]", "[('a', 2), ('b', 1)]"),
        ("doors: oak 2 left, elm 3 left", "doors: oak 3 left, elm 2 left"),
        ("at (1, 2), facing north", "at (2, 1), facing north"),
        ("The box is on the table.", "The table is on the box."),
        ("go north\ngo east", "go east\ngo north"),
        ("in /tmp/a.py", "in /tmp/b.py"),
        ("in /tmp/tmp_results", "in /tmp/tmp_summary"),
        ("in /tmp/tmpab12cd_9/a.py", "in /tmp/tmpab12cd_9/b.py"),
        ("order 1234567", "order 7654321"),
        ("a facade", "a decade"),
        ("ORD-2026117", "ORD-2026118"),
        ("get_order_status", "get_order_policies"),
    ],
)
def test_different_situations(one: str, other: str) -> None:
    assert FULL(one) != FULL(other)


@given(st.text(max_size=80))
@settings(max_examples=500)
def test_any_text_has_a_key(text: str) -> None:
    assert isinstance(FULL(text), str)
    assert StateKey()(text) == text


WORDS = st.text("abcxyz 019", min_size=1, max_size=8).map(str.strip).filter(bool)


@given(st.lists(WORDS, min_size=2, max_size=6), st.randoms())
@settings(max_examples=500)
def test_the_order_of_a_list_does_not_count(items: list[str], random: Random) -> None:
    other = random.sample(items, len(items))
    one, two = (FULL(f"Carried: {', '.join(order)}.") for order in (items, other))
    assert one == two


@given(step_tables())
@settings(max_examples=500)
def test_a_key_only_merges(table: StepTable) -> None:
    key = propose(table)
    merged = keyed(table.state, key, tools_before(table))
    pairs = set(zip(table.state.codes.tolist(), merged.codes.tolist(), strict=True))
    assert len(pairs) == len({code for code, _ in pairs})  # equal texts have equal keys
    assert np.array_equal(merged.codes < 0, table.state.codes < 0)
    before, after = measure(table), measure(table, key)
    assert after.states <= before.states
    assert after.alone <= before.alone + 1e-12
    order = np.random.default_rng(0).permutation(len(table))
    assert propose(table.take(order)) == key


def test_the_command_shows_before_and_after(tmp_path: Path) -> None:
    table, truth = walks()
    rows = [row | {"true": str(t)} for row, t in zip(table.to_dicts(), truth.texts(), strict=True)]
    file, out = tmp_path / "walks.jsonl", tmp_path / "keyed.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run = CliRunner().invoke(app, ["states", str(file), "--truth", "true", "--out", str(out)])
    assert run.exit_code == 0, run.output
    assert "step # of" in " ".join(run.output.split())
    assert "same true state, same state" in run.output
    assert read_table(out).state.values.size == truth.values.size
    shown = CliRunner().invoke(app, ["states", str(out), "--truth", "true", "--json"])
    found = json.loads(shown.stdout)
    assert found["key"] == {"rules": []}
    assert found["before"] == found["after"]
    assert found["after"]["purity"] == found["after"]["found"] == 1.0
    wrong = CliRunner().invoke(app, ["states", str(file), "--text", "nothing"])
    assert wrong.exit_code == 2
