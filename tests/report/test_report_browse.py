"""The data of the trajectory browser: whole groups, every text harmless, every number in place."""

import json
from pathlib import Path

import numpy as np
import pytest

from ascribe import recipe
from ascribe.report.browse import CUTS, MOST_STEPS, TEXT_BYTES, browser
from ascribe.report.crediting import credit_batches
from ascribe.report.reading import read_batches
from ascribe.report.text import embedded, shortened, visible
from ascribe.steps.problems import one_line
from tests.conftest import write_jsonl
from tests.hostile import LONG
from tests.report.injections import INJECTIONS
from tests.report.toys import Row, sound


def browsed(tmp_path: Path, rows: list[Row], by: str = "gigpo") -> dict[str, object]:
    batches = read_batches([write_jsonl(tmp_path / "rows.jsonl", rows)], fingerprints=False)
    found: dict[str, object] = browser(credit_batches(batches, recipe(by)), batches)
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
    cells, texts = found["groups"][0]["cells"], found["texts"]
    named = [texts[number] for number in cells["state"]]
    for one in range(len(rows)):
        for other in range(one):
            joined = cells["label"][one] == cells["label"][other] >= 0
            assert joined == (named[one] == named[other])
    assert cells["label"][named.index("nowhere else")] == -1


def test_a_recipe_without_states_joins_equal_texts(tmp_path: Path) -> None:
    cells = browsed(tmp_path, sound(groups=1), "grpo")["groups"][0]["cells"]
    assert sorted(set(cells["label"])) == [0, 1, 2, 3, 4]


def test_a_large_file_is_sampled_by_whole_groups(tmp_path: Path) -> None:
    rows = sound(groups=30, size=8, length=50)
    found = browsed(tmp_path, rows)
    assert found["of_steps"] == len(rows) == 12_000
    assert found["steps"] == MOST_STEPS
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
    assert browsed(tmp_path, rows)["scale"] == 1.0


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
