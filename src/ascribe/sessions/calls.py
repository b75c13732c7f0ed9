"""Model calls to steps and to token sequences: what a gateway records, ready for a trainer.

A call is a mapping with the fields of rllm-model-gateway: ``session_id``, ``prompt_token_ids`` and
``completion_token_ids``; ``messages`` and ``response_message``, or the tokens alone; and, where
known, ``group``, ``agent`` and ``reward``::

    table, sequences = from_calls(calls, reward=rewards)
    credit = recipe("sbc")(table)
    advantages = spread(credit, sequences.spans)
    weights = loss_weights(table, sequences.spans, "token-mean")

A trainer that has one row for each call computes the same tokens again and again: each prompt holds
the turns before it. Where a prompt begins with an earlier call's prompt and response, token for
token, the two calls are one sequence. Where a harness or a template rewrites the history (drops
thoughts, summarises, shows the last turns alone) a new sequence begins, in the worst case for each
call.
"""

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ascribe.sessions.messages import Conversation, Message, State
from ascribe.sessions.sequences import Decoder, common
from ascribe.sessions.spans import Spans, as_numpy
from ascribe.sessions.tables import from_messages
from ascribe.steps.arrays import Bools, Brief, Ints
from ascribe.steps.errors import InputError
from ascribe.steps.table import StepTable

SHORTEST_HEAD = 4
"""Tokens that a rewritten context begins with like an earlier one; fewer say nothing."""
OPEN = 8
"""How many sequences of a trajectory may be continued: the latest ones. More would cost quadratic
time where every prompt is rewritten."""


@dataclass(frozen=True, eq=False, repr=False)
class Merged(Brief):
    """Sequences made of steps.

    Attributes:
        tokens: the token ids of each sequence.
        mask: which of them the model wrote.
        rows: the steps in each sequence, in order.
        spans: where each step's response is; row i is step i.

    Example:
        >>> from ascribe.sessions import merge
        >>> merged = merge([[7], [7, 1, 2, 8]], [[1, 2], [3]], trajectory=["a", "a"])
        >>> merged.mask[0].astype(int).tolist()
        [0, 1, 1, 0, 1]
    """

    tokens: list[Ints]
    mask: list[Bools]
    rows: list[Ints]
    spans: Spans


def merge(
    prompts: Sequence[Sequence[int]],
    responses: Sequence[Sequence[int]],
    trajectory: Sequence[Hashable],
) -> Merged:
    """One sequence for steps whose prompts continue each other, token for token.

    A step joins the latest sequence of its trajectory that its prompt continues, so the turns of an
    agent and its sub-agents may alternate. A prompt that adds nothing to a sequence begins a new
    one: in a mask, the two responses would be one run.

    Args:
        prompts: the token ids of each step's prompt.
        responses: the token ids of each step's response.
        trajectory: the trajectory of each step; the steps of one come in their order.

    Raises:
        ValueError: if there are not as many of one as of the others.

    Example:
        >>> from ascribe.sessions import merge
        >>> merged = merge([[7], [7, 1, 2, 8]], [[1, 2], [3]], trajectory=["a", "a"])
        >>> merged.tokens[0].tolist()
        [7, 1, 2, 8, 3]
    """
    texts = [(_ids(p), _ids(r)) for p, r in zip(prompts, responses, strict=True)]
    rows: list[list[int]] = []
    open_sequences: defaultdict[Hashable, list[int]] = defaultdict(list)
    sequence = np.empty(len(texts), dtype=np.int64)
    for row, ((prompt, _), name) in enumerate(zip(texts, trajectory, strict=True)):
        candidates = open_sequences[name]
        for place in reversed(range(len(candidates))):
            if _continues(prompt, *texts[rows[candidates[place]][-1]]):
                number = candidates.pop(place)
                rows[number].append(row)
                break
        else:
            number = len(rows)
            rows.append([row])
        open_sequences[name] = [*candidates, number][-OPEN:]
        sequence[row] = number

    start = np.array([prompt.size for prompt, _ in texts], dtype=np.int64)
    end = start + np.array([response.size for _, response in texts], dtype=np.int64)
    turn = np.full(len(texts), -1, dtype=np.int64)
    tokens, mask, turns = [], [], np.zeros(len(rows), dtype=np.int64)
    for number, steps in enumerate(rows):
        tokens.append(np.concatenate(texts[steps[-1]]))
        written = np.zeros(tokens[-1].size, dtype=np.bool_)
        for row in steps:
            written[start[row] : end[row]] = True
            if start[row] < end[row]:
                turn[row] = turns[number]
                turns[number] += 1
        mask.append(written)
    lengths = np.array([each.size for each in tokens], dtype=np.int64)
    spans = Spans(sequence, start, end, start, turn, lengths, turns)
    return Merged(tokens, mask, [np.array(steps) for steps in rows], spans)


def _continues(prompt: Ints, before: Ints, response: Ints) -> bool:
    """Whether a prompt is an earlier prompt, the response to it, and something more."""
    size = before.size + response.size
    return (
        prompt.size > size
        and np.array_equal(prompt[before.size : size], response)
        and np.array_equal(prompt[: before.size], before)
    )


def from_calls(
    calls: Sequence[Mapping[str, Any]],
    *,
    reward: Mapping[Any, float] | None = None,
    group: Mapping[Any, str] | None = None,
    state: State = "observation",
    decode: Decoder | None = None,
) -> tuple[StepTable, Merged]:
    """A table with a row for each call, and the token sequences that hold the calls.

    Every response is trained on once, in the sequence that holds its call.

    Args:
        calls: the calls, those of a session in the order of time.
        reward: the final reward of each session; by default the calls state it.
        group: the task of each session; by default the field ``group`` of its calls, or the
            session's name before its last colon (``task1:0``).
        state: what counts as the state of a step.
        decode: token ids to text, for calls without messages; by default texts are the ids.

    Raises:
        ValueError: if a call lacks a field, or the calls of a session contradict each other.

    Example:
        >>> from ascribe.sessions import from_calls
        >>> call = {"session_id": "g:0", "prompt_token_ids": [7], "completion_token_ids": [1, 2]}
        >>> steps, sequences = from_calls([call], reward={"g:0": 1.0})
        >>> steps
        StepTable(1 row, 1 group, 1 trajectory, 1 state)
        >>> sequences.tokens[0].tolist()
        [7, 1, 2]
    """
    prompts, responses = (
        [_field(call, name) for call in calls]
        for name in ("prompt_token_ids", "completion_token_ids")
    )
    sessions = [str(_field(call, "session_id")) for call in calls]
    rewards = None if reward is None else {str(name): value for name, value in reward.items()}
    groups = None if group is None else {str(name): task for name, task in group.items()}
    if not all(call.get("messages") for call in calls):  # completions have none
        chats = _chats_of_tokens(prompts, responses, sessions, decode)
    else:
        chats = [{"messages": [*c["messages"], _field(c, "response_message")]} for c in calls]
    conversations = []
    tasks: dict[str, str] = {}
    for number, (call, session, chat) in enumerate(zip(calls, sessions, chats, strict=True)):
        task = call.get("group") if groups is None else groups.get(session)
        task = session.rpartition(":")[0] if task is None else str(task)
        if not task:
            raise InputError(f"session {session!r} has no task", hint="give group={session: task}")
        if tasks.setdefault(session, task) != task:
            raise InputError(
                f"session {session!r} has the tasks {tasks[session]!r} and {task!r}",
                hint="give each session a name of its own",
            )
        conversations.append(
            Conversation(
                group=task,
                trajectory=session,
                context=len(chat["messages"]) - 1,
                reward=call.get("reward") if rewards is None else rewards.get(session),
                agent=call.get("agent"),
                id=str(number),
                **chat,
            )
        )
    for each in conversations:
        if not each.steps:
            raise InputError(
                f"a response_message of session {each.trajectory!r} has the role "
                f"{each.messages[-1].get('role')!r}",
                hint="it must be the assistant's",
            )
    table = from_messages(conversations, state=state)
    return table, merge(prompts, responses, sessions)


def _field(call: Mapping[str, Any], name: str) -> Any:
    if call.get(name) is None:
        raise InputError(f"a call has no {name}", hint=f"it has {', '.join(map(str, call))}")
    return call[name]


def _chats_of_tokens(
    prompts: Sequence[Any],
    responses: Sequence[Any],
    sessions: Sequence[str],
    decode: Decoder | None,
) -> list[dict[str, Any]]:
    """The messages of calls that have token ids alone, and the parent of a rewritten context.

    A context is cut where an earlier one and its response end. Of one that is rewritten, what comes
    after the tokens that it begins with like the latest call's is what the model was shown.
    """

    def text(ids: Any) -> str:
        return " ".join(map(str, ids)) if decode is None else decode(list(ids))

    chats: list[dict[str, Any]] = []
    tokens = [(_ids(p), _ids(r)) for p, r in zip(prompts, responses, strict=True)]
    earlier: defaultdict[str, list[int]] = defaultdict(list)
    for (prompt, response), session in zip(tokens, sessions, strict=True):
        latest = earlier[session]
        before = next((n for n in reversed(latest) if _continues(prompt, *tokens[n])), None)
        chat: dict[str, Any] = {}
        shown: list[Message] = []
        start = 0
        if before is not None:
            shown, start = chats[before]["messages"], sum(map(len, tokens[before]))
        elif latest and (same := common(prompt, tokens[latest[-1]][0])) >= SHORTEST_HEAD:
            chat["parent"] = str(latest[-1])
            start = same if same < prompt.size else 0
        new: list[Message] = [
            {"role": "user", "content": text(prompt[start:].tolist())},
            {"role": "assistant", "content": text(response.tolist())},
        ]
        earlier[session] = [*latest, len(chats)][-OPEN:]
        chats.append(chat | {"messages": [*shown, *new]})
    return chats


def _ids(values: Any) -> Ints:
    ids = np.asarray(as_numpy(values))
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise InputError("token ids must be a list of integers for each prompt and each response")
    return ids.astype(np.int64)
