"""Sequences with a mask to steps, and credit back onto tokens."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given

from ascribe import StepTable, check, recipe
from ascribe.sessions import Spans, from_sequences, per_turn, spread
from tests.sessions.cases import Case, Draws, cases, draws, padded, runs, sort

pytestmark = pytest.mark.unit


WORDS = ["<s>", "look", "door", "key", "open", "</s>", "<tool_response>", "</tool_response>"]


def decode(ids: list[int]) -> str:
    return " ".join(WORDS[i] for i in ids)


#            prompt   run      observation  run
TOKENS = [[0, 2, 3, 1, 5, 6, 2, 7, 4, 2, 5], [0, 2, 3, 4, 5, 6, 3, 7, 1]]
MASK = [[0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1], [0, 0, 0, 1, 1, 0, 0, 0, 1]]


def read(**options: Any) -> tuple[list[dict[str, Any]], Spans]:
    defaults = {"group": ["t", "t"], "reward": [1.0, 0.0], "decode": decode}
    table, spans = from_sequences(TOKENS, MASK, **(defaults | options))
    return table.to_dicts(), spans


# A small case.


def test_a_step_is_a_run_of_ones() -> None:
    rows, spans = read()
    assert [tuple(row.values()) for row in rows] == [
        ("t", "t/0", 0, "<s> door key", "look </s>", 0.0),
        ("t", "t/0", 1, "<tool_response> door </tool_response>", "open door </s>", 1.0),
        ("t", "t/1", 0, "<s> door key", "open </s>", 0.0),
        ("t", "t/1", 1, "<tool_response> key </tool_response>", "look", 0.0),
    ]
    assert spans.sequence.tolist() == [0, 0, 1, 1]
    assert list(zip(spans.start, spans.end, strict=True)) == [(3, 5), (8, 11), (3, 5), (8, 9)]
    assert spans.prompt.tolist() == [3, 8, 3, 8]
    tokens = spread([1.0, -2.0, 3.0, 4.0], spans)
    assert [row.tolist() for row in tokens] == [
        [0, 0, 0, 1, 1, 0, 0, 0, -2, -2, -2],
        [0, 0, 0, 3, 3, 0, 0, 0, 4],
    ]
    assert [row.tolist() for row in per_turn([1.0, -2.0, 3.0, 4.0], spans)] == [[1, -2], [3, 4]]


def test_choices_of_the_state() -> None:
    assert [row["state"] for row in read(state="tool")[0]][1::2] == ["door", "key"]
    keyed = read(state="key", keys=[["s", "d"], ["s", "k"]])[0]
    assert [row["state"] for row in keyed] == ["s", "d", "s", "k"]
    histories = [row["state"] for row in read(state="history")[0]]
    assert histories[0] == histories[2]
    assert len(set(histories)) == 3
    without = from_sequences(TOKENS, MASK, group="ab", reward=[0, 0])[0].to_dicts()
    assert without[0]["state"] == "0 2 3"


def test_the_action_is_a_tool_call_if_wanted() -> None:
    calls = {
        0: "task",
        1: '<think>Hm.</think><tool_call>{"name": "f"}</tool_call>',
        2: "<think>a</think>b",
    }
    table, _ = from_sequences(
        [[0, 1, 0, 2]], [[0, 1, 0, 1]], group=[0], reward=[1], action="call",
        decode=lambda ids: "".join(calls[i] for i in ids),
    )  # fmt: skip
    assert table.action.texts() == ['{"arguments":{},"name":"f"}', "b"]


def test_each_distinct_run_is_decoded_once() -> None:
    seen: list[tuple[int, ...]] = []

    def counting(ids: list[int]) -> str:
        seen.append(tuple(ids))
        return decode(ids)

    table, _ = from_sequences(
        TOKENS * 50, MASK * 50, group=["t"] * 100, reward=[0.0] * 100, decode=counting
    )
    assert len(table) == 200
    assert len(seen) == len(set(seen)) == 7


def test_flags_and_agents() -> None:
    rows, _ = read(truncated=[False, True], agent=["a", "b"])
    assert [row["terminated"] for row in rows] == [False, True, False, False]
    assert [row["truncated"] for row in rows] == [False, False, False, True]
    assert [row["agent"] for row in rows] == ["a", "a", "b", "b"]


def test_a_row_that_fills_up_a_batch_is_no_episode() -> None:
    table, spans = from_sequences(TOKENS, MASK, group=["t", None], reward=[1.0, np.nan])
    assert len(table) == 2
    assert spread([1.0, 1.0], spans)[1].tolist() == [0.0] * 9


def test_an_episode_without_model_tokens_still_counts_in_its_group() -> None:
    masks = [MASK[0], [0] * 9]
    table, spans = from_sequences(TOKENS, masks, group="tt", reward=[1.0, 0.0], decode=decode)
    rows = table.to_dicts()
    assert (rows[2]["trajectory"], rows[2]["action"], rows[2]["reward"]) == ("t/1", "", 0.0)
    credit = recipe("grpo")(table)
    assert credit.advantage[0] > 0 > credit.advantage[2]
    assert spread(credit, spans)[1].tolist() == [0.0] * 9
    assert [len(turns) for turns in per_turn(credit, spans)] == [2, 0]


def test_completions_without_their_prompt() -> None:
    table, _ = from_sequences(
        [[1, 5], [2]], [[1, 1], [1]], group="tt", reward=[1, 0], decode=decode
    )
    assert table.state.texts() == ["(start)"] * 2
    assert not {"empty_state", "missing_state"} & set(check(table).counts())


def test_errors_name_the_sequence() -> None:
    with pytest.raises(ValueError, match="exactly one of reward"):
        read(turn_rewards=[[0, 0], [0, 0]])
    with pytest.raises(ValueError, match="1 values for the 2 runs of sequence 1"):
        read(reward=None, turn_rewards=[[0, 0], [0]])
    with pytest.raises(ValueError, match="turn_rewards has 1 lists for 2 sequences"):
        read(reward=None, turn_rewards=[[0, 0]])
    with pytest.raises(ValueError, match="no state 'turn'"):
        read(state="turn")
    with pytest.raises(ValueError, match="give both, or neither"):
        read(state="key")
    with pytest.raises(ValueError, match="1 groups and 2 episodes for 2 sequences"):
        read(group=["t"])
    with pytest.raises(ValueError, match=r"shape \(1,\) for 2 sequences"):
        read(reward=[0.0])
    with pytest.raises(ValueError, match="mask must have as many sequences and columns"):
        from_sequences(TOKENS, MASK[::-1], group="tt", reward=[0, 0])
    with pytest.raises(ValueError, match="one list per sequence"):
        from_sequences([[[1, 2]]], [[[1, 2]]], group="t", reward=[0])
    with pytest.raises(ValueError, match="episode t/0 have different final rewards"):
        read(trajectory=[0, 0])
    with pytest.raises(ValueError, match="sequence 0 has padding inside a run"):
        from_sequences(
            np.array([[1, 2, 3]]), np.array([[1, 1, 1]]), group="t", reward=[0],
            attention_mask=np.array([[1, 0, 1]]),
        )  # fmt: skip
    with pytest.raises(ValueError, match=r"advantages of shape \(3,\) for the spans of 4 rows"):
        spread([0.0] * 3, read()[1])


def test_nothing() -> None:
    table, spans = from_sequences([], [], group=[], reward=[])
    assert len(table) == len(spans) == 0
    assert spread([], spans) == []


# Several sequences of one episode.


def test_a_fork_shares_its_prefix() -> None:
    tokens = [[0, 1, 5, 6, 2, 5], [0, 1, 5, 6, 3, 5, 7, 4]]  # they differ in the second run
    masks = [[0, 1, 1, 0, 1, 1], [0, 1, 1, 0, 1, 1, 0, 1]]
    table, spans = from_sequences(tokens, masks, group="tt", reward=[1, 1], trajectory=[0, 0])
    assert table.step.tolist() == [0, 1, 2, 3]
    assert table.reward.tolist() == [0, 0, 0, 1]
    assert (spans.sequence.tolist(), spans.turn.tolist()) == ([0, 0, 1, 1], [0, 1, 1, 2])
    assert spread([1, 2, 3, 4], spans)[1].tolist() == [0, 0, 0, 0, 3, 3, 0, 4]
    assert [turns.tolist() for turns in per_turn([1, 2, 3, 4], spans)] == [[1, 2], [0, 3, 4]]


def test_a_fork_inside_of_a_run_shares_the_first_tokens_of_the_run() -> None:
    table, spans = from_sequences(
        [[0, 1, 2, 3], [0, 1, 2, 4]],
        [[0, 1, 1, 1]] * 2,
        group="tt",
        reward=[1, 1],
        trajectory=[0, 0],
        forks=True,
    )
    assert table.action.texts() == ["1 2 3", "1 2 4"]
    assert table.state.texts() == ["0", "0"]
    assert (spans.start.tolist(), spans.prompt.tolist()) == ([1, 3], [1, 1])
    assert spread([1, 2], spans)[1].tolist() == [0, 0, 0, 2]


def test_a_prompt_that_is_seen_again_is_no_fork() -> None:
    """Step rows of an agent with a short memory that did the same twice: two decisions."""
    rows = {"group": "ttt", "trajectory": [0, 0, 0], "turn_rewards": [[0.0], [0.0], [1.0]]}
    tokens, masks = [[0, 1, 2], [0, 3], [0, 1, 2]], [[0, 1, 1], [0, 1], [0, 1, 1]]
    table, spans = from_sequences(tokens, masks, **rows)
    assert table.step.tolist() == [0, 1, 2]
    assert table.reward.sum() == 1.0
    assert [row.tolist() for row in spread([1, 2, 3], spans)] == [[0, 1, 1], [0, 2], [0, 3, 3]]
    assert len(from_sequences(tokens, masks, forks=True, **rows)[0]) == 2
    whole = [[0, 1, 0, 2], [0, 1, 0, 3]], [[0, 1, 0, 1]] * 2
    options = {"group": "tt", "trajectory": [0, 0], "reward": [1, 1]}
    assert len(from_sequences(*whole, **options)[0]) == 3
    assert len(from_sequences(*whole, **options, forks=False)[0]) == 4


def test_sequences_that_alternate_are_put_in_order() -> None:
    tokens, masks = [[0, 1, 0, 2], [3, 1]], [[0, 1, 0, 1], [0, 1]]
    table, _ = from_sequences(
        tokens, masks, group="tt", trajectory=[0, 0], order=[[0, 2], [1]], reward=[1, 1]
    )
    assert table.step.tolist() == [0, 2, 1]
    assert table.reward.tolist() == [0, 1, 0]


# Properties.


def read_all(case: Case, **options: Any) -> tuple[StepTable, Spans]:
    names = {"group": case.group, "trajectory": case.trajectory, "forks": True}
    return from_sequences(case.tokens, case.mask, **names, **options)


def reference(case: Case, token_rewards: list[list[float]]) -> list[dict[str, Any]]:
    """The table by a loop: every prefix is compared with those before it."""
    rows: list[dict[str, Any]] = []
    for number, (tokens, mask) in enumerate(zip(case.tokens, case.mask, strict=True)):
        before = [i for i in range(number) if case.trajectory[i] == case.trajectory[number]]
        found, end = runs(mask), 0
        for turn, (start, stop) in enumerate(found):
            owned = start
            for other in before:
                for begin, until in runs(case.mask[other]):
                    if begin == start and case.tokens[other][:begin] == tokens[:begin]:
                        while (
                            owned < min(stop, until)
                            and case.tokens[other][begin : owned + 1] == tokens[start : owned + 1]
                        ):
                            owned += 1
            until = found[turn + 1][0] if turn + 1 < len(found) else len(tokens)
            if owned < stop:
                rows.append({
                    "trajectory": case.trajectory[number], "group": case.group[number],
                    "state": " ".join(map(str, tokens[end:start])) or "(start)",
                    "action": " ".join(map(str, tokens[start:stop])),
                    "reward": sum(token_rewards[number][0 if turn == 0 else start : until]),
                    "span": (number, owned, stop), "prompt": start, "turn": turn,
                })  # fmt: skip
            end = stop
    return rows


@given(cases(), draws)
def test_table_and_spans_are_those_of_a_loop(case: Case, draw: Draws) -> None:
    rewards = [[draw.choice([0, 0, 0.5, 1]) for _ in tokens] for tokens in case.tokens]
    table, spans = read_all(case, token_rewards=rewards)
    silent = spans.turn < 0
    expected = reference(case, rewards)
    assert len(table) == len(expected) + silent.sum()
    steps: dict[int, int] = {}
    for i, row in enumerate(expected):
        actual = table.take(np.array([i])).to_dicts()[0]
        step = steps[row["trajectory"]] = steps.get(row["trajectory"], -1) + 1
        assert actual["trajectory"] == f"{row['group']}/{row['trajectory']}"
        assert (actual["step"], actual["state"], actual["action"]) == (
            step,
            row["state"],
            row["action"],
        )
        assert row["span"] == (spans.sequence[i], spans.start[i], spans.end[i])
        assert (row["prompt"], row["turn"]) == (spans.prompt[i], spans.turn[i])
        if all(case.turns):
            assert actual["reward"] == row["reward"]
    wrote = {row["trajectory"] for row in expected}
    assert {case.trajectory[i] for i in spans.sequence[silent]} == set(case.trajectory) - wrote


@given(cases(forks=False), draws)
def test_no_token_reward_is_lost(case: Case, draw: Draws) -> None:
    rewards = [[draw.choice([0, 0, 0.5, 1]) for _ in tokens] for tokens in case.tokens]
    table, _ = read_all(case, token_rewards=rewards)
    assert table.reward.sum() == sum(map(sum, rewards))


@given(cases(), draws)
def test_spread_then_sum_by_turn_is_the_credit(case: Case, draw: Draws) -> None:
    table, spans = read_all(case, reward=[1.0] * len(case.mask))
    credit = np.array([draw.below(256) / 7 - 18 for _ in range(len(table))])
    whole, divided = spread(credit, spans), spread(credit, spans, divide=True)
    covered = [np.zeros(len(tokens), dtype=bool) for tokens in case.tokens]
    for row, (number, start, end) in enumerate(
        zip(spans.sequence, spans.start, spans.end, strict=True)
    ):
        assert (whole[number][start:end] == credit[row]).all()
        if start < end:
            assert divided[number][start:end].sum() == pytest.approx(credit[row], rel=1e-12)
        assert not covered[number][start:end].any(), "a token is credited once"
        covered[number][start:end] = True
    for number, mask in enumerate(case.mask):
        assert not (covered[number] & ~np.array(mask, dtype=bool)).any()
        assert not whole[number][~covered[number]].any()
    turns = per_turn(credit, spans)
    assert [len(row) for row in turns] == case.turns
    written = np.flatnonzero(spans.turn >= 0)
    for row in written:
        assert turns[spans.sequence[row]][spans.turn[row]] == credit[row]
    assert np.concatenate([*turns, [0.0]]).sum() == pytest.approx(credit[written].sum(), abs=1e-6)


@given(cases(), draws)
def test_padding_never_matters(case: Case, draw: Draws) -> None:
    count = len(case.tokens)
    longest = max(map(len, case.tokens), default=0)
    left = [draw.below(4) for _ in range(count)]
    width = longest + max(left, default=0) + draw.below(3)
    fill = draw.below(4)
    rewards = [[0.1 * token for token in tokens] for tokens in case.tokens]
    options = {"group": case.group, "trajectory": case.trajectory, "forks": True}
    options["state"] = draw.choice(["observation", "history"])
    ragged, spans = from_sequences(case.tokens, case.mask, token_rewards=rewards, **options)
    wide, places = from_sequences(
        padded(case.tokens, left, width, fill),
        padded(case.mask, left, width, draw.below(2)),
        token_rewards=padded(rewards, left, width),
        attention_mask=padded([[1] * len(tokens) for tokens in case.tokens], left, width),
        **options,
    )  # fmt: skip
    assert wide.to_dicts() == ragged.to_dicts()
    assert places.prompt.tolist() == spans.prompt.tolist()
    credit = np.arange(1.0, len(ragged) + 1)
    advantages = spread(credit, places)
    assert advantages.shape == (count, width)
    for number, row in enumerate(spread(credit, spans)):
        assert advantages[number, left[number] : left[number] + len(row)].tolist() == row.tolist()
        assert np.count_nonzero(advantages[number]) == np.count_nonzero(row)
    moved = spread(credit, spans.pad(width, np.array(left, dtype=int)))
    assert moved.tolist() == advantages.tolist()


@given(cases(), draws)
def test_a_minibatch_is_a_part_of_the_whole(case: Case, draw: Draws) -> None:
    table, spans = read_all(case, reward=[1.0] * len(case.mask))
    order = sorted(range(len(case.tokens)), key=lambda _: draw.below(256))
    chosen = np.array(order[: draw.below(len(order) + 1)], dtype=np.int64)
    credit = np.arange(1.0, len(table) + 1)
    rows, part = spans.take(chosen)
    whole = spread(credit, spans)
    assert [row.tolist() for row in spread(credit[rows], part)] == [
        whole[i].tolist() for i in chosen
    ]


@given(cases(), draws)
def test_cut_sequences_lose_the_cut_tokens_alone(case: Case, draw: Draws) -> None:
    width = draw.below(13)
    table, spans = read_all(case, reward=[1.0] * len(case.mask))
    credit = np.arange(1.0, len(table) + 1)
    if (spans.end[spans.start < spans.end] > width).any():
        with pytest.raises(ValueError, match="steps have tokens outside of the"):
            spans.pad(width)
    cut = spread(credit, spans.pad(width, cut=True))
    for number, row in enumerate(spread(credit, spans)):
        assert cut[number, : len(row)].tolist() == row[:width].tolist()


def test_spread_in_torch() -> None:
    torch = pytest.importorskip("torch")
    ids = torch.tensor([[0, 1, 5, 0], [0, 0, 2, 3]])
    mask = torch.tensor([[0, 1, 1, 0], [0, 0, 1, 1]])
    real = torch.tensor([[1, 1, 1, 0], [0, 1, 1, 1]])
    table, spans = from_sequences(
        ids, mask, group="tt", reward=torch.tensor([1.0, 0.0]), attention_mask=real
    )
    assert table.state.texts() == ["0", "0"]
    for like, dtype in (
        (ids, torch.float32),
        (torch.zeros(2, 4, dtype=torch.bfloat16), torch.bfloat16),
    ):
        advantages = spread(torch.tensor([1.5, -1.0]), spans, like=like)
        assert advantages.dtype == dtype
        assert advantages.tolist() == [[0, 1.5, 1.5, 0], [0, 0, -1, -1]]
    with pytest.raises(ValueError, match=r"shape \(2, 4\), like has \(2, 3\); Spans\.pad"):
        spread([1.0, 2.0], spans, like=ids[:, :3])
    ragged = from_sequences(list(ids), list(mask), group="tt", reward=[1, 0])[1]
    assert [row.tolist() for row in spread([2.0, 3.0], ragged, like=ids)] == [
        [0, 2, 2, 0],
        [0, 0, 3, 3],
    ]
    assert spread([2.0, 3.0], spans, like=np.zeros((2, 4), np.float16)).dtype == np.float16


def test_nested_tensors_are_ragged() -> None:
    torch = pytest.importorskip("torch")

    def nested(rows: list[list[float]]) -> Any:
        return torch.nested.as_nested_tensor(
            [torch.tensor(row) for row in rows], layout=torch.jagged
        )

    rewards = nested([[0.0, 1.0, 0.0], [0.0, 0.5]]).to(torch.bfloat16)
    table, spans = from_sequences(
        nested([[1, 2, 3], [1, 2]]), nested([[0, 1, 0], [0, 1]]), group="tt", token_rewards=rewards
    )
    assert table.reward.tolist() == [1.0, 0.5]
    assert [row.tolist() for row in spread([1.0, 2.0], spans)] == [[0, 1, 0], [0, 2]]


def test_overlapping_spans_are_refused() -> None:
    one = np.zeros(2, dtype=np.int64)
    spans = Spans(one, one, one + 3, one, np.array([0, 1]), np.array([5]), np.array([2]))
    with pytest.raises(ValueError, match="two steps share tokens of sequence 0"):
        spread([1.0, 2.0], spans)


def test_rows_may_come_in_any_order() -> None:
    rows, _ = read()
    table, _ = from_sequences(
        TOKENS[::-1], MASK[::-1], group="tt", reward=[0.0, 1.0], decode=decode, trajectory=[1, 0]
    )
    assert sort(table) == rows
