"""The data of the trajectory browser: whole groups, every text harmless, every number in place."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ascribe import recipe
from ascribe.decisions import find_decisions
from ascribe.reports import picture
from ascribe.reports.browse import CUTS, TEXT_BYTES, browser, packed
from ascribe.reports.crediting import credit_batches
from ascribe.reports.figures import draw
from ascribe.reports.reading import read_batches
from ascribe.reports.text import embedded, natural, shortened, visible
from ascribe.steps.problems import one_line
from tests.conftest import write_jsonl
from tests.hostile import LONG
from tests.report.injections import INJECTIONS
from tests.report.toys import Row, facts, sound


def browsed(tmp_path: Path, rows: list[Row], by: str = "gigpo") -> dict[str, object]:
    batches = read_batches([write_jsonl(tmp_path / "rows.jsonl", rows)], fingerprints=False)
    credited = credit_batches(batches, recipe(by))
    found: dict[str, object] = browser(credited, batches, find_decisions(credited.table))
    return found


def test_groups_trajectories_and_steps_are_those_of_the_file(tmp_path: Path) -> None:
    rows = [row | {"observation": f"saw {n}", "response": "ok"} for n, row in enumerate(sound())]
    found = browsed(tmp_path, rows[::-1])
    texts = found["texts"]
    expected = {(row["trajectory"], row["step"]): row for row in rows}
    seen = 0
    for group in found["groups"]:
        cells = group["cells"]
        for run in group["trajectories"]:
            for at in range(run["start"], run["start"] + run["length"]):
                row = expected[run["name"], cells["step"][at]]
                assert row["group"] == group["name"]
                assert texts[cells["state"][at]] == row["state"]
                assert texts[cells["action"][at]] == row["action"]
                assert texts[cells["observation"][at]] == row["observation"]
                assert texts[cells["response"][at]] == "ok"
                assert cells["reward"][at] == row["reward"]
                seen += 1
    assert seen == len(rows) == found["steps"]
    assert [group["family"] for group in found["groups"]][:2] == ["easy", "hard"]


def test_labels_join_equal_states_and_no_others(tmp_path: Path) -> None:
    rows = sound(groups=1)
    rows[3]["state"] = "nowhere else"
    found = browsed(tmp_path, rows)
    group, texts = found["groups"][0], found["texts"]
    named = [texts[number] for number in group["cells"]["state"]]
    label = group["credits"][0]["label"]
    for one in range(len(rows)):
        for other in range(one):
            joined = label[one] == label[other] >= 0
            assert joined == (named[one] == named[other])
    assert label[named.index("nowhere else")] == -1


def test_a_recipe_without_states_joins_equal_texts(tmp_path: Path) -> None:
    credit = browsed(tmp_path, sound(groups=1), "grpo")["groups"][0]["credits"][0]
    assert sorted(set(credit["label"])) == [0, 1, 2, 3, 4]


def test_a_large_file_is_sampled_by_whole_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ascribe.reports.browse.MOST_STEPS", 1_000)
    rows = sound(groups=30, size=8, length=5)
    found = browsed(tmp_path, rows)
    assert found["of_steps"] == len(rows) == 1_200
    assert found["steps"] == 1_000
    assert {len(group["trajectories"]) for group in found["groups"]} == {8}


@pytest.mark.parametrize("text", ["<" * 5_000, "é" * 5_000, "\x00" * 5_000, "word " * 1_000])
def test_texts_are_cut_to_fit(tmp_path: Path, text: str) -> None:
    rows = sound(groups=50)
    for number, row in enumerate(rows):
        row["state"] = f"{number}: {text}"
    found = browsed(tmp_path, rows)
    assert len(embedded(found["texts"]).encode()) <= TEXT_BYTES
    assert found["cut"] in CUTS[1:]
    assert found["texts"][0].endswith(" more characters)")


def test_the_page_can_hold_it(tmp_path: Path) -> None:
    found = browsed(tmp_path, sound())
    assert json.loads(embedded(found)) == json.loads(json.dumps(found))


def test_the_browser_opens_where_there_is_something_to_see(tmp_path: Path) -> None:
    rows = sound()
    for row in rows:
        if row["group"] != "task 3":
            row["reward"] = 0.0
    found = browsed(tmp_path, rows)
    assert found["groups"][found["first"]]["name"] == "task 3"


def test_a_credit_that_is_zero_everywhere_has_a_scale(tmp_path: Path) -> None:
    rows = [row | {"reward": 0.0} for row in sound()]
    assert browsed(tmp_path, rows)["recipes"][0]["scale"] == 1.0


def test_the_steps_have_a_credit_by_each_recipe(tmp_path: Path) -> None:
    rows = sound(groups=2)
    batches = read_batches([write_jsonl(tmp_path / "rows.jsonl", rows)], fingerprints=False)
    first, second = (credit_batches(batches, recipe(name)) for name in ("gigpo", "grpo"))
    decided = find_decisions(first.table)
    found = browser(first, batches, decided, second)
    assert [each["name"] for each in found["recipes"]] == ["gigpo", "grpo"]
    for group in found["groups"]:
        for credited, part in zip((first, second), group["credits"], strict=True):
            assert part["terms"].keys() == credited.credit.terms.keys()
    shown = [value for group in found["groups"] for value in group["credits"][1]["advantage"]]
    assert shown == pytest.approx(second.credit.advantage[second.steps.rows], rel=1e-3)
    again = browser(first, batches, decided)
    assert len(again["groups"][0]["credits"]) == 1


def unpacked(value: Any) -> Any:
    if isinstance(value, dict) and "runs" in value:
        pairs = zip(value["runs"][::2], value["runs"][1::2], strict=True)
        return [item for item, count in pairs for _ in range(count)]
    if isinstance(value, dict):
        return {name: unpacked(part) for name, part in value.items()}
    return [unpacked(part) for part in value] if isinstance(value, list) else value


def test_runs_of_equal_values_are_written_once(tmp_path: Path) -> None:
    found = browsed(tmp_path, sound())
    written = packed(found)
    assert '"runs"' in embedded(written)
    assert unpacked(written) == found
    assert len(embedded(written)) < len(embedded(found))


def test_groups_are_in_natural_order(tmp_path: Path) -> None:
    rows = [row | {"family": f"{int(row['group'][-1]) + 5} boxes"} for row in sound()]
    rows = [row | {"group": f"task {9 + int(row['group'][-1])}"} for row in rows]
    assert [group["name"] for group in browsed(tmp_path, rows)["groups"]] == [
        f"task {number}" for number in range(9, 15)
    ]
    assert sorted(["10 boxes", "2 boxes", "a", "1", "a10", "a9"], key=natural) == [
        *("1", "2 boxes", "10 boxes", "a", "a9", "a10")
    ]


def test_prompts_are_messages_and_the_first_to_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = [
        json.dumps([{"role": "user", "content": f"{n} {'what now? ' * 50}"}]) for n in range(20)
    ]
    rows = [row | {"prompt": prompts[n]} for n, row in enumerate(sound(groups=1))]
    found = browsed(tmp_path, rows)
    asked = found["groups"][0]["cells"]["prompt"][3][0]
    assert asked["role"] == "user"
    assert found["texts"][asked["text"]].startswith("3 what now?")
    monkeypatch.setattr("ascribe.reports.browse.TEXT_BYTES", 2_000)
    found = browsed(tmp_path, rows)
    assert found["without_prompts"]
    assert "prompt" not in found["groups"][0]["cells"]
    assert not any("what now?" in text for text in found["texts"])


def test_no_number_is_lost_to_json(tmp_path: Path) -> None:
    rows = [row | {"reward": row["reward"] * 1e99} for row in sound()]
    embedded(browsed(tmp_path, rows))


# Text.


@pytest.mark.parametrize("text", [*INJECTIONS, *(text[:3000] for text in LONG.values())])
def test_text_inside_a_page_ends_no_script_and_hides_nothing(text: str) -> None:
    shown = shortened(text, 2000)
    assert all(sign.isprintable() or sign in "\n\t" for sign in shown)
    written = embedded({"x": shown, shown: 1})
    assert not set("<>&\u2028\u2029") & set(written)
    assert json.loads(written)["x"] == shown
    written.encode()


def test_plain_text_stays_as_it_is() -> None:
    for text in ("go north", "Zürich, 北京, привет", "two\nlines\tand a tab", ""):
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
        row["state"] = "Error: no such door" if row["step"] == 4 else row["state"]
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    cells = picture([path], recipe("gigpo")).browser["groups"][0]["cells"]
    assert cells["tokens"] == 2 * [0, 1, 2, 3, 4]
    # The second action was not understood, and what came after the fourth reports an error.
    assert cells["failed"] == 2 * [0, 1, 0, 1, 0]


def test_the_sessions_of_decisions_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty tasks, of which only the last one has better and worse attempts; a tenth is shown."""
    monkeypatch.setattr("ascribe.reports.browse.MOST_STEPS", 120)
    rows = sound(groups=30, size=8)
    for row in rows:
        row["reward"] = row["reward"] if row["group"] == "task 29" else 0.0
        row["state"] += "\u202e"
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    found = picture([path], recipe("gigpo")).browser
    shown = {group["name"]: group["trajectories"] for group in found["groups"]}
    assert "task 29" in shown
    assert len(shown) == 3
    first = found["decisions"]["rows"][0]
    left, right = first["steps"]
    assert (left[0], right[0]) == ("task 29", "task 29")
    assert int(left[1][-1]) % 2 == 0
    assert int(right[1][-1]) % 2 == 1
    assert left[2] == right[2]
    assert "\u202e" not in embedded(found["decisions"])
    assert [run["decided"] % 2 for run in shown["task 29"]] == 4 * [0, 1]
    assert {run["decided"] for name in shown if name != "task 29" for run in shown[name]} == {-1}


def test_figures_that_say_nothing_are_not_drawn() -> None:
    rows = [{**row, "family": None} for row in sound()]
    assert [figure.name for figure in draw(facts(rows))] == ["funnel"]
