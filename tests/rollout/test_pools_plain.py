"""What environments return is checked and reduced where it is returned."""

import pickle
from typing import Any

import pytest

from ascribe.rollout.pools.plain import LONGEST_DETAIL, Malformed, began, described, short, told
from tests.rollout.toys import INFO, MALFORMED, RETURNS, Unreadable


def types(value: Any) -> set[type]:
    if isinstance(value, dict):
        return {dict}.union(*(types(item) for pair in value.items() for item in pair))
    if isinstance(value, list):
        return {list}.union(*(types(item) for item in value))
    return {type(value)}


@pytest.mark.parametrize("kind", MALFORMED)
def test_what_is_no_answer_is_refused(kind: str) -> None:
    with pytest.raises(Malformed):
        told(RETURNS[kind], 0.0)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nothing", "step returned no tuple but NoneType"),
        ("four", "step returned 4 values, not 5"),
        ("bytes", "the observation is no text but bytes"),
        ("surrogate", "the observation is text that is not Unicode"),
        ("nan", "the reward is no finite number but nan"),
        ("number", "terminated is no truth value but int"),
        ("lacks", "info lacks admissible_actions, task_family, task, state, valid"),
        ("mixed", r"info\['admissible_actions'\] is no text but int"),
    ],
)
def test_the_reason_says_what_is_wrong(kind: str, message: str) -> None:
    with pytest.raises(Malformed, match=f"^{message}$"):
        told(RETURNS[kind], 0.0)


def test_a_reset_is_two_values() -> None:
    first = began(("seen", INFO), 0.25)
    assert (first.observation, first.reward, first.over) == ("seen", 0.0, False)
    assert (first.info, first.seconds) == (INFO, 0.25)
    with pytest.raises(Malformed, match="reset returned 5 values, not 2"):
        began(("seen", 0.0, False, False, INFO), 0.0)


def test_only_plain_data_leaves() -> None:
    answer = told(RETURNS["odd"], 0.0)
    plain = {str, float, int, bool, list, dict, type(None)}
    assert types([answer.observation, answer.reward, answer.terminated, answer.info]) <= plain
    assert pickle.loads(pickle.dumps(answer)) == answer
    info = dict(answer.info)
    assert info.pop("dropped") == [
        "board: not plain data but ndarray",
        "ring: nested too deeply",
        "nan: no finite number but nan",
        "thing: not plain data but object",
        "numbered: no text but int",
        "int: no text but int",
    ]
    assert info == dict(
        INFO,
        won=True,
        admissible_actions=["go", "stay"],
        count=3,
        nested={"deep": [1, 2.5, None, [True, "x"]]},
    )


def test_admissible_actions_may_be_none() -> None:
    info = dict(INFO, admissible_actions=None, example_actions=("a", "b"), expert_action=None)
    answer = told(("seen", 1, True, False, info), 0.0)
    assert answer.info == dict(info, example_actions=["a", "b"])
    assert (answer.reward, answer.over) == (1.0, True)


def test_details_are_printable_and_short() -> None:
    assert described(ValueError("\x1b[31mred\n")) == r"ValueError: \x1b[31mred\n"
    assert described(ValueError()) == "ValueError"
    assert described(Unreadable()) == "Unreadable: (its message cannot be read)"
    assert len(described(ValueError("x" * 10**6))) == LONGEST_DETAIL
    assert len(short("\x00" * 10**6)) == LONGEST_DETAIL
    assert short("x" * LONGEST_DETAIL) == "x" * LONGEST_DETAIL
