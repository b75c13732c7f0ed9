"""Trinity-RFT: an advantage function by its path in the config.

::

    algorithm:
      algorithm_type: multi_step_grpo
      advantage_fn: ascribe.engines.adapters.trinity.AscribeAdvantage
      advantage_fn_args: {recipe: sbc}

A batch is a list of ``Experience``: one for each step of a run, or one for a whole run with a mask.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from trinity.algorithm.advantage_fn.advantage_fn import AdvantageFn
from trinity.buffer.operators import ExperienceOperator
from trinity.common.experience import EID, Experience

from ascribe.engines import training_recipe
from ascribe.engines.adapters import ExampleEpisode, credit_batch, stateless
from ascribe.estimators import DEFAULT
from ascribe.sessions import Decoder, Spans, State, from_sequences, spread
from ascribe.steps.arrays import Floats
from ascribe.steps.table import StepTable


@dataclass(frozen=True)
class TrinityAdapter:
    """Experiences to steps, and advantages onto the tokens of their responses."""

    decode: Decoder | None = None
    """Token ids to text; without it texts are the ids themselves."""
    state: State = "observation"
    """What counts as the state of a step, if the experiences name none."""
    state_key: str = "env_state_hash"
    """The field of ``info`` that names the state before a step, as for Trinity's GiGPO."""
    reward_key: str = "step_reward"
    """The field with a step's reward; without it the last experience has that of the run."""

    def steps(self, batch: Sequence[Experience]) -> tuple[StepTable, tuple[list[int], Spans]]:
        """One row for each run of ones in an action mask, by the steps of the experiences."""
        order = sorted(range(len(batch)), key=lambda i: (batch[i].eid.rid, batch[i].eid.step))
        ordered = [batch[i] for i in order]
        rewarded = {each.eid.rid for each in batch if self.reward_key in each.info}
        last = {each.eid.rid: number for number, each in enumerate(ordered)}
        rewards = []
        for number, each in enumerate(ordered):
            final = np.nan if each.reward is None else each.reward
            own = final if last[each.eid.rid] == number else 0.0
            own = each.info.get(self.reward_key, 0.0) if each.eid.rid in rewarded else own
            rewards.append(np.append(np.zeros(len(each.tokens) - 1), own))
        keyed = all(self.state_key in each.info for each in batch)
        cut = {e.eid.rid for e in batch if e.truncate_status or e.info.get("truncated")}
        table, spans = from_sequences(
            [each.tokens for each in ordered],
            [np.pad(e.action_mask, (len(e.tokens) - len(e.action_mask), 0)) for e in ordered],
            group=[each.eid.tid for each in ordered],
            trajectory=[each.eid.run for each in ordered],
            token_rewards=rewards,
            truncated=[each.eid.rid in cut for each in ordered],
            decode=self.decode,
            state="key" if keyed else self.state,
            keys=[[str(e.info[self.state_key])] for e in ordered] if keyed else None,
            forks=False,
        )
        return table, (order, spans)

    def put(self, batch: Sequence[Experience], places: Any, advantages: Floats) -> Any:
        """The experiences with ``advantages`` and ``returns``."""
        order, spans = places
        tokens = spread(advantages, spans, like=torch.empty(0))
        for place, values in zip(order, tokens, strict=True):
            each = batch[place]
            each.advantages = values[len(values) - len(each.action_mask) :].clone()
            each.returns = each.advantages.clone()
        return batch

    def example(self, episodes: Sequence[ExampleEpisode]) -> list[Experience]:
        """One experience for each episode; a run that failed gives none."""
        return [
            Experience(
                eid=EID(batch=0, task=episode.group, run=run),
                tokens=episode.tokens,
                prompt_length=len(episode.turns[0][0]),
                action_mask=episode.mask[len(episode.turns[0][0]) :],
                logprobs=[-0.5] * (len(episode.tokens) - len(episode.turns[0][0])),
                reward=episode.reward,
                info={"truncated": episode.truncated},
            )
            for run, episode in enumerate(episodes)
            if not episode.failed
        ]

    def advantages(self, result: Sequence[Experience]) -> list[Sequence[float]]:
        """The advantages on each response."""
        return [each.advantages.tolist() for each in result]


class AscribeAdvantage(AdvantageFn, ExperienceOperator):  # type: ignore[misc]
    """Trinity's advantage function; its arguments are a recipe and the adapter's options."""

    def __init__(self, recipe: str = DEFAULT, preset: str | None = None, **options: Any) -> None:
        self.recipe = stateless(training_recipe(recipe, preset))
        self.adapter = TrinityAdapter(**options)

    def __call__(self, exps: Any, **_: Any) -> Any:
        """The experiences with advantages, and the share of steps with one other than 0."""
        exps, credited = credit_batch(self.adapter, exps, self.recipe)
        return exps, {"ascribe/signal": float(credited.signal.mean())}

    process = __call__

    compute_in_trainer = classmethod(lambda _: False)  # but before the trainer splits the batch
    default_args = classmethod(lambda _: {"recipe": DEFAULT})
