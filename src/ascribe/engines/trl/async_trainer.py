"""``AscribeAsyncTrainer``: TRL's asynchronous GRPO trainer, with an advantage for each turn.

::

    trainer = AscribeAsyncTrainer(       # in place of AsyncGRPOTrainer, with the same arguments
        "Qwen/Qwen3-4B", reward_funcs, args, train_dataset, environment_factory=Game,
        recipe="gigpo",                  # a name, or recipe("sbc", gamma=0.9)
    )

TRL plays sessions in a process of its own, by its own loop or by a harness over HTTP
(``rollout_worker=HarnessRolloutWorker(...)``). The process scores a group when its last session has
ended; there the recipe credits the turns of the group. What a turn was shown and did is read from
the messages of its session.

Where the tokens of its turns stand is another matter. TRL renders the whole chat before each turn.
Where that changes tokens that the model wrote, TRL overwrites them as context (mask 0), or begins
another row; and a harness may mask tokens of a response. A turn may so have one run of ones in the
mask, several or none. ``RowBuilder`` keeps where each turn begins.

A sample of TRL has one advantage: ``RowAdvantage`` is that number, and carries those of the tokens
to the batch. TRL's loss is the mean over tokens, so one row or several make the same update.

Page: docs/engines/trl_async.md. Private names of TRL: ``PRIVATE``.
"""

import queue
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from trl.experimental.async_grpo import AsyncGRPOTrainer, async_rollout_worker
from trl.experimental.async_grpo.async_rollout_worker import AsyncRolloutWorker, TrainingSequence

from ascribe.engines import training_recipe
from ascribe.engines.crediting import with_first_tokens
from ascribe.engines.inputs import missing_columns, refuse_unknown, uncompared
from ascribe.engines.metrics import credit_metrics
from ascribe.engines.trl.trainer import check_trl, refuse_state
from ascribe.engines.trl.turns import conversation, credit_rewarded, from_chats
from ascribe.engines.versions import SampledVersions
from ascribe.estimators import DEFAULT, Recipe
from ascribe.sessions import Conversation, Spans, State, from_sequences, spread
from ascribe.sessions.endings import end_tokens, is_truncated
from ascribe.sessions.spans import turn_starts
from ascribe.steps.arrays import Floats
from ascribe.steps.errors import InputError
from ascribe.steps.select import OnProblem
from ascribe.steps.table import Coded, StepTable

PRIVATE: dict[str, tuple[str, ...]] = {"_loop_cls": (), "_score_group": ("group",)}
"""Of TRL's rollout worker, and of the class that plays in its process."""

OF_ROWS: dict[str, tuple[str, ...]] = {
    "append_turn": ("turn", "kind"),
    "has_trained_token": (),
    "to_training_sequence": ("rollout_id",),
}
"""Of ``_SampleBuilder``, the class in TRL's ``async_rollout_worker`` that makes rows."""


class RowAdvantage(float):
    """The mean advantage of the tokens of a row, which TRL logs, with that of each token."""

    tokens: Floats
    session: str
    versions: tuple[int, int]
    """Of the policy, when the group was begun and when it was scored."""


class AscribeAsyncTrainer(AsyncGRPOTrainer):  # type: ignore[misc]
    """AsyncGRPOTrainer whose advantages are those of a recipe, one for each turn.

    All arguments of AsyncGRPOTrainer are taken, and mean what they mean there.

    Args:
        arguments: of AsyncGRPOTrainer.
        recipe: how turns are credited: a recipe, or the name of one.
        state: what the state of a turn is: the last ``observation``, the ``tool`` result, or the
            whole ``history``.
        check: what to do about turns that cannot be credited: ``raise``, ``drop`` or ``keep``.
        options: of AsyncGRPOTrainer.

    The reward of a session is that of TRL, at its last turn. States and actions are read from the
    messages of the sessions if these have a message for each turn, and otherwise from tokens.

    Raises:
        ValueError: for a recipe that needs more than one group, or a column that TRL does not give;
            for a rollout worker whose process Ascribe does not reach.
        ImportError: for a release of TRL that lacks a name in ``PRIVATE``.
    """

    def __init__(
        self,
        *arguments: Any,
        recipe: Recipe | str = DEFAULT,
        state: State = "observation",
        check: OnProblem = "drop",
        **options: Any,
    ) -> None:
        refuse_state(state)
        refuse_unknown("check", check, OnProblem)
        self.recipe = training_recipe(recipe)
        _refuse_unsupported(self.recipe, state)
        super().__init__(*arguments, **options)
        if problem := uncompared(self.recipe, self.args.num_generations):
            raise InputError(f"num_generations: {problem}")
        worker = self.rollout_worker  # None in all processes but the first
        if worker is None:
            return
        if not isinstance(worker, AsyncRolloutWorker):
            raise InputError(
                f"rollout_worker: {type(worker).__name__} is no AsyncRolloutWorker, whose loop "
                "Ascribe extends",
                hint="pass one, such as HarnessRolloutWorker, or leave it to TRL",
            )
        kind = getattr(worker, "_loop_cls", None)
        check_trl(worker, PRIVATE, kind)  # type: ignore[arg-type]
        check_trl(RowBuilder.__base__, OF_ROWS, RowBuilder.__base__)
        # Called in the process that the worker spawns, so it is pickled.
        worker._loop_cls = partial(crediting_loop, kind, Crediting(self.recipe, state, check))

    def get_train_dataloader(self) -> Any:
        """As AsyncGRPOTrainer's, with the advantage of each token in the batch."""
        loader = super().get_train_dataloader()
        inner = loader.base_dataloader
        inner.collate_fn = partial(self._collate, inner.collate_fn)
        return loader

    def _collate(self, collate: Any, examples: list[Any]) -> Any:
        batch = collate(examples)
        samples = [getattr(row, "samples", row) for row in examples[0]]  # of each rank
        for values, mine in zip(batch["advantages"], samples, strict=True):
            tokens = np.concatenate([each["advantage"].tokens for each in mine])
            if "token_index" in batch:  # since TRL 1.16: the tokens in the loss alone
                in_loss = [np.append(0, each["completion_mask"][1:]) for each in mine]
                tokens = tokens[np.concatenate(in_loss) != 0]
            values[: tokens.size] = torch.from_numpy(tokens)
        every = [each for mine in samples for each in mine]
        sampled = SampledVersions.of(
            [each["group_id"] for each in every],
            [each["advantage"].session for each in every],
            [each["advantage"].versions for each in every],
            self.model_version,
        )
        for name, value in sampled.metrics().items():
            collate.metrics[name].append(value)
        return batch


def _refuse_unsupported(recipe: Recipe, state: State) -> None:
    """Raise ValueError for what cannot be had where single groups are scored, without a model."""
    if state == "key":
        raise InputError("state='key': TRL's rollouts have no keys", hint="use observation or tool")
    if problem := missing_columns(recipe, "AsyncGRPOTrainer", ()):
        raise InputError(problem)
    if recipe.has_history:
        raise InputError(
            f"{recipe.name} carries state from one iteration to the next (running statistics, or "
            "a memory), and AsyncGRPOTrainer scores single groups",
            hint="use AscribeTrainer, or leave memory out",
        )
    # With scale="equal" the size of advantages is that of grpo in each group, not over a batch.
    if not recipe.compares_inside:
        raise InputError(
            f"{recipe.name} compares the groups of a batch, and AsyncGRPOTrainer scores each "
            "group by itself as soon as it has ended",
            hint="choose a recipe that compares inside a group",
        )
    if getattr(recipe, "fingerprint", None) == "given" and not hasattr(recipe, "states"):
        raise InputError(
            f"{recipe.name} compares states by fingerprints of the policy, and the process that "
            "scores rollouts has no policy",
            hint="use fingerprint='ngram', sbc or gigpo",
        )


# In the rollout process.


class RowBuilder(getattr(async_rollout_worker, "_SampleBuilder", object)):  # type: ignore[misc]
    """TRL's builder of a row, which keeps where each turn begins and what the model wrote there.

    A row that nothing is learned from is kept, too: its turns are turns of the session.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.turns: list[tuple[int, list[int]]] = []

    def append_turn(self, turn: Any, kind: Any) -> None:
        """As TRL's; a row begins with the prompt of each of its turns."""
        super().append_turn(turn, kind)
        self.turns.append((len(turn.prompt_ids), turn.output_ids))

    def has_trained_token(self) -> bool:
        """Whether the row is kept."""
        return True

    def to_training_sequence(self, rollout_id: str) -> Any:
        """As TRL's, with the turns."""
        row = super().to_training_sequence(rollout_id)
        row.turns = self.turns
        return row


# All of TRL's loops make their rows by this name.
async_rollout_worker._SampleBuilder = RowBuilder


class TurnTokens(NamedTuple):
    """Where a turn stands."""

    row: int
    start: int
    end: int
    """After its last token that is learned from; ``start`` if there is none."""
    output: Sequence[int] = ()
    """What the model wrote."""
    whole: bool = True
    """Whether all of it is learned from."""


def turns_of(number: int, row: Any) -> Iterator[TurnTokens]:
    """The turns of a row; in one that TRL did not make, a run of ones is a turn."""
    mask = np.asarray(row.completion_mask)
    noted = getattr(row, "turns", None)
    starts = turn_starts(mask).tolist() if noted is None else [start for start, _ in noted]
    for place, (start, stop) in enumerate(pairwise([*starts, mask.size])):
        learned = np.flatnonzero(mask[start:stop])
        end = start + int(learned[-1]) + 1 if learned.size else start
        output = row.input_ids[start:end] if noted is None else noted[place][1]
        yield TurnTokens(number, start, end, output, whole=learned.size == len(output))


@dataclass(frozen=True)
class PlayedSession:
    """A session of a group."""

    chat: Conversation
    rows: range
    """Their numbers in the group."""
    turns: list[TurnTokens]


def sessions_of(loop: Any, group: Any) -> Iterator[PlayedSession]:
    """The sessions of a group that TRL has not scored yet."""
    ends = end_tokens(loop.tokenizer) | {loop.tokenizer.pad_token_id}
    ends |= {*getattr(loop, "eos_token_ids", ())}  # since TRL 1.15
    first, messages = 0, zip(group.prompts, group.completions, strict=True)
    for number, ((prompt, said), rows) in enumerate(
        zip(messages, group.completions_sequences, strict=True)
    ):
        numbers = range(first, first + len(rows))
        first += len(rows)
        pairs = zip(numbers, rows, strict=True)
        turns = [turn for place, row in pairs for turn in turns_of(place, row)]
        output = turns[-1].output if turns else ()
        last = said[-1] if said else {}
        # Whether it ended with a call, or with the result of one.
        unanswered = bool(last.get("tool_calls")) or last.get("role") == "tool"
        chat = conversation(
            prompt,
            said,
            group=str(group.group_id),
            trajectory=str(number),
            truncated=is_truncated(output, [1] * len(output), ends, unanswered=unanswered),
        )
        yield PlayedSession(chat, numbers, turns)


def crediting_loop(kind: Any, credit: "Crediting", *, metrics_queue: Any, **options: Any) -> Any:
    """A loop of TRL's kind that credits the groups it scores."""
    loop = kind(metrics_queue=metrics_queue, **options)
    loop._score_group = partial(credit.score, loop, loop._score_group, metrics_queue)
    return loop


@dataclass(frozen=True)
class Crediting:
    """Credits the turns of a group that TRL has scored."""

    recipe: Recipe
    state: State
    check: OnProblem

    async def score(self, loop: Any, score: Any, metrics: Any, group: Any) -> list[Any]:
        """The samples of TRL, with the advantages of their turns.

        Args:
            loop: of TRL.
            score: its own method.
            metrics: the queue of metrics for the trainer.
            group: the sessions of a prompt.
        """
        # A session without a token to learn from has a reward, which counts in the baseline.
        nothing = TrainingSequence([], [], [], "")
        group.completions_sequences = [rows or [nothing] for rows in group.completions_sequences]
        # Now, for reward functions get these messages too, and may change them.
        sessions = list(sessions_of(loop, group))
        turns = [turn for each in sessions for turn in each.turns]
        counts = [len(each.turns) for each in sessions]
        table = from_chats([each.chat for each in sessions], counts, self.state)
        from_tokens = len(turns) * (table is None)
        samples = await score(group)
        if table is None:
            table, spans = self._from_tokens(loop, sessions, samples)
        else:
            table, spans = self._placed(table, sessions, samples)
        credited, advantage = credit_rewarded(table, self.recipe, self.check)
        shares = {
            "ascribe/from_tokens_share": (from_tokens, len(turns)),
            "ascribe/realigned_share": (sum(not turn.whole for turn in turns), len(turns)),
        }
        with suppress(queue.Full):  # as TRL: metrics never hold up rollouts
            metrics.put_nowait({**credit_metrics(credited), **shares})
        of_tokens = spread(advantage, spans, like=np.zeros(0, dtype=np.float32))
        # A response that two rows of a session hold is learned from in the first.
        own = spread(np.ones(len(table)), spans)
        names = [each.chat.trajectory for each in sessions for _ in each.rows]
        for number, each in enumerate(samples):
            learned = (own[number] > 0) & (np.asarray(each.completion_mask) > 0)
            each.completion_mask = learned.astype(np.int64)
            values = of_tokens[number][learned]
            each.advantage = RowAdvantage(values.mean() if values.size else 0.0)
            each.advantage.tokens = of_tokens[number] * learned
            each.advantage.session = f"{group.group_id}/{names[number]}"
            each.advantage.versions = (group.model_version, loop.model_version)
        return [each for each in samples if each.completion_mask.any()]

    def _placed(
        self, table: StepTable, sessions: list[PlayedSession], samples: list[Any]
    ) -> tuple[StepTable, Spans]:
        """The steps of the messages with the rewards of their sessions, and where they stand."""
        reward = table.reward.copy()
        last = [samples[each.rows[0]].metrics["reward"] for each in sessions]
        reward[np.isnan(reward)] = last  # at the last step of each
        places = [
            turn
            for each in sessions
            for turn in each.turns or [TurnTokens(each.rows[0], 0, 0)] * len(each.chat.steps)
        ]
        row, start, end = np.array([turn[:3] for turn in places], dtype=np.int64).T
        lengths = np.array([len(each.input_ids) for each in samples])
        counts = np.bincount(row, minlength=lengths.size)
        numbers = np.arange(row.size) - np.searchsorted(row, row)
        spans = Spans(row, start, end, start, numbers, lengths, counts)
        outputs = [turn.output for turn in places]
        sizes = np.array(list(map(len, outputs)))
        whole = replace(spans, sequence=np.arange(row.size), start=np.zeros_like(row), end=sizes)
        table = with_first_tokens(replace(table, reward=reward), whole, outputs, self.recipe)
        return table, spans

    def _from_tokens(
        self, loop: Any, sessions: list[PlayedSession], samples: list[Any]
    ) -> tuple[StepTable, Spans]:
        """The steps as the tokens of the rows have them, and where they stand."""
        chats = [each.chat for each in sessions for _ in each.rows]
        tokens = [each.input_ids for each in samples]
        masks = [np.zeros(len(ids), dtype=np.bool_) for ids in tokens]
        outputs = {}
        for turn in (turn for each in sessions for turn in each.turns):
            masks[turn.row][turn.start : max(turn.end, turn.start + 1)] = True
            outputs[turn.row, turn.start] = list(turn.output)
        decode = loop.tokenizer.decode
        table, spans = from_sequences(
            tokens,
            masks,
            group=[chat.group for chat in chats],
            trajectory=[chat.trajectory for chat in chats],
            reward=[each.metrics["reward"] for each in samples],
            decode=decode,
            state=self.state,
            truncated=[chat.truncated for chat in chats],
        )
        places = zip(spans.sequence.tolist(), spans.start.tolist(), strict=True)
        texts = zip(map(outputs.get, places), table.action.texts(), strict=True)
        # What the model wrote, of which the row may have a part.
        action = Coded.encode([text if ids is None else decode(ids) for ids, text in texts])
        table = replace(table, action=action)
        return with_first_tokens(table, spans, tokens, self.recipe), spans
