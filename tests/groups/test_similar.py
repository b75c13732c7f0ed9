"""Groups of states whose texts are nearly the same."""

import sys
from difflib import SequenceMatcher

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ascribe import StepTable
from ascribe.estimators import GiGPO
from ascribe.groups.exact import exact
from ascribe.groups.similar import similar
from ascribe.steps.check import arrange
from tests.estimators import reference
from tests.strategies import TEXTS, step_tables

thresholds = st.sampled_from((0.0, 0.5, 2 / 3, 0.8, 0.9, 0.95, 1.0)) | st.floats(0.0, 1.0)


def text_array(texts):
    out = np.empty(len(texts), dtype=object)
    out[:] = texts
    return out


def numbered(keys):
    number = {}
    return [-1 if key is None else number.setdefault(key, len(number)) for key in keys]


def labels_of(states, threshold, tasks=None):
    """Group of each row; ``states`` are texts or None."""
    distinct = sorted({state for state in states if state is not None})
    codes = np.array([-1 if s is None else distinct.index(s) for s in states], dtype=np.int64)
    task = np.zeros(len(states), np.int64) if tasks is None else np.array(tasks, np.int64)
    groups = similar(task, codes, text_array(distinct), threshold)
    assert groups.count == groups.labels.max(initial=-1) + 1
    return groups.labels.tolist()


def first_fit(states, tasks, threshold, measure):
    """What ``similar`` promises, by loops, with any measure."""
    rows = [
        {"group": f"{task:03}", "trajectory": f"{task:03}", "step": i, "state": state}
        for i, (task, state) in enumerate(zip(tasks, states, strict=True))
    ]
    keys = reference.similar_state(
        rows, list(range(len(rows))), scope="group", threshold=threshold, measure=measure
    )
    return numbered([keys.get(i) for i in range(len(rows))])


texts = st.text(alphabet="abc", max_size=8)


@pytest.mark.slow
@given(st.lists(texts | st.none(), max_size=15), thresholds, st.integers(0, 2**32 - 1))
def test_first_fit_by_longest_common_subsequence(states, threshold, seed):
    random = np.random.default_rng(seed)
    tasks = np.sort(random.integers(0, 3, len(states))).tolist()
    wanted = first_fit(states, tasks, threshold, reference.ratio)
    assert labels_of(states, threshold, tasks) == wanted


def matched(first, second):
    """The similarity that the standard library computes, without its shortcut for long texts."""
    return SequenceMatcher(None, first, second, autojunk=False).ratio()


words = st.sampled_from(("mug", "desk 1", "desk 2", "lamp", "a", "open", "closed"))
sentences = st.tuples(words, words).map(
    lambda two: f"You arrive at the {two[0]}. On it, you see a {two[1]}, and nothing else."
)


@pytest.mark.slow
@given(st.lists(sentences | texts, min_size=1, max_size=8), thresholds)
def test_agrees_with_difflib_where_the_measures_agree(states, threshold):
    compared = []

    def measure(state, founder):
        compared.append((state, founder))
        return matched(state, founder)

    wanted = first_fit(states, [0] * len(states), threshold, measure)
    # Matching blocks are one common subsequence, not always the longest.
    assume(all(matched(*pair) == reference.ratio(*pair) for pair in compared))
    assert labels_of(states, threshold) == wanted


@pytest.mark.slow
@given(step_tables(states=TEXTS))
def test_a_threshold_of_one_is_exact_grouping(table):
    steps = arrange(table)
    wanted = exact(steps.group, steps.state, table.state.values.size)
    got = similar(steps.group, steps.state, table.state.values, 1.0)
    assert got.labels.tolist() == wanted.labels.tolist()
    assert got.count == wanted.count


@pytest.mark.unit
def test_long_texts_that_differ_in_a_word():
    # From 200 characters on, difflib leaves out frequent characters, and here finds nothing alike.
    line = "You are in the middle of a room. Looking quickly around you, you see a mug. "
    first, second = f"Task 1. {line * 5}", f"Goal 2. {line * 5}"
    assert SequenceMatcher(None, first, second).ratio() < 0.1
    assert labels_of([first, second], 0.95) == [0, 0]


@pytest.mark.unit
def test_the_first_member_decides_and_order_with_it():
    # 2 * 3 / 7 = 0.86 for aab with aaab and with aabb; 2 * 3 / 8 = 0.75 for aaab with aabb.
    assert labels_of(["aab", "aaab", "aabb"], 0.8) == [0, 0, 0]
    assert labels_of(["aaab", "aabb", "aab"], 0.8) == [0, 1, 0]


@pytest.mark.unit
def test_the_threshold_itself_is_similar_enough():
    # 2 * 9 / 20 = 0.9, and as floats 18 / 20 >= 0.9.
    assert labels_of(["aaaaaaaaab", "aaaaaaaaac"], 0.9) == [0, 0]
    assert labels_of(["aaaaaaaaab", "aaaaaaaaac"], 0.9000001) == [0, 1]


@pytest.mark.unit
@pytest.mark.parametrize("threshold", [0.1, 0.5, 1.0])
def test_an_empty_text_is_similar_to_none(threshold):
    assert labels_of(["", "a", ""], threshold) == [0, 1, 0]


@pytest.mark.unit
def test_a_threshold_of_zero_merges_a_task():
    assert labels_of(["", "a", "xyz"], 0.0, [0, 0, 1]) == [0, 0, 1]


@pytest.mark.unit
def test_tasks_do_not_merge_and_missing_states_take_no_part():
    assert labels_of(["abc", None, "abc", "abd"], 0.5, [0, 0, 1, 1]) == [0, -1, 1, 1]
    assert labels_of([None, None], 0.5) == [-1, -1]
    assert labels_of([], 0.5) == []


@pytest.mark.unit
def test_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    with pytest.raises(ImportError, match=r"rapidfuzz.*pip install .*\[similar\]'"):
        labels_of(["a", "b"], 0.9)


@pytest.mark.unit
def test_exact_grouping_needs_no_rapidfuzz(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz", None)
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    row = {"group": "g", "step": 0, "state": "s", "action": "a"}
    table = StepTable.from_dicts(
        row | {"trajectory": name, "reward": reward} for name, reward in (("t", 0.0), ("u", 1.0))
    )
    assert GiGPO(normalise="mean")(table).advantage.tolist() == [-1.0, 1.0]
    with pytest.raises(ImportError, match="rapidfuzz"):
        GiGPO(grouping="similar")(table)
