"""The sessions of the page: all of them, every text harmless and whole, every number in place."""

import json
from pathlib import Path
from typing import Any
from unicodedata import category

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ascribe import recipe
from ascribe.decisions import find_decisions
from ascribe.groups.events import read_calls
from ascribe.reports import picture
from ascribe.reports.browse import CHUNK, LONGEST_RESULT, browser
from ascribe.reports.crediting import credit_batches
from ascribe.reports.figures import draw
from ascribe.reports.reading import read_batches
from ascribe.reports.text import compressed, embedded, natural, shortened, visible
from ascribe.steps.problems import one_line
from tests.conftest import write_jsonl
from tests.hostile import LONG
from tests.report.injections import INJECTIONS
from tests.report.toys import Row, facts, groups_of, sound


def browsed(tmp_path: Path, rows: list[Row], by: str = "gigpo") -> dict[str, Any]:
    batches = read_batches([write_jsonl(tmp_path / "rows.jsonl", rows)], fingerprints=False)
    credited = credit_batches(batches, recipe(by))
    return browser(credited, batches, read_calls(credited.table), find_decisions(credited.table))


def test_sessions_and_steps_are_those_of_the_file(tmp_path: Path) -> None:
    rows = [row | {"observation": f"saw {n}", "response": "ok"} for n, row in enumerate(sound())]
    found = browsed(tmp_path, rows[::-1])
    expected = {(row["trajectory"], row["step"]): row for row in rows}
    names = sorted({row["trajectory"] for row in rows})
    seen = 0
    for group in groups_of(found):
        cells, texts = group["cells"], group["texts"]
        for run in group["trajectories"]:
            for at in range(run["start"], run["start"] + run["length"]):
                row = expected[names[run["number"]], cells["step"][at]]
                for name in ("state", "action", "observation", "response"):
                    assert texts[cells[name][at]] == row[name]
                assert cells["reward"][at] == row["reward"]
                seen += 1
    assert seen == len(rows) == found["steps"]
    assert found["sessions"] == found["of_sessions"] == 24


def test_labels_join_equal_states_and_no_others(tmp_path: Path) -> None:
    rows = sound(groups=1)
    rows[3]["state"] = "nowhere else"
    (group,) = groups_of(browsed(tmp_path, rows))
    named = [group["texts"][number] for number in group["cells"]["state"]]
    label = group["credits"][0]["label"]
    for one in range(len(rows)):
        for other in range(one):
            joined = label[one] == label[other] >= 0
            assert joined == (named[one] == named[other])
    assert label[named.index("nowhere else")] == -1


def test_a_recipe_without_states_joins_equal_texts(tmp_path: Path) -> None:
    (group,) = groups_of(browsed(tmp_path, sound(groups=1), "grpo"))
    assert sorted(set(group["credits"][0]["label"])) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("text", ["<" * 5_000, "é" * 5_000, "\x00" * 900, "word " * 1_000])
def test_no_text_of_a_table_is_cut(tmp_path: Path, text: str) -> None:
    rows = sound(groups=50)
    for number, row in enumerate(rows):
        row["state"] = f"{number}: {text}"
    found = browsed(tmp_path, rows)
    assert len(found["chunks"]) > 1
    groups = groups_of(found)
    shown = {group["texts"][number] for group in groups for number in group["cells"]["state"]}
    assert shown == {visible(row["state"]) for row in rows}


def talked(result: str) -> list[Row]:
    """A session of one step, which was told a result before, and one that lost."""
    messages = [
        {"role": "system", "content": "s" * 3_000},
        {"role": "tool", "tool_call_id": "1", "content": result},
        {"role": "assistant", "tool_calls": [{"id": "2", "function": {"name": "f"}}]},
    ]
    function = messages[2]["tool_calls"][0]["function"]
    function["arguments"] = json.dumps({"code": "a\nb" * 2_000, "none": None, "empty": ""})
    row = {
        "group": "g",
        "step": 0,
        "state": result,
        "action": "a",
        "messages": json.dumps(messages),
    }
    return [row | {"trajectory": f"t{n}", "reward": float(n)} for n in range(2)]


def test_only_results_of_tools_are_cut_and_say_so(tmp_path: Path) -> None:
    found = browsed(tmp_path, talked("r" * 5_000))
    (group,) = groups_of(found)
    texts = group["texts"]
    system, tool, assistant = group["cells"]["messages"][0]
    assert texts[system["text"]] == "s" * 3_000
    left = " (3,000 more characters were left out of this page)"
    assert texts[tool["text"]] == "r" * LONGEST_RESULT + "…" + left
    assert texts[group["cells"]["state"][0]] == texts[tool["text"]]
    named, name, *arguments = assistant["calls"][0]
    assert (texts[named], texts[name]) == ("2", "f")
    assert [texts[word] for word in arguments] == [
        *("code", "a\nb" * 2_000, "none", "null", "empty", '""')
    ]
    assert len(texts) == len(set(texts))


def test_texts_are_written_once_in_a_chunk_and_chunks_hold_whole_tasks(tmp_path: Path) -> None:
    rows = sound(groups=40, size=3)
    for row in rows:
        row["state"] += "x" * (CHUNK // 60)
    found = browsed(tmp_path, rows)
    assert 3 < len(found["chunks"]) < 40
    groups = groups_of(found)
    assert len(groups) == 40
    firsts = [group["trajectories"][0]["number"] for group in groups]
    assert set(found["starts"]) <= set(firsts)
    assert all(len(group["trajectories"]) == 3 for group in groups)


def test_sessions_that_do_not_fit_are_left_out_evenly_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, text = sound(groups=12, size=8), np.random.default_rng(0)
    for row in rows:
        row["response"] = text.bytes(300).hex()
    every = browsed(tmp_path, rows)
    limit = sum(map(len, every["chunks"])) // 2
    monkeypatch.setattr("ascribe.reports.browse.PAGE_BYTES", limit)
    found = browsed(tmp_path, rows)
    assert sum(map(len, found["chunks"])) <= limit
    assert 30 < found["sessions"] < found["of_sessions"] == 96
    groups = groups_of(found)
    sizes = [len(group["trajectories"]) for group in groups]
    assert sum(sizes) == found["sessions"]
    assert len(sizes) == 12
    assert max(sizes) - min(sizes) <= 1
    returns = [run["return"] for group in groups for run in group["trajectories"]]
    assert returns.count(0.0) > returns.count(1.0), "lost sessions are kept first"


def test_a_page_without_room_still_names_its_sessions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascribe.reports.browse.PAGE_BYTES", 10)
    found = browsed(tmp_path, sound())
    assert (found["chunks"], found["sessions"], found["of_sessions"]) == ([], 0, 24)


def test_the_page_can_hold_it(tmp_path: Path) -> None:
    found = browsed(tmp_path, sound())
    assert json.loads(embedded(found)) == json.loads(json.dumps(found))


def test_the_same_value_is_compressed_to_the_same_bytes() -> None:
    assert compressed({"a": ["ü", 1.5]}) == compressed({"a": ["ü", 1.5]})
    with pytest.raises(ValueError, match="JSON"):
        compressed([np.nan])


def test_a_credit_that_is_zero_everywhere_has_a_scale(tmp_path: Path) -> None:
    rows = [row | {"reward": 0.0} for row in sound()]
    assert browsed(tmp_path, rows)["recipes"][0]["scale"] == 1.0


def test_the_steps_have_a_credit_by_each_recipe(tmp_path: Path) -> None:
    rows = sound(groups=2)
    batches = read_batches([write_jsonl(tmp_path / "rows.jsonl", rows)], fingerprints=False)
    first, second = (credit_batches(batches, recipe(name)) for name in ("gigpo", "grpo"))
    decided = find_decisions(first.table)
    found = browser(first, batches, read_calls(first.table), decided, second)
    assert [each["name"] for each in found["recipes"]] == ["gigpo", "grpo"]
    groups = groups_of(found)
    for group in groups:
        for credited, part in zip((first, second), group["credits"], strict=True):
            assert part["terms"].keys() == credited.credit.terms.keys()
    shown = [value for group in groups for value in group["credits"][1]["advantage"]]
    assert shown == pytest.approx(second.credit.advantage[second.steps.rows], rel=1e-3)
    again = browser(first, batches, read_calls(first.table), decided)
    assert len(groups_of(again)[0]["credits"]) == 1


def test_numbers_in_texts_are_sorted_as_numbers() -> None:
    assert sorted(["10 boxes", "2 boxes", "a", "1", "a10", "a9"], key=natural) == [
        *("1", "2 boxes", "10 boxes", "a", "a9", "a10")
    ]


def test_prompts_are_messages(tmp_path: Path) -> None:
    prompts = [
        json.dumps([{"role": "user", "content": f"{n} {'what now? ' * 50}"}]) for n in range(20)
    ]
    rows = [row | {"prompt": prompts[n]} for n, row in enumerate(sound(groups=1))]
    (group,) = groups_of(browsed(tmp_path, rows))
    asked = group["cells"]["prompt"][3][0]
    assert asked["role"] == "user"
    assert group["texts"][asked["text"]].startswith("3 what now?")


def test_tools_are_counted_with_what_went_wrong(tmp_path: Path) -> None:
    def call(name: str, number: int) -> str:
        return json.dumps({"name": name, "arguments": {"n": number}})

    rows = sound(groups=2, size=2)
    for row in rows:
        row["action"] = call("open" if row["step"] else "look", row["step"])
        row["state"] = "Error: no such door" if row["step"] == 4 else row["state"]
    found = browsed(tmp_path, rows)["tools"]
    assert found == [
        {"tool": "open", "calls": 16, "errors": 4, "sessions": 4},
        {"tool": "look", "calls": 4, "errors": 0, "sessions": 4},
    ]


def test_no_number_is_lost_to_json(tmp_path: Path) -> None:
    rows = [row | {"reward": row["reward"] * 1e99} for row in sound()]
    embedded(browsed(tmp_path, rows))


# Text.


@pytest.mark.parametrize("text", [*INJECTIONS, *(text[:3000] for text in LONG.values())])
def test_text_inside_a_page_ends_no_script_and_hides_nothing(text: str) -> None:
    shown = shortened(text, 2000)
    plain = [sign for sign in shown if sign not in "\n\t\ufe0f" and category(sign) != "Zs"]
    assert all(map(str.isprintable, plain))
    written = embedded({"x": shown, shown: 1})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written)["x"] == shown
    written.encode()


def test_plain_text_stays_as_it_is() -> None:
    for text in (
        "go north",
        "Zürich, 北京, привет",
        "two\nlines\tand a tab",
        "✈\ufe0f 1\u202f%",
        "",
    ):
        assert visible(text) == text
    assert visible("a\r\nb") == "a\nb"
    assert visible("\u202eevil") == "\\u202eevil"


def test_a_cut_text_says_so() -> None:
    assert shortened("abcdef", 3) == "abc… (3 more characters)"
    assert shortened("abc", 3) == "abc"
    assert one_line("a\nb") == "a\\nb"
    assert len(one_line("x" * 500)) == 80


def test_a_number_that_json_lacks_is_an_error() -> None:
    with pytest.raises(ValueError, match="JSON"):
        embedded(np.inf)


def test_tokens_and_errors_are_counted(tmp_path: Path) -> None:
    rows = sound(groups=1, size=2)
    for row in rows:
        row["response_ids"] = list(range(row["step"]))
        row["valid"] = row["step"] != 1
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    cells = groups_of(picture([path], recipe("gigpo")).browser)[0]["cells"]
    assert cells["tokens"] == 2 * [0, 1, 2, 3, 4]
    assert cells["failed"] == 2 * [0, 1, 0, 0, 0]


def test_figures_that_say_nothing_are_not_drawn() -> None:
    rows = [{**row, "family": None} for row in sound()]
    assert draw(facts(rows)) == []
