"""What environments return is checked and reduced where it is returned."""

from typing import Any

import pytest

from ascribe_lab.rollout.pools.worker import (
    LONGEST_DETAIL,
    MalformedError,
    decode,
    describe,
    encode,
    read_reset,
    read_step,
    shorten,
)
from lab.tests.rollout.toys import INFO, MALFORMED, RETURNS, Unreadable


def types(value: Any) -> set[type]:
    if isinstance(value, dict):
        return {dict}.union(*(types(item) for pair in value.items() for item in pair))
    if isinstance(value, list):
        return {list}.union(*(types(item) for item in value))
    return {type(value)}


@pytest.mark.parametrize("kind", MALFORMED)
def test_what_is_no_answer_is_refused(kind: str) -> None:
    with pytest.raises(MalformedError):
        read_step(RETURNS[kind], 0.0)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("nothing", "step returned no tuple but NoneType"),
        ("four", "step returned 4 values, not 5"),
        ("bytes", "the observation is no text but bytes"),
        ("surrogate", "the observation is text that is not Unicode"),
        ("nan", "the reward is no finite number but nan"),
        ("number", "terminated is no boolean but int"),
        ("lacks", "info lacks admissible_actions, task_family, task, state, valid"),
        ("mixed", r"info\['admissible_actions'\] is no text but int"),
    ],
)
def test_the_reason_says_what_is_wrong(kind: str, message: str) -> None:
    with pytest.raises(MalformedError, match=f"^{message}$"):
        read_step(RETURNS[kind], 0.0)


def test_a_reset_is_two_values() -> None:
    first = read_reset(("seen", INFO), 0.25)
    assert (first.observation, first.reward, first.over) == ("seen", 0.0, False)
    assert (first.info, first.seconds) == (INFO, 0.25)
    with pytest.raises(MalformedError, match="reset returned 5 values, not 2"):
        read_reset(("seen", 0.0, False, False, INFO), 0.0)


def test_only_plain_data_leaves() -> None:
    result = read_step(RETURNS["odd"], 0.0)
    plain = {str, float, int, bool, list, dict, type(None)}
    assert types([result.observation, result.reward, result.terminated, result.info]) <= plain
    assert decode(encode(result)) == result
    info = dict(result.info)
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
    result = read_step(("seen", 1, True, False, info), 0.0)
    assert result.info == dict(info, example_actions=["a", "b"])
    assert (result.reward, result.over) == (1.0, True)


def test_details_are_printable_and_short() -> None:
    assert describe(ValueError("\x1b[31mred\n")) == r"ValueError: \x1b[31mred\n"
    assert describe(ValueError()) == "ValueError"
    assert describe(Unreadable()) == "Unreadable: (its message cannot be read)"
    assert len(describe(ValueError("x" * 10**6))) == LONGEST_DETAIL
    assert len(shorten("\x00" * 10**6)) == LONGEST_DETAIL
    assert shorten("x" * LONGEST_DETAIL) == "x" * LONGEST_DETAIL
