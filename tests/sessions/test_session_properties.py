"""However a session is split into rows: the same decisions, advantages and gradient.

Sessions are drawn at random: turns of a main agent, sub-agents that a call spawns, and contexts
that are sampled twice. Each is then recorded in several ways, and every record must give the table
that is known from the draw.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

import numpy as np
import pytest

from ascribe import StepTable, recipe
from ascribe.sessions import (
    Conversation,
    from_calls,
    from_messages,
    from_sequences,
    link,
    loss_weights,
    merge,
    spread,
)
from ascribe.sessions.spans import Loss
from ascribe.steps.problems import ProblemKind

pytestmark = pytest.mark.unit

EXAMPLES = 500
RECIPES = [recipe("grpo"), recipe("gigpo", gamma=0.9), recipe("returns", gamma=0.9), recipe("sbc")]
SYSTEM = {"role": "system", "content": "use the tools"}


@dataclass
class Decision:
    """A decision as it was drawn: what the agent saw since its last turn, and what it wrote."""

    name: str
    context: list[dict[str, Any]]
    """All messages of the agent before it, none dropped."""
    new: list[dict[str, Any]]
    """The last of them, since the agent's turn before."""
    response: dict[str, Any]
    dropped: int = 0
    """How many messages after the first two the harness has dropped by then."""
    children: "list[list[Decision]]" = field(default_factory=list)
    is_retry: bool = False


@dataclass
class Session:
    group: str
    name: str
    reward: float
    main: list[Decision]

    def decisions(self) -> list[Decision]:
        """In the order of steps: a sub-agent's after the one that spawned it."""
        return [each for decision in self.main for each in _with_children(decision)]


def _with_children(decision: Decision) -> list[Decision]:
    below = [each for lineage in decision.children for d in lineage for each in _with_children(d)]
    return [decision, *below]


def draw_sessions(random: np.random.Generator, *, compact: bool = False) -> list[Session]:
    sessions = []
    for group in ("a", "b")[: 1 + (random.integers(4) == 0)]:
        for number in range(2 + random.integers(2)):
            start = [SYSTEM, {"role": "user", "content": f"task {group}"}]
            lineage = _lineage(random, f"{group}{number}", start, depth=0, compact=compact)
            reward = float(random.integers(3)) / 2
            sessions.append(Session(group, f"{group}:{number}", reward, lineage))
    return sessions


def _lineage(
    random: np.random.Generator, name: str, start: list[Any], *, depth: int, compact: bool
) -> list[Decision]:
    context, new, lineage, dropped = list(start), list(start), [], 0
    for turn in range(1 + random.integers(5 - depth)):
        label = f"{name}.{turn}"
        if compact and turn and random.integers(3) == 0:
            # The harness drops all turns, or keeps the last response with what followed it.
            dropped = len(context) - len(new) - len(start) - random.integers(2)
        if turn and random.integers(5) == 0:
            again = _response(random, f"{label}r")
            lineage.append(Decision(f"{label}r", context, new, again, dropped, is_retry=True))
        spawns = depth == 0 and random.integers(3) == 0
        task = f"part {label} of {random.integers(2)} things"
        response = _response(random, label, task if spawns else None)
        decision = Decision(label, context, new, response, dropped)
        lineage.append(decision)
        result = f"seen {random.integers(3)}"
        if spawns:
            prompt = [{"role": "user", "content": task}]
            child = _lineage(random, f"{label}s", prompt, depth=1, compact=False)
            decision.children.append(child)
            result = child[-1].response["content"]
        role = "tool" if spawns else "user"
        new = [{"role": role, "content": result}]
        context = [*context, response, *new]
    return lineage


def _response(random: np.random.Generator, label: str, task: str | None = None) -> dict[str, Any]:
    """A response; the label makes it unique in its session, as hardly two texts are equal."""
    text = f"do {random.integers(2)} at {label.lstrip('ab0123456789')}"
    if task is None:
        return {"role": "assistant", "content": text}
    call = {"name": "delegate", "arguments": {"task": task}}
    return {"role": "assistant", "content": "", "tool_calls": [{"function": call}]}


def known_table(sessions: Sequence[Session]) -> tuple[StepTable, list[str]]:
    """The table by the draw alone, and the name of the decision in each row."""
    rows, names = [], []
    for session in sessions:
        decisions = session.decisions()
        for step, each in enumerate(decisions):
            rows.append(
                {
                    "group": session.group,
                    "trajectory": f"{session.group}/{session.name}",
                    "step": step,
                    "state": "\n\n".join(f"{m['role']}: {m['content']}" for m in each.new),
                    "action": str(each.response),
                    "reward": session.reward if step == len(decisions) - 1 else 0.0,
                }
            )
            names.append(each.name)
    return StepTable.from_dicts(rows), names


# How a session may be recorded: conversations with the names of their decisions.

Record = list[tuple[Conversation, list[str]]]


def shown(each: Decision) -> list[dict[str, Any]]:
    """What the call was shown: the context without what the harness has dropped."""
    return [*each.context[:2], *each.context[2 + each.dropped :]]


def one_by_one(session: Session) -> Record:
    """Every call by itself."""
    calls: Record = []
    for time, each in enumerate(session.decisions()):
        messages = [*shown(each), each.response]
        conversation = Conversation(
            group=session.group,
            trajectory=session.name,
            messages=messages,
            context=len(messages) - 1,
            reward=session.reward,
            time=float(time),
        )
        calls.append((conversation, [each.name]))
    return calls


def as_chats(session: Session) -> Record:
    """A chat for each lineage, and a new one after each compaction."""
    chats: Record = []
    lineages = [session.main, *(c for d in session.main for c in d.children)]
    for lineage in lineages:
        for each in lineage:
            messages = [*shown(each), each.response]
            whole = Conversation(
                group=session.group,
                trajectory=session.name,
                messages=messages,
                reward=session.reward,
            )
            call = replace(whole, context=len(messages) - 1), [each.name]
            if each.is_retry and _extends(messages, chats, lineage):
                chats.insert(_last(chats, lineage), call)  # before the chat that goes on
            elif each.is_retry:
                chats.append(call)
            elif _extends(messages, chats, lineage):
                before, names = chats[_last(chats, lineage)]
                chats[_last(chats, lineage)] = (
                    replace(whole, context=before.context),
                    [*names, each.name],
                )
            else:
                chats.append(call)
    return chats


def _last(chats: Record, lineage: Sequence[Decision]) -> int:
    names = {each.name for each in lineage if not each.is_retry}
    return max((n for n, (_, held) in enumerate(chats) if names & set(held)), default=-1)


def _extends(messages: list[Any], chats: Record, lineage: Sequence[Decision]) -> bool:
    before = chats[_last(chats, lineage)][0].messages if _last(chats, lineage) >= 0 else None
    return before is not None and messages[: len(before)] == before


def inlined(session: Session) -> Record:
    """One chat, with the turns of sub-agents inside; contexts that were sampled again apart."""
    messages: list[Any] = []
    names: list[str] = []
    apart: Record = []

    def write(lineage: Sequence[Decision]) -> None:
        for each in lineage:
            if each.is_retry:
                # The context of the chat up to here, with what the retry saw.
                whole = [*messages, *each.new, each.response]
                conversation = replace(base, messages=whole, context=len(whole) - 1)
                apart.append((conversation, [each.name]))
                continue
            messages.extend([*each.new, each.response])
            names.append(each.name)
            for child in each.children:
                write(child)

    base = Conversation(
        group=session.group, trajectory=session.name, messages=[], reward=session.reward
    )
    write(session.main)
    return [*apart, (replace(base, messages=messages), names)]


RECORDS: dict[str, Callable[[Session], Record]] = {
    "calls one by one": one_by_one,
    "chats": as_chats,
    "sub-agents inlined": inlined,
}


def table_of(records: Record) -> tuple[StepTable, list[str]]:
    return from_messages([each for each, _ in records]), [n for _, held in records for n in held]


def by_name(values: Any, names: Sequence[str]) -> list[Any]:
    return [value for _, value in sorted(zip(names, list(values), strict=True))]


def assert_same(
    seed: int, table: StepTable, names: list[str], known: StepTable, known_names: list[str]
) -> None:
    assert sorted(names) == sorted(known_names)
    for column in ("trajectory", "step", "state", "reward"):
        ours, theirs = getattr(table, column), getattr(known, column)
        ours, theirs = (c.texts() if hasattr(c, "texts") else c.tolist() for c in (ours, theirs))
        assert by_name(ours, names) == by_name(theirs, known_names), column
    each = RECIPES[seed % len(RECIPES)]
    advantages = by_name(each(table).advantage, names)
    np.testing.assert_array_equal(advantages, by_name(each(known).advantage, known_names))


@pytest.mark.parametrize(
    ("way", "compact"),  # a chat that holds the turns of all agents has dropped none
    [*((way, False) for way in RECORDS), ("calls one by one", True), ("chats", True)],
)
def test_no_way_to_record_a_session_changes_an_advantage(way: str, compact: bool) -> None:
    for seed in range(EXAMPLES):
        sessions = draw_sessions(np.random.default_rng(seed), compact=compact)
        known, known_names = known_table(sessions)
        records = [each for session in sessions for each in RECORDS[way](session)]
        assert_same(seed, *table_of(records), known, known_names)


def test_row_order_is_irrelevant() -> None:
    for seed in range(EXAMPLES):
        random = np.random.default_rng(seed)
        sessions = draw_sessions(random, compact=True)
        records = [each for session in sessions for each in one_by_one(session)]
        shuffled = [records[place] for place in random.permutation(len(records))]
        assert_same(seed, *table_of(shuffled), *known_table(sessions))


def test_a_dropped_call_is_reported() -> None:
    """If a later context holds its response; what nothing quotes leaves no trace."""
    reported = 0
    for seed in range(EXAMPLES):
        random = np.random.default_rng(seed)
        session = draw_sessions(random)[0]
        records = one_by_one(session)
        assert not link([each for each, _ in records]).problems
        quoted = [
            place
            for place, (each, _) in enumerate(records)
            if any(each.messages[-1] in later.messages[:-1] for later, _ in records)
        ]
        if quoted:
            records.pop(int(random.choice(quoted)))
            kinds = {problem.kind for problem in link([each for each, _ in records]).problems}
            assert ProblemKind.LOST_RESPONSE in kinds
            reported += 1
    assert reported > EXAMPLES / 2


# Tokens and the gradient of a tiny model: a table of logits by the token before.

WORDS: dict[str, int] = {}
SIZE = 4096


def encode(text: str) -> list[int]:
    return [WORDS.setdefault(word, len(WORDS)) % SIZE for word in text.split()]


def tokens_of(message: dict[str, Any]) -> list[int]:
    if message["role"] != "assistant":
        return encode(f"<{message['role']}> {message['content']}")
    return encode(f"<assistant> {message['content']} {message.get('tool_calls', '')} <end>")


def calls_of(sessions: Sequence[Session]) -> tuple[list[dict[str, Any]], list[str]]:
    """The calls as a gateway records them, and the names of their decisions."""
    calls, names = [], []
    for session in sessions:
        for each in session.decisions():
            prompt = [token for m in shown(each) for token in tokens_of(m)]
            response = tokens_of(each.response)
            calls.append(
                {
                    "session_id": session.name,
                    "messages": shown(each),
                    "response_message": each.response,
                    "prompt_token_ids": [*prompt, response[0]],
                    "completion_token_ids": response[1:],
                    "reward": session.reward,
                }
            )
            names.append(each.name)
    return calls, names


def gradient(rows: Sequence[Any], coefficients: Sequence[Any]) -> dict[tuple[int, int], float]:
    """Of the sum of coefficients times log probabilities, by the token before and the token."""
    total: dict[tuple[int, int], float] = {}
    for ids, values in zip(rows, coefficients, strict=True):
        for place in np.flatnonzero(values):
            pair = int(ids[place - 1]), int(ids[place])
            total[pair] = total.get(pair, 0.0) + float(values[place])
    return {pair: value for pair, value in total.items() if abs(value) > 1e-12}


def trained(
    rows: Sequence[Any], masks: Sequence[Any], advantages: Sequence[Any], weights: Any, loss: str
) -> dict[tuple[int, int], float]:
    """The gradient that a trainer computes with its aggregation of the loss."""
    counts = [int(np.count_nonzero(mask)) for mask in masks]
    share = {
        "token-mean": [1 / sum(counts)] * len(rows),
        "row-mean": [1 / (len(rows) * max(count, 1)) for count in counts],
        "row-sum": [1 / len(rows)] * len(rows),
    }[loss]
    parts = zip(advantages, weights, share, strict=True)
    return gradient(rows, [a * weight * each for a, weight, each in parts])


def wanted(calls: list[dict[str, Any]], table: StepTable, advantage: Any, loss: str) -> Any:
    """The mean over sessions, by the definition: each response once, in its own call."""
    sizes = np.array([len(call["completion_token_ids"]) for call in calls])
    session = table.trajectory.codes
    tokens = np.bincount(session, sizes)[session] if loss != "row-sum" else np.ones(len(calls))
    rows, values = [], []
    for call, size, each, count in zip(calls, sizes, advantage, tokens, strict=True):
        rows.append([*call["prompt_token_ids"], *call["completion_token_ids"]])
        line = np.zeros(len(rows[-1]))
        line[-size:] = each / count / len(set(session.tolist()))
        values.append(line)
    return gradient(rows, values)


def same(one: dict[Any, float], other: dict[Any, float]) -> bool:
    return one.keys() == other.keys() and all(abs(one[k] - other[k]) < 1e-9 for k in one)


LOSSES: tuple[Loss, ...] = get_args(Loss)


@pytest.mark.parametrize("compact", [False, True])
def test_no_way_to_cut_rows_changes_the_gradient(compact: bool) -> None:
    for seed in range(EXAMPLES):
        calls, _ = calls_of(draw_sessions(np.random.default_rng(seed), compact=compact))
        table, merged = from_calls(calls)
        advantage = recipe("returns", gamma=0.9)(table).advantage
        prompts = [call["prompt_token_ids"] for call in calls]
        responses = [call["completion_token_ids"] for call in calls]
        apart = merge(prompts, responses, range(len(calls)))
        for rows in (merged, apart):
            tokens = spread(advantage, rows.spans)
            for loss in LOSSES:
                weights = loss_weights(table, rows.spans, loss)
                ours = trained(rows.tokens, rows.mask, tokens, weights, loss)
                assert same(ours, wanted(calls, table, advantage, loss))


def test_tokens_alone_give_the_same_steps() -> None:
    """Where turns are dropped, too; but which agent acts is not in the tokens."""
    for seed in range(EXAMPLES):
        sessions = draw_sessions(np.random.default_rng(seed), compact=True)
        for session in sessions:
            for each in session.decisions():
                each.children.clear()
        calls, _ = calls_of(sessions)
        by_messages, _ = from_calls(calls)
        by_tokens, _ = from_calls([call | {"messages": None} for call in calls])
        assert by_tokens.step.tolist() == by_messages.step.tolist()
        assert by_tokens.reward.tolist() == by_messages.reward.tolist()


# Faults that trainers have had, each as it would be written.


def last_row_only(table: StepTable, rows: Any, advantage: Any) -> Any:
    session = session_of_rows(table, rows)
    kept = [np.flatnonzero(session == each)[-1] for each in np.unique(session)]
    return advantage * np.isin(rows.spans.sequence, kept)


def first_row_only(table: StepTable, rows: Any, advantage: Any) -> Any:
    session = session_of_rows(table, rows)
    kept = [np.flatnonzero(session == each)[0] for each in np.unique(session)]
    return advantage * np.isin(rows.spans.sequence, kept)


def baseline_by_rows(table: StepTable, rows: Any, advantage: Any) -> Any:
    session = session_of_rows(table, rows)
    reward = np.bincount(table.trajectory.codes, table.reward)
    group = np.empty(reward.size, dtype=int)
    group[table.trajectory.codes] = table.group.codes
    means = np.bincount(group[session], reward[session]) / np.bincount(group[session])
    return (reward - means[group])[table.trajectory.codes]


def reward_per_row(table: StepTable, rows: Any, advantage: Any) -> Any:
    reward = np.zeros(len(table))
    final = np.bincount(table.trajectory.codes, table.reward)
    for steps in rows.rows:
        reward[steps[-1]] = final[table.trajectory.codes[steps[-1]]]
    return recipe("dr_grpo")(replace(table, reward=reward)).advantage


def session_of_rows(table: StepTable, rows: Any) -> Any:
    session = np.empty(len(rows.tokens), dtype=int)
    session[rows.spans.sequence] = table.trajectory.codes
    return session


def test_planted_faults_are_caught() -> None:
    faults = [last_row_only, first_row_only, baseline_by_rows, reward_per_row]
    caught = dict.fromkeys([*faults, "double training"], 0)
    for seed in range(EXAMPLES):
        calls, _ = calls_of(draw_sessions(np.random.default_rng(seed), compact=True))
        table, rows = from_calls(calls)
        advantage = recipe("dr_grpo")(table).advantage
        expected = wanted(calls, table, advantage, "token-mean")
        weights = loss_weights(table, rows.spans, "token-mean")
        for fault in faults:
            tokens = spread(fault(table, rows, advantage), rows.spans)
            wrong = trained(rows.tokens, rows.mask, tokens, weights, "token-mean")
            caught[fault] += not same(wrong, expected)
        # A row for each call, with a mask on the responses that it repeats.
        whole = [[*call["prompt_token_ids"], *call["completion_token_ids"]] for call in calls]
        masks = list(map(mask_of, whole))
        tokens = [mask * each for mask, each in zip(masks, advantage, strict=True)]
        weights = np.full(len(calls), sum(map(np.count_nonzero, masks)) / len(calls))
        wrong = trained(whole, masks, tokens, weights, "token-mean")
        caught["double training"] += not same(wrong, expected)
    assert min(caught.values()) > EXAMPLES / 2


def mask_of(ids: Sequence[int]) -> Any:
    """1 on all responses in a sequence."""
    begin, end = encode("<assistant>")[0], encode("<end>")[0]
    opened = np.cumsum([token == begin for token in ids]) - np.cumsum([t == end for t in ids])
    return np.append(0, opened[:-1])


def test_rows_that_repeat_responses_train_them_once() -> None:
    """Sequences of a trainer in which each call repeats the responses before it."""
    for seed in range(EXAMPLES):
        session = draw_sessions(np.random.default_rng(seed))[0]
        for each in session.decisions():
            each.children.clear()
        session.main = [each for each in session.main if not each.is_retry]
        calls, _ = calls_of([session])
        whole = [[*call["prompt_token_ids"], *call["completion_token_ids"]] for call in calls]
        masks, count = list(map(mask_of, whole)), len(calls)
        table, spans = from_sequences(
            whole, masks, group=["a"] * count, trajectory=["0"] * count, reward=[1.0] * count
        )
        assert len(table) == count
        assert (spans.end - spans.start).tolist() == [len(c["completion_token_ids"]) for c in calls]
        advantage = np.arange(1.0, count + 1)
        for loss in LOSSES:  # the trainer counts the repeated tokens, too
            weights = loss_weights(table, spans, loss, mask=masks)
            ours = trained(whole, masks, spread(advantage, spans), weights, loss)
            assert same(ours, wanted(calls, table, advantage, loss))
