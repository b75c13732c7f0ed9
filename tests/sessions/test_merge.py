"""Steps to sequences and back: the same table, the same advantages, bit by bit."""

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe import StepTable, recipe
from ascribe.sessions import from_calls, from_sequences, loss_weights, merge, spread
from ascribe.sessions.calls import OPEN
from ascribe.sessions.spans import Loss
from tests.sessions.cases import Draws, sort

pytestmark = pytest.mark.unit

RECIPES = (recipe("grpo"), recipe("gigpo", gamma=0.9), recipe("sbc", fingerprint="ngram"))


@dataclass
class Steps:
    """Steps as a trainer with one row for each holds them."""

    prompts: list[list[int]]
    responses: list[list[int]]
    columns: dict[str, list[Any]]


def read_steps(data: bytes) -> Steps:
    """Episodes whose prompts show the whole history, a rewritten one, or that of a sub-agent."""
    draw = Draws(data)
    steps = Steps(
        [], [], {name: [] for name in ("group", "trajectory", "step", "state", "action", "reward")}
    )
    for number in range(1 + draw.below(4)):
        group = draw.choice("ab")
        histories: list[list[int]] = [[], []]
        for step in range(1 + draw.below(5)):
            who = int(draw.below(4) == 0)
            if draw.below(5) == 0:  # the template rewrites the history
                histories[who] = histories[who][draw.below(3) :]
            prompt = histories[who] + [draw.below(4) for _ in range(1 + draw.below(3))]
            response = [draw.below(4) for _ in range(1 + draw.below(3))]
            histories[who] = prompt + response
            steps.prompts.append(prompt)
            steps.responses.append(response)
            row = (
                group,
                f"{group}/{number}",
                step,
                f"s{draw.below(3)}",
                " ".join(map(str, response)),
                draw.below(3) / 3,
            )
            for column, value in zip(steps.columns.values(), row, strict=True):
                column.append(value)
    return steps


@given(st.binary(min_size=100, max_size=150).map(read_steps))
def test_there_and_back(steps: Steps) -> None:
    table = StepTable.from_columns(steps.columns)
    merged = merge(steps.prompts, steps.responses, steps.columns["trajectory"])
    # Token-exact: every sequence holds the prompts and the responses of its steps.
    for number, rows in enumerate(merged.rows):
        for row in rows:
            start, end = merged.spans.start[row], merged.spans.end[row]
            assert merged.tokens[number][:start].tolist() == steps.prompts[row]
            assert merged.tokens[number][start:end].tolist() == steps.responses[row]
            assert merged.mask[number][start:end].all()
            assert merged.spans.sequence[row] == number
        written = sum(len(steps.responses[row]) for row in rows)
        assert merged.mask[number].sum() == written

    def by_run(name: str) -> list[list[Any]]:
        return [[steps.columns[name][row] for row in rows] for rows in merged.rows]

    first = [rows[0] for rows in merged.rows]
    back, spans = from_sequences(
        merged.tokens,
        merged.mask,
        group=[steps.columns["group"][row] for row in first],
        trajectory=[steps.columns["trajectory"][row][2:] for row in first],
        state="key",
        keys=by_run("state"),
        order=by_run("step"),
        turn_rewards=by_run("reward"),
        forks=False,
    )
    assert sort(back) == sort(table)
    order = np.concatenate(merged.rows)
    assert spans.prompt.tolist() == merged.spans.prompt[order].tolist()
    for credit in RECIPES:
        there, again = credit(table).advantage, credit(back).advantage
        assert again.tolist() == there[order].tolist()
        for one, two in zip(spread(there, merged.spans), spread(again, spans), strict=True):
            assert one.tolist() == two.tolist()


def test_prompts_that_continue_each_other_are_one_sequence() -> None:
    merged = merge([[1, 2], [1, 2, 3, 4], [9]], [[3], [5, 6], [7]], "aab")
    assert [ids.tolist() for ids in merged.tokens] == [[1, 2, 3, 4, 5, 6], [9, 7]]
    assert [ids.tolist() for ids in merged.mask] == [[0, 0, 1, 0, 1, 1], [0, 1]]
    assert [ids.tolist() for ids in merged.rows] == [[0, 1], [2]]
    assert merged.spans.prompt.tolist() == [2, 4, 1]


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ([1, 2, 4, 4], "another response in the history"),
        ([1, 3, 3, 4], "another prompt in the history"),
        ([2, 3, 4], "a shorter history"),
        ([1, 2, 3], "nothing new: the two responses would be one run"),
    ],
)
def test_a_rewritten_history_begins_a_new_sequence(prompt: list[int], why: str) -> None:
    merged = merge([[1, 2], prompt], [[3], [5]], "aa")
    assert len(merged.tokens) == 2, why
    assert merged.tokens[1].tolist() == [*prompt, 5]


def test_a_step_of_another_trajectory_is_not_joined() -> None:
    assert len(merge([[1, 2], [1, 2, 3, 4]], [[3], [5]], "ab").tokens) == 2


def test_agents_of_a_trajectory_may_alternate() -> None:
    prompts = [[1], [5], [1, 2, 3], [5, 6, 7]]
    merged = merge(prompts, [[2], [6], [4], [8]], [0] * 4)
    assert [rows.tolist() for rows in merged.rows] == [[0, 2], [1, 3]]


def test_a_step_without_tokens_is_no_run() -> None:
    merged = merge([[1], [1, 2], [1, 2, 3]], [[], [], [4]], "aaa")
    assert [ids.tolist() for ids in merged.tokens] == [[1, 2, 3, 4]]
    assert merged.spans.turn.tolist() == [-1, -1, 0]
    assert spread([5.0, 6.0, 7.0], merged.spans)[0].tolist() == [0, 0, 0, 7]


def test_rewritten_prompts_cost_linear_time() -> None:
    """No more than the latest sequences are looked at, so a step costs no more than its tokens."""
    prompts = [[0, step] for step in range(OPEN + 1)]
    last = [0, 0, 7, 8]
    late = merge([*prompts, last], [[7]] * (OPEN + 2), ["a"] * (OPEN + 2))
    assert len(late.tokens) == OPEN + 2
    soon = merge([*prompts[:-1], last], [[7]] * (OPEN + 1), ["a"] * (OPEN + 1))
    assert len(soon.tokens) == OPEN


def gateway_call(session: Any, prompt: list[int], response: list[int], **fields: Any) -> Any:
    tokens = {"prompt_token_ids": prompt, "completion_token_ids": response}
    return {"session_id": session, "reward": 1.0, **tokens, **fields}


def test_the_task_of_a_call_may_be_a_number() -> None:
    calls = [gateway_call(f"run:{task}", [1], [2], group=task) for task in range(2)]
    assert from_calls(calls)[0].group.texts() == ["0", "1"]


def test_a_session_has_one_task_and_a_name_of_its_own() -> None:
    calls = [gateway_call("0", [1], [2], group="a"), gateway_call("0", [3], [4], group="b")]
    with pytest.raises(ValueError, match="session '0' has the tasks 'a' and 'b'; give each"):
        from_calls(calls)
    calls = [gateway_call("b/0", [1], [2], group="a"), gateway_call("0", [3], [4], group="a/b")]
    with pytest.raises(ValueError, match="one of group a/b are both called a/b/0"):
        from_calls(calls)


def test_a_row_for_each_call() -> None:
    said = {"messages": [], "response_message": {"role": "assistant", "content": "same"}}
    calls = [gateway_call("a:0", [number], [9], **said) for number in range(2)]
    table, rows = from_calls(calls)
    assert len(table) == len(rows.spans) == 2
    wrong = {"messages": [{"role": "user"}], "response_message": {"role": "user"}}
    with pytest.raises(ValueError, match="has the role 'user'; it must be the assistant's"):
        from_calls([gateway_call("a:0", [1], [2], **wrong)])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("calls", [[], [gateway_call("a:0", [1], [])]])
def test_calls_without_tokens_have_no_weight(calls: Any) -> None:
    table, rows = from_calls(calls)
    for loss in get_args(Loss):
        assert not loss_weights(table, rows.spans, loss).any()


def test_calls_that_are_not_what_they_should_be() -> None:
    call = {"session_id": 7, "prompt_token_ids": [1], "completion_token_ids": [2], "group": "a"}
    other = call | {"session_id": 8, "prompt_token_ids": np.array([1])}
    table, merged = from_calls([call, other], reward={7: 1.0, 8: 0.0}, group={7: "g", 8: "g"})
    assert table.reward.tolist() == [1.0, 0.0]
    assert set(table.group.values) == {"g"}
    with pytest.raises(ValueError, match="must be a list of integers"):
        from_calls([call | {"prompt_token_ids": [1.5]}])
    with pytest.raises(ValueError, match="a call has no completion_token_ids"):
        from_calls([{"session_id": 1, "prompt_token_ids": [1]}])
    with pytest.raises(ValueError, match="the mask has 1 rows for 2 sequences"):
        loss_weights(table, merged.spans, mask=[[0, 1]])
