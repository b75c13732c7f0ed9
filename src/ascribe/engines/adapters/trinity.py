"""Trinity-RFT: an advantage function by its path in the config.

::

    algorithm:
      algorithm_type: multi_step_grpo
      advantage_fn: ascribe.engines.adapters.trinity.AscribeAdvantage
      advantage_fn_args: {recipe: sbc}

A batch is a list of ``Experience``: one for each step of a run, or one for a whole run with a mask.
Actions and states come from the messages of experiences that have them, otherwise from tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from ascribe.engines import training_recipe
from ascribe.engines.adapters import ExampleEpisode, check_state, stateless
from ascribe.engines.crediting import credit_steps, say_once
from ascribe.engines.options import Options
from ascribe.estimators import DEFAULT
from ascribe.sessions import Conversation, Decoder, State, from_messages, from_sequences
from ascribe.steps.arrays import Floats
from ascribe.steps.errors import InputError
from ascribe.steps.table import StepTable

OPTIONS = (
    Options(
        source="trinity.common.config.AlgorithmConfig, which an advantage function is not given",
        prefix="algorithm.",
        applied={
            "algorithm_type": "one that computes advantages in the trainer is refused at the first "
            "batch",
            "policy_loss_fn": "takes the advantages of tokens; sft, sft_is, sft_phi and dpo take "
            "none",
            "loss_agg_mode": "means over sequences count experiences, and runs of several more "
            "often",
            "rollout_correction": "weighs or masks tokens in the loss",
            "sample_strategy": "experiences of experts have no advantages",
        },
        no_effect={
            "kl_penalty_fn": "Trinity subtracts it where it computes advantages in the trainer",
            "kl_penalty_fn_args": "as kl_penalty_fn",
        },
        untouched=(
            *("repeat_times", "optimizer", "sample_strategy_args", "advantage_fn"),
            *("advantage_fn_args", "policy_loss_fn_args", "kl_loss_fn", "kl_loss_fn_args"),
            *("entropy_loss_fn", "entropy_loss_fn_args", "enable_router_replay"),
            "bypass_old_logprobs",
        ),
    ),
    Options(
        source="trinity.common.config.ExperiencePipelineConfig",
        prefix="data_processor.experience_pipeline.",
        applied={"operators": "change rewards, or drop experiences, before credit"},
        untouched=("save_input", "input_save_path", "inputs", "output"),
    ),
)
"""What becomes of Trinity's options."""

Places: TypeAlias = list[tuple[int, int, int, int]]
"""Row of the table, place in the batch, and where its tokens begin and end in the response."""


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

    def __post_init__(self) -> None:
        check_state(self.state)

    def steps(self, batch: Sequence[Any]) -> tuple[StepTable, Places]:
        """One row for each message that the model wrote, in the order of runs and of their steps.

        Without messages, an experience with ``response_text`` is a step, and of others each run of
        ones in the action mask.
        """
        order = sorted(range(len(batch)), key=lambda i: (batch[i].eid.rid, batch[i].eid.step))
        ordered = [batch[i] for i in order]
        if (found := self._by_messages(order, ordered)) is not None:
            return found
        rewarded = {each.eid.rid for each in batch if self.reward_key in each.info}
        last = {each.eid.rid: number for number, each in enumerate(ordered)}
        rewards = []
        for number, each in enumerate(ordered):
            own = _reward(each) if last[each.eid.rid] == number else 0.0
            own = each.info.get(self.reward_key, 0.0) if each.eid.rid in rewarded else own
            rewards.append(np.append(np.zeros(len(each.tokens) - 1), own))
        keyed = bool(batch) and all(self.state_key in each.info for each in batch)
        cut = {each.eid.rid for each in batch if _is_cut(each)}
        table, spans = from_sequences(
            [each.tokens for each in ordered],
            [np.pad(_written(e), (len(e.tokens) - len(e.action_mask), 0)) for e in ordered],
            group=[each.eid.tid for each in ordered],
            trajectory=[each.eid.run for each in ordered],
            token_rewards=rewards,
            truncated=[each.eid.rid in cut for each in ordered],
            decode=self.decode,
            state="key" if keyed else self.state,
            keys=[[str(e.info[self.state_key])] for e in ordered] if keyed else None,
            forks=False,
        )
        before = [len(each.tokens) - len(each.action_mask) for each in ordered]
        ranges = zip(spans.sequence.tolist(), spans.start, spans.end, strict=True)
        return table, [
            (row, order[at], int(start) - before[at], int(end) - before[at])
            for row, (at, start, end) in enumerate(ranges)
            if start < end
        ]

    def _by_messages(
        self, order: Sequence[int], ordered: Sequence[Any]
    ) -> tuple[StepTable, Places] | None:
        """The same from messages; None if not every run is one experience that has them.

        Masks may lack the first turns (Trinity's, for templates that drop old thoughts), or the
        last ones of a response that was cut. One with more runs than messages tells no turns.
        """
        alone = len({each.eid.rid for each in ordered}) == len(ordered) > 0
        if not alone or not all(e.messages and e.response_text is None for e in ordered):
            return None
        chats, places, rows = [], [], 0
        for at, each in zip(order, ordered, strict=True):
            chat = Conversation(
                group=each.eid.tid,
                trajectory=str(each.eid.run),
                messages=each.messages,
                reward=_reward(each),
                truncated=_is_cut(each),
            )
            runs = _runs(each.action_mask)
            missing = len(chat.steps) - len(runs)
            if missing < 0 or not chat.steps:
                return None
            first = rows + (0 if each.truncate_status == "response_truncated" else missing)
            places += [(first + turn, at, *ends) for turn, ends in enumerate(runs)]
            chats.append(chat)
            rows += len(chat.steps)
        try:
            return from_messages(chats, state=self.state), places
        except ValueError as error:  # such as a part of a message that is not read
            say_once(f"turns are read from tokens, and not from messages: {error}")
            return None

    def put(self, batch: Sequence[Any], places: Places, advantages: Floats) -> Any:
        """The experiences with ``advantages`` and ``returns``."""
        import torch

        for each in batch:
            each.advantages = torch.zeros(len(each.action_mask))
        for row, place, start, end in places:
            batch[place].advantages[start:end] = float(advantages[row])
        for each in batch:
            each.advantages *= each.action_mask
            each.returns = each.advantages.clone()
        return batch

    def example(self, episodes: Sequence[ExampleEpisode]) -> list[Any]:
        """One experience for each episode; a run that failed gives none."""
        from trinity.common.experience import EID, Experience

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

    def advantages(self, result: Sequence[Any]) -> list[Sequence[float]]:
        """The advantages on each response."""
        return [each.advantages.tolist() for each in result]


def _reward(experience: Any) -> float:
    return float("nan") if experience.reward is None else float(experience.reward)


def _is_cut(experience: Any) -> bool:
    return bool(experience.truncate_status or experience.info.get("truncated"))


def _written(experience: Any) -> Any:
    """1 where the model wrote a token of the response; one of a single turn may be masked."""
    single = experience.response_text is not None
    if single and experience.truncate_status != "prompt_truncated":
        return np.ones(len(experience.action_mask), dtype=np.bool_)
    return experience.action_mask


def _runs(mask: Any) -> list[tuple[int, int]]:
    """Where the runs of ones begin and end."""
    edges = np.diff(np.pad(np.asarray(mask) != 0, 1).astype(np.int8))
    starts, ends = np.flatnonzero(edges == 1).tolist(), np.flatnonzero(edges == -1).tolist()
    return list(zip(starts, ends, strict=True))


@cache
def _advantage_fn() -> Any:
    """``AscribeAdvantage``: Trinity's advantage function; it needs Trinity for its bases."""
    from trinity.algorithm.advantage_fn.advantage_fn import AdvantageFn
    from trinity.buffer.operators import ExperienceOperator

    class AscribeAdvantage(AdvantageFn, ExperienceOperator):  # type: ignore[misc]
        """Trinity's advantage function; its arguments are a recipe and the adapter's options."""

        def __init__(
            self, recipe: str = DEFAULT, preset: str | None = None, **options: Any
        ) -> None:
            self.recipe = stateless(training_recipe(recipe, preset))
            self.adapter = TrinityAdapter(**options)

        def __call__(self, exps: Any, **_: Any) -> Any:
            """The experiences with advantages, and metrics."""
            if not isinstance(exps, list):
                what = "this algorithm_type computes advantages from tensors without turns"
                raise InputError(what, hint="choose another one, such as multi_step_grpo")
            if not exps:
                return exps, {}
            table, places = self.adapter.steps(exps)
            credited = credit_steps(table, self.recipe)
            exps = self.adapter.put(exps, places, credited.advantage)
            learned = {row for row, at, i, j in places if exps[at].action_mask[i:j].any()}
            return exps, {
                "ascribe/signal": float(credited.signal.mean()) if len(credited.table) else 0.0,
                "ascribe/dropped_groups": len(credited.dropped),
                "ascribe/masked_turns": len(table) - len(learned),
            }

        process = __call__

        compute_in_trainer = classmethod(lambda _: False)  # but before the trainer splits the batch
        default_args = classmethod(lambda _: {"recipe": DEFAULT})

    AscribeAdvantage.__qualname__ = "AscribeAdvantage"
    return AscribeAdvantage


def __getattr__(name: str) -> Any:
    if name == "AscribeAdvantage":
        return _advantage_fn()
    raise AttributeError(name)
