"""Token sequences with a mask to steps, and credit back onto their tokens.

Most trainers hold an episode as one sequence: a prompt, the model's tokens (mask 1), the tokens of
tools or the environment (mask 0), the model's again, and so on. A step is a run of ones::

    table, spans = from_sequences(ids, mask, group=tasks, reward=rewards, decode=tokenizer.decode)
    advantages = spread(recipe("sbc")(table), spans)

Everything is vectorised over tokens. Python loops over runs alone, and decodes each distinct run
once.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from ascribe.groups.responses import tag_bodies
from ascribe.sessions.messages import State, action_of_text
from ascribe.sessions.spans import Ragged, Spans, as_numpy
from ascribe.steps.arrays import Bools, Floats, Ints
from ascribe.steps.errors import InputError
from ascribe.steps.hints import unknown
from ascribe.steps.problems import Problem, ProblemKind
from ascribe.steps.table import Coded, StepTable

Decoder: TypeAlias = Callable[[list[int]], str]
"""Token ids to text, such as a tokenizer's ``decode``."""

Tokens: TypeAlias = Any
"""A number for each token: (sequences, columns), or a list with one array for each sequence.

A nested tensor counts as such a list.
"""

START = "(start)"
"""The observation before a sequence that begins with the model's tokens."""

ID = np.dtype(np.int32)
"""The type of token ids; hashes of histories depend on it."""


def from_sequences(
    tokens: Tokens,
    mask: Tokens,
    *,
    group: Sequence[Hashable | None],
    reward: Sequence[float] | Floats | None = None,
    turn_rewards: Sequence[Sequence[float]] | None = None,
    token_rewards: Tokens | None = None,
    decode: Decoder | None = None,
    state: State = "observation",
    action: Literal["text", "call"] = "text",
    keys: Sequence[Sequence[str]] | None = None,
    trajectory: Sequence[Hashable] | None = None,
    order: Sequence[Sequence[int]] | None = None,
    forks: bool | None = None,
    agent: Sequence[str | None] | None = None,
    truncated: Sequence[bool] | Bools | None = None,
    attention_mask: Tokens | None = None,
) -> tuple[StepTable, Spans]:
    """A table of steps, and where their tokens are: row i of the one is row i of the other.

    Exactly one of ``reward``, ``turn_rewards`` and ``token_rewards`` is given. An episode in which
    the model wrote nothing is one step without tokens, so that its reward counts in its group.

    Several sequences may be one episode: a compacted history, sub-agents, a fork. Its steps are
    numbered through the sequences in their order. A fork begins with the same tokens as an earlier
    sequence of its episode; those belong to the earlier one alone.

    Args:
        tokens: token ids.
        mask: nonzero where the model wrote the token.
        group: the task of each sequence; None for a sequence that only fills up a batch.
        reward: the final reward of each sequence's episode. Sequences of one episode have the same,
            or NaN.
        turn_rewards: for each sequence, the reward of each run.
        token_rewards: a reward for each token. It belongs to the last run that has begun by then,
            so one that lies on an observation counts for the turn before it.
        decode: token ids to text; without it texts are the ids themselves.
        state: what counts as the state of a step. ``tool`` reads what is in ``<tool_response>``
            tags.
        action: the text of the run, or its tool calls as JSON (its text without thoughts if it
            has none).
        keys: for each sequence, the state of each run; for ``state="key"``.
        trajectory: the episode of each sequence; by default each is one of its own.
        order: for each sequence, numbers by which the steps of an episode are put in order, one for
            each run, if several sequences alternate.
        forks: whether sequences of one episode that begin alike are forks, and not decisions that
            happened to be the same (an agent with a short memory sees a prompt again). By default
            they are if they share a whole run and go on after it.
        agent: who acts in each sequence.
        truncated: whether a limit cut each sequence's episode.
        attention_mask: 0 where a token is padding; for padded sequences.

    Raises:
        ValueError: if shapes or counts do not agree, or padding lies inside a run.

    Example:
        >>> from ascribe.sessions import from_sequences
        >>> tokens, mask = [[7, 1, 2, 8, 3], [7, 4]], [[0, 1, 1, 0, 1], [0, 1]]
        >>> steps, spans = from_sequences(tokens, mask, group=["g", "g"], reward=[1.0, 0.0])
        >>> steps.action.texts()
        ['1 2', '3', '4']
    """
    if sum(rewards is not None for rewards in (reward, turn_rewards, token_rewards)) != 1:
        raise InputError("give exactly one of reward, turn_rewards and token_rewards")
    if state not in get_args(State):
        raise unknown("state", state, get_args(State))
    if (keys is not None) != (state == "key"):
        raise InputError("keys are the states of state='key': give both, or neither")

    batch = _batch(tokens, mask, attention_mask)
    episode, groups, names = _episodes(group, trajectory, batch.lengths.size)
    runs = _runs(batch, episode)
    own = _own_starts(batch, runs, episode, forks)

    # One row for each run that has tokens of its own, then one for each episode without any.
    rows = np.flatnonzero(own < runs.end)
    silent = _without_runs(episode, runs)
    begin, until = batch.starts[silent], batch.starts[silent + 1]
    sequence = np.append(runs.sequence[rows], silent)
    columns = batch.columns(own[rows], runs.end[rows], runs.sequence[rows])
    start, end = (np.append(column, batch.lengths[silent]) for column in columns)
    prompt = np.append(runs.start[rows], until) - batch.starts[sequence]
    turn = np.append(runs.turn[rows], np.full(silent.size, -1))
    spans = Spans(sequence, start, end, prompt, turn, batch.lengths, runs.turns, batch.width)

    ranks, rewards = np.zeros(sequence.size), np.zeros(sequence.size)
    if order is not None:
        ranks[: rows.size] = _per_run("order", order, runs)[rows]
    step, last = _steps(episode[sequence], ranks)
    if reward is not None:
        rewards[last] = _final(reward, episode, names)
    elif turn_rewards is not None:
        rewards[: rows.size] = _per_run("turn_rewards", turn_rewards, runs)[rows]
    else:
        of_run, of_sequence = _sum_rewards(token_rewards, batch, runs)
        rewards[: rows.size] = of_run[rows]
        np.add.at(rewards, last[episode[episode >= 0]], of_sequence[episode >= 0])

    if state == "history":
        states = Coded.encode(_histories(batch, sequence, prompt))
    elif keys is not None:
        chosen = np.append(_per_run("keys", keys, runs)[rows], np.full(silent.size, None))
        states = Coded.encode(chosen.tolist())
    else:
        before = np.where(runs.turn > 0, np.append(0, runs.end[:-1]), batch.starts[runs.sequence])
        ranges = np.append(before[rows], begin), np.append(runs.start[rows], until)
        states = _texts(batch, *ranges, _reader(decode, state))
    ranges = np.append(runs.start[rows], until), np.append(runs.end[rows], until)
    table: dict[str, Any] = {
        "group": groups.take(sequence),
        "trajectory": Coded(episode[sequence], names),
        "step": step,
        "state": states,
        "action": _texts(batch, *ranges, _reader(decode, action)),
        "reward": rewards,
    }
    if agent is not None:
        table["agent"] = Coded.encode(list(agent)).take(sequence)
    if truncated is not None:
        ends = np.zeros(sequence.size, dtype=np.bool_)
        ends[last] = True
        cut = np.asarray(as_numpy(truncated), dtype=np.bool_)[sequence]
        table |= {"terminated": ends & ~cut, "truncated": ends & cut}
    return StepTable.from_columns(table), spans


# Layouts and runs.


@dataclass(frozen=True, eq=False)
class _Batch:
    """Sequences end to end, without padding."""

    ids: npt.NDArray[np.int32]
    buffer: memoryview
    """Their bytes."""
    written: Bools
    starts: Ints
    """Where each sequence begins, and where the last one ends."""
    lengths: Ints
    """Columns of each sequence, padding included."""
    column: Ints | None
    """Of each token, counted over all sequences; None without padding."""
    width: int | None
    """Columns of the array; None for arrays of different lengths."""

    def columns(self, start: Ints, end: Ints, sequence: Ints) -> tuple[Ints, Ints]:
        """Ranges of tokens as columns of their sequences."""
        if self.column is None:
            return start - self.starts[sequence], end - self.starts[sequence]
        begin = (np.cumsum(self.lengths) - self.lengths)[sequence]
        first, stop = self.column[start] - begin, self.column[end - 1] + 1 - begin
        broken = np.flatnonzero(stop - first != end - start)
        if broken.size:
            number = sequence[broken[0]]
            raise InputError(f"sequence {number} has padding inside a run of the model's tokens")
        return first, stop


def _batch(tokens: Tokens, mask: Tokens, attention_mask: Tokens | None) -> _Batch:
    ids, lengths = _flat("tokens", tokens, ID)
    written, _ = _flat("mask", mask, np.dtype(np.bool_), lengths)
    starts, column = np.append(0, np.cumsum(lengths)), None
    if attention_mask is not None:
        real, _ = _flat("attention_mask", attention_mask, np.dtype(np.bool_), lengths)
        column = np.flatnonzero(real)
        starts = np.searchsorted(column, starts)
        ids, written = ids[column], written[column]
    width = tokens.shape[1] if _is_padded(tokens) else None
    return _Batch(ids, ids.view(np.uint8).data, written, starts, lengths, column, width)


def _is_padded(values: Tokens) -> bool:
    return getattr(values, "ndim", 1) == 2 and not getattr(values, "is_nested", False)


def _flat(
    name: str, values: Tokens, dtype: npt.DTypeLike, lengths: Ints | None = None
) -> tuple[npt.NDArray[Any], Ints]:
    """All sequences end to end, and the length of each, which must be ``lengths``."""
    if isinstance(values, Ragged):
        flat, sizes = values.flat(dtype), values.sizes
    elif _is_padded(values):
        array = np.asarray(as_numpy(values))
        flat, sizes = array.reshape(-1), np.full(array.shape[0], array.shape[1])
    else:
        rows = values.unbind() if getattr(values, "is_nested", False) else values
        arrays = [np.asarray(as_numpy(each)) for each in rows]
        if any(array.ndim != 1 for array in arrays):
            raise InputError(f"{name} must be (sequences, columns), or one list per sequence")
        flat = np.concatenate(arrays, dtype=dtype, casting="unsafe") if arrays else np.zeros(0)
        sizes = np.array([array.size for array in arrays], dtype=np.int64)
    if lengths is not None and not np.array_equal(sizes, lengths):
        raise InputError(f"{name} must have as many sequences and columns as tokens")
    return flat.astype(dtype, copy=False), sizes


def _episodes(
    group: Sequence[Hashable | None], trajectory: Sequence[Hashable] | None, count: int
) -> tuple[Ints, Coded, npt.NDArray[Any]]:
    """The episode of each sequence as a label (-1: none), the groups, the names of the episodes."""
    members = range(count) if trajectory is None else trajectory
    if len(group) != count or len(members) != count:
        raise InputError(f"{len(group)} groups and {len(members)} episodes for {count} sequences")
    tasks = [None if name is None else str(name) for name in group]
    pairs = zip(tasks, members, strict=True)
    names = Coded.encode([None if task is None else f"{task}/{name}" for task, name in pairs])
    return names.codes, Coded.encode(tasks), names.values


@dataclass(frozen=True, eq=False)
class _Runs:
    """The runs of the model's tokens, in order, and how many each sequence has."""

    sequence: Ints
    start: Ints
    end: Ints
    turn: Ints
    turns: Ints


def _runs(batch: _Batch, episode: Ints) -> _Runs:
    written = batch.written
    begins, ends = written.copy(), written.copy()
    begins[1:] &= ~written[:-1]
    ends[:-1] &= ~written[1:]
    nonempty = np.diff(batch.starts) > 0
    edge = batch.starts[:-1][nonempty]  # a run does not go on in the next sequence
    begins[edge] = written[edge]
    edge = batch.starts[1:][nonempty] - 1
    ends[edge] = written[edge]
    start, end = np.flatnonzero(begins), np.flatnonzero(ends) + 1
    sequence = np.searchsorted(batch.starts, start, side="right") - 1
    if (episode < 0).any():
        counts = np.flatnonzero(episode[sequence] >= 0)
        sequence, start, end = sequence[counts], start[counts], end[counts]
    turns = np.bincount(sequence, minlength=episode.size)
    turn = np.arange(sequence.size) - (np.cumsum(turns) - turns)[sequence]
    return _Runs(sequence, start, end, turn, turns)


def _without_runs(episode: Ints, runs: _Runs) -> Ints:
    """The first sequence of each episode that has no run."""
    first = np.unique(episode, return_index=True)[1]
    return first[(episode[first] >= 0) & ~np.isin(episode[first], episode[runs.sequence])]


def _own_starts(batch: _Batch, runs: _Runs, episode: Ints, forks: bool | None) -> Ints:
    """The first token of each run that no earlier sequence of its episode holds.

    Two runs share their first tokens if all tokens before them are the same.
    """
    own = runs.start.copy()
    label = episode + 1
    several = np.bincount(label)[label] > 1
    if not forks:  # by default, no sequence of a single run is a fork
        several &= (np.bincount(label, runs.turns > 1) > 0)[label] & (forks is None)
    rows = np.flatnonzero(several[runs.sequence])
    rows = rows[_alike(batch, runs, label, np.unique(runs.sequence[rows]))[runs.sequence[rows]]]
    sequence = runs.sequence[rows]
    histories = _histories(batch, sequence, runs.start[rows] - batch.starts[sequence])
    seen: defaultdict[tuple[int, str], list[Any]] = defaultdict(list)
    is_fork = False
    for row, name, history in zip(rows, episode[sequence].tolist(), histories, strict=True):
        run = batch.ids[runs.start[row] : runs.end[row]]
        sizes = [common(run, other) for other in seen[name, history]]
        if runs.turn[row] == 0:
            goes_on = runs.turns[runs.sequence[row]] > 1
            is_fork = bool(forks) or (goes_on and run.size in sizes)
        if is_fork:
            own[row] += max(sizes, default=0)
        seen[name, history].append(run)
    return own


def _alike(batch: _Batch, runs: _Runs, label: Ints, sequences: Ints) -> Bools:
    """Which of these sequences may begin like another one of their episode, by a few tokens."""
    first = runs.start[(np.cumsum(runs.turns) - runs.turns)[sequences]]
    begin, episode = batch.starts[sequences], label[sequences]
    least = np.full(label.max(initial=0) + 1, 8)  # tokens that come before every first run
    np.minimum.at(least, episode, first - begin)
    key = episode.astype(np.uint64)
    for place in range(8):
        counts = np.flatnonzero(least[episode] > place)
        key[counts] = key[counts] * np.uint64(0x9E3779B97F4A7C15) + batch.ids[
            begin[counts] + place
        ].astype(np.uint64)
    _, which, count = np.unique(key, return_inverse=True, return_counts=True)
    alike = np.zeros(label.size, dtype=np.bool_)
    alike[sequences] = count[which] > 1
    return alike


def common(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> int:
    """How many tokens two runs have in common from their beginning."""
    size = min(one.size, other.size)
    differ = np.flatnonzero(one[:size] != other[:size])
    return int(differ[0]) if differ.size else size


def _histories(batch: _Batch, sequence: Ints, before: Ints) -> list[str]:
    """A hash of the first ``before`` tokens of each sequence; those of one rise."""
    digests: list[str] = []
    current, at, width = -1, 0, ID.itemsize
    begins = (batch.starts[sequence] * width).tolist()
    for number, begin, size in zip(
        sequence.tolist(), begins, (before * width).tolist(), strict=True
    ):
        if number != current:
            current, at, history = number, begin, blake2b(digest_size=16)
        history.update(batch.buffer[at : begin + size])
        at = begin + size
        digests.append(history.hexdigest())
    return digests


def _steps(episode: Ints, ranks: Floats) -> tuple[Ints, Ints]:
    """The step of each row in its episode, and the last row of each episode, by label."""
    order = np.lexsort((ranks, episode))
    size = np.bincount(episode)
    step = np.empty(episode.size, dtype=np.int64)
    step[order] = np.arange(episode.size) - np.repeat(np.cumsum(size) - size, size)
    return step, order[np.cumsum(size) - 1]


# Rewards and texts.


def _per_run(name: str, values: Sequence[Sequence[Any]], runs: _Runs) -> npt.NDArray[Any]:
    """One value for each run, from a list for each sequence."""
    sizes = np.array([len(each) for each in values], dtype=np.int64)
    if sizes.size != runs.turns.size:
        raise InputError(f"{name} has {sizes.size} lists for {runs.turns.size} sequences")
    wrong = np.flatnonzero(sizes != runs.turns)
    if wrong.size:
        raise InputError(
            f"{name} has {sizes[wrong[0]]} values for the {runs.turns[wrong[0]]} runs of sequence "
            f"{wrong[0]}",
            hint="give one for each run of ones in the mask",
        )
    flat = np.empty(sizes.sum(), dtype=object)
    flat[:] = [value for each in values for value in each]
    return flat


def _final(reward: Any, episode: Ints, names: npt.NDArray[Any]) -> Floats:
    """The final reward of each episode."""
    values = np.asarray(as_numpy(reward), dtype=np.float64)
    if values.shape != episode.shape:
        raise InputError(f"reward has shape {values.shape} for {episode.size} sequences")
    stated = np.flatnonzero((episode >= 0) & ~np.isnan(values))
    final = np.full(names.size, np.nan)
    final[episode[stated]] = values[stated]
    differ = stated[final[episode[stated]] != values[stated]]
    if differ.size:
        raise InputError(
            f"the sequences of episode {names[episode[differ[0]]]} have different final rewards",
            hint=("give that of the episode to each of them or NaN to some, or use turn_rewards"),
        )
    return final


def _sum_rewards(token_rewards: Tokens, batch: _Batch, runs: _Runs) -> tuple[Floats, Floats]:
    """The reward of each run, and of each sequence what no run of it can have.

    A reward belongs to the last run that has begun, or else to the first of the sequence.
    """
    values, _ = _flat("token_rewards", token_rewards, np.dtype(np.float64), batch.lengths)
    places = np.flatnonzero(values)
    values = values[places]
    bounds = np.append(0, np.cumsum(batch.lengths))
    sequence = np.searchsorted(bounds, places, side="right") - 1
    begins = runs.start if batch.column is None else batch.column[runs.start]
    run = np.searchsorted(begins, places, side="right") - 1
    first_run = (np.cumsum(runs.turns) - runs.turns)[sequence]
    run, has_run = np.maximum(run, first_run), runs.turns[sequence] > 0
    of_run = np.bincount(run[has_run], values[has_run], minlength=runs.start.size)
    of_rest = np.bincount(sequence[~has_run], values[~has_run], minlength=batch.lengths.size)
    return of_run.astype(np.float64), of_rest.astype(np.float64)


def _reader(decode: Decoder | None, kind: str) -> Decoder:
    """From the ids of a run or of an observation to its text."""

    def read(ids: list[int]) -> str:
        if not ids:
            return START if kind in get_args(State) else ""
        if decode is None:
            return " ".join(map(str, ids))
        text = decode(ids)
        if kind == "call":
            return action_of_text(text)
        if kind == "tool":
            results, _ = tag_bodies((text,), "tool_response")
            return "\n\n".join(body.strip() for _, body in results) or text
        return text

    return read


def _texts(batch: _Batch, start: Ints, end: Ints, read: Decoder) -> Coded:
    """The text of each range of tokens; equal ranges are read once."""
    code_of: defaultdict[bytes, int] = defaultdict()
    code_of.default_factory = code_of.__len__
    buffer, width = batch.buffer, ID.itemsize
    ranges = zip((start * width).tolist(), (end * width).tolist(), strict=True)
    codes = np.fromiter(
        (code_of[bytes(buffer[i:j])] for i, j in ranges), np.int64, count=start.size
    )
    coded = Coded.encode([read(np.frombuffer(each, ID).tolist()) for each in code_of])
    return Coded(coded.codes[codes], coded.values)


# Checks.

TURN_MARKS = re.compile(
    r"</?tool_response>|<\|im_start\|>|<\|start_header_id\|>|<\|start\|>|<start_of_turn>"
    r"|\[/?INST\]|\[TOOL_RESULTS\]|<\|(?:user|observation|assistant|tool)\|>"
)
"""What chat templates write between turns, and a model does not write inside of one."""


def check_sequences(
    tokens: Tokens,
    mask: Tokens,
    *,
    token_rewards: Tokens | None = None,
    decode: Decoder | None = None,
    ends: Sequence[int] | None = None,
    attention_mask: Tokens | None = None,
) -> list[Problem]:
    """Problems of sequences with a mask; ``Problem.rows`` are the numbers of the sequences.

    Args:
        tokens: token ids, as for ``from_sequences``.
        mask: nonzero where the model wrote the token.
        token_rewards: a reward for each token; one where the mask is 0 is reported.
        decode: token ids to text, special tokens included. A run of the model's tokens with the
            mark of a turn inside holds tokens of a tool or of the chat template.
        ends: the tokens that end a turn. A last run that ends in none of them was cut.
        attention_mask: 0 where a token is padding.

    Example:
        >>> from ascribe.sessions import check_sequences
        >>> problems = check_sequences([[7, 1, 2]], [[0, 1, 1]], token_rewards=[[1.0, 0.0, 0.0]])
        >>> problems[0].detail
        'sequence 0 has a reward on a token with mask 0'
    """
    batch = _batch(tokens, mask, attention_mask)
    runs = _runs(batch, np.zeros(batch.lengths.size, dtype=np.int64))
    affected: dict[ProblemKind, tuple[str, Ints]] = {}
    if decode is not None:
        texts = _texts(batch, runs.start, runs.end, decode)
        marked = [bool(TURN_MARKS.search(text)) for text in texts.values]
        inside = np.array(marked, dtype=np.bool_)[texts.codes]
        detail = "has mask 1 on what stands between two turns"
        affected[ProblemKind.OBSERVATION_IN_MASK] = detail, runs.sequence[inside]
    if token_rewards is not None:
        rewards, _ = _flat("token_rewards", token_rewards, np.dtype(np.float64), batch.lengths)
        written, _ = _flat("mask", mask, np.dtype(np.bool_), batch.lengths)
        sequence = np.repeat(np.arange(batch.lengths.size), batch.lengths)
        detail = "has a reward on a token with mask 0"
        affected[ProblemKind.REWARD_OFF_MASK] = detail, sequence[(rewards != 0) & ~written]
    if ends is not None:
        open_ended = ~np.isin(batch.ids[runs.end - 1], np.asarray(ends))
        cut = open_ended & (runs.end == batch.starts[runs.sequence + 1])
        affected[ProblemKind.CUT_RESPONSE] = "was cut inside a turn", runs.sequence[cut]
    problems = []
    for kind, (detail, sequences) in affected.items():
        numbers = np.unique(sequences)
        if numbers.size:
            more = f" and {numbers.size - 3:,} more" if numbers.size > 3 else ""
            names = ", ".join(map(str, numbers[:3].tolist())) + more
            problems.append(Problem(kind, f"sequence {names} {detail}", numbers, numbers.size))
    return problems
