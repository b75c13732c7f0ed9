"""``AscribeAsyncTrainer``: TRL's asynchronous GRPO trainer, with an advantage for each turn.

::

    trainer = AscribeAsyncTrainer(       # in place of AsyncGRPOTrainer, with the same arguments
        "Qwen/Qwen3-4B", reward_funcs, args, train_dataset, environment_factory=Game,
        recipe="gigpo",                  # a name, or recipe("sbc", gamma=0.9)
    )

TRL plays sessions in a process of its own, by its own loop or by a harness over HTTP
(``rollout_worker=HarnessRolloutWorker(...)``). A session becomes several rows where its tokens
drift or its context is compacted. The process scores a group when its last session has ended; there
the recipe credits the turns of the group, with all rows of a session as one trajectory. A sample of
TRL has one advantage: ``RowAdvantage`` is that number, and carries those of the tokens to the
batch. TRL's loss is the mean over tokens, so one row or several make the same update.

Page: docs/engines/trl.md. Private names of TRL: ``PRIVATE``.
"""

import queue
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from trl.experimental.async_grpo import AsyncGRPOTrainer
from trl.experimental.async_grpo.async_rollout_worker import AsyncRolloutWorker, TrainingSequence

from ascribe.engines import training_recipe
from ascribe.engines.crediting import credit_steps, with_first_tokens
from ascribe.engines.inputs import missing_columns, refuse_unknown, uncompared
from ascribe.engines.metrics import credit_metrics
from ascribe.engines.trl.shares import have_rewards
from ascribe.engines.trl.trainer import check_trl
from ascribe.engines.versions import SampledVersions
from ascribe.estimators import DEFAULT, Recipe
from ascribe.sessions import Conversation, State, from_messages, from_sequences, spread
from ascribe.sessions.endings import end_tokens, is_truncated
from ascribe.sessions.spans import turn_starts
from ascribe.steps.arrays import Floats
from ascribe.steps.select import OnProblem

PRIVATE: dict[str, tuple[str, ...]] = {"_loop_cls": (), "_score_group": ("group",)}
"""Of TRL's rollout worker, and of the class that plays in its process."""


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

    The reward of a session is that of TRL, at its last turn. States are read from the messages of
    the sessions if these have a message for each turn, and otherwise from the tokens of the rows.

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
        refuse_unknown("state", state, State)
        refuse_unknown("check", check, OnProblem)
        self.recipe = training_recipe(recipe)
        _refuse_unsupported(self.recipe, state)
        super().__init__(*arguments, **options)
        if problem := uncompared(self.recipe, self.args.num_generations):
            raise ValueError(f"num_generations: {problem}")
        worker = self.rollout_worker  # None in all processes but the first
        if worker is None:
            return
        if not isinstance(worker, AsyncRolloutWorker):
            raise ValueError(
                f"rollout_worker: {type(worker).__name__} is no AsyncRolloutWorker, whose loop "
                "Ascribe extends; pass one, such as HarnessRolloutWorker, or leave it to TRL"
            )
        kind = getattr(worker, "_loop_cls", None)
        check_trl(worker, PRIVATE, kind)  # type: ignore[arg-type]
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
        raise ValueError("state='key': TRL's rollouts have no keys; use observation or tool")
    if problem := missing_columns(recipe, "AsyncGRPOTrainer", ()):
        raise ValueError(problem)
    if recipe.has_history:
        raise ValueError(
            f"{recipe.name} carries state from one iteration to the next (running statistics, or a "
            "memory), and AsyncGRPOTrainer scores single groups; use AscribeTrainer, or leave "
            "memory out"
        )
    # With scale="equal" the size of advantages is that of grpo in each group, not over a batch.
    if not recipe.by_group_with_pool:
        raise ValueError(
            f"{recipe.name} compares the groups of a batch, and AsyncGRPOTrainer scores each group "
            "by itself as soon as it has ended; choose a recipe that compares inside a group"
        )
    if getattr(recipe, "fingerprint", None) == "given" and not hasattr(recipe, "states"):
        raise ValueError(
            f"{recipe.name} compares states by fingerprints of the policy, and the process that "
            "scores rollouts has no policy; use fingerprint='ngram', sbc or gigpo"
        )


# In the rollout process.


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
        sessions = [n for n, rows in enumerate(group.completions_sequences) for _ in rows]
        samples = await score(group)
        tokens, masks = [each.input_ids for each in samples], [s.completion_mask for s in samples]
        keys = self._states(group, sessions, masks)
        ends = end_tokens(loop.tokenizer) | {loop.tokenizer.pad_token_id}
        ends |= {*getattr(loop, "eos_token_ids", ())}  # since TRL 1.15
        table, spans = from_sequences(
            tokens,
            masks,
            group=[group.group_id] * len(samples),
            trajectory=sessions,
            reward=[each.metrics["reward"] for each in samples],
            decode=loop.tokenizer.decode,
            state=self.state if keys is None else "key",
            keys=keys,
            truncated=[
                is_truncated(ids, mask, ends, unanswered=_is_unanswered(each.completion))
                for ids, mask, each in zip(tokens, masks, samples, strict=True)
            ],
        )
        table = with_first_tokens(table, spans, tokens, self.recipe)
        scored = have_rewards(table)
        credited = credit_steps(table.take(scored), self.recipe, self.check)
        advantage = np.zeros(len(table))
        advantage[scored] = credited.advantage
        with suppress(queue.Full):  # as TRL: metrics never hold up rollouts
            metrics.put_nowait(credit_metrics(credited))
        of_tokens = spread(advantage, spans, like=np.zeros(0, dtype=np.float32))
        # A response that two rows of a session hold is learned from in the first.
        own = spread(np.ones(len(table)), spans)
        for number, each in enumerate(samples):
            each.completion_mask = own[number].astype(np.int64)
            values = of_tokens[number][own[number] > 0]
            each.advantage = RowAdvantage(values.mean() if values.size else 0.0)
            each.advantage.tokens = of_tokens[number]
            each.advantage.session = f"{group.group_id}/{sessions[number]}"
            each.advantage.versions = (group.model_version, loop.model_version)
        return [each for each in samples if each.completion_mask.any()]

    def _states(self, group: Any, sessions: list[int], masks: list[Any]) -> list[Any] | None:
        """The state of each turn of each row; None if messages and turns do not correspond."""
        turns = [turn_starts(mask).size for mask in masks]
        chats = [
            Conversation(
                group="", trajectory=str(number), messages=[*prompt, *said], context=len(prompt)
            )
            for number, (prompt, said) in enumerate(
                zip(group.prompts, group.completions, strict=True)
            )
        ]
        if [len(chat.steps) for chat in chats] != np.bincount(sessions, turns).tolist():
            return None
        try:
            states = from_messages(chats, state=self.state).state.texts()
        except ValueError:  # messages of a harness may be of another form
            return None
        return [states[i:j] for i, j in pairwise([0, *np.cumsum(turns).tolist()])]


def _is_unanswered(completion: list[Any]) -> bool:
    """Whether a session ended with a call, or with the result of one."""
    last = completion[-1] if completion else {}
    return bool(last.get("tool_calls")) or last.get("role") == "tool"
