"""Tinker cookbook: an advantage for each turn, in place of one for each trajectory.

::

    from tinker_cookbook.rl import train
    from ascribe.engines.adapters.tinker import assemble_with

    train.assemble_training_data = assemble_with("sbc", decode=tokenizer.decode)

A batch is a list of ``TrajectoryGroup``; each transition is a step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ascribe.engines.adapters import ExampleEpisode, credit_batch
from ascribe.estimators import DEFAULT, Recipe
from ascribe.sessions import Decoder
from ascribe.sessions.sequences import START
from ascribe.steps.arrays import Floats
from ascribe.steps.table import StepTable

LIMITS = ("max_", "context_overflow", "rollout_timeout")
"""How the stop reasons begin that are limits."""


@dataclass(frozen=True)
class TinkerAdapter:
    """Trajectory groups to steps, and advantages into the data that the cookbook makes of them."""

    decode: Decoder | None = None
    """Token ids to text; without it texts are the ids themselves."""
    key: Callable[[Any], str] | None = None
    """The state of a transition; by default what its observation adds to the turn before it."""

    def steps(self, batch: Sequence[Any]) -> tuple[StepTable, None]:
        """One row for each transition; a group's final reward is added to the last one's."""
        rows = []
        for number, group in enumerate(batch):
            for member, trajectory in enumerate(group.trajectories_G):
                final = group.final_rewards_G[member]
                cut = str(trajectory.stop_reason or "").startswith(LIMITS)
                before: list[int] = []
                for step, transition in enumerate(trajectory.transitions):
                    last = step == len(trajectory.transitions) - 1
                    shown = [] if self.key else transition.ob.to_ints()
                    new = shown[len(before) :] if shown[: len(before)] == before else shown
                    before = shown + transition.ac.tokens
                    rows.append(
                        {
                            "group": str(number),
                            "trajectory": f"{number}/{member}",
                            "step": step,
                            "state": self.key(transition) if self.key else self._text(new) or START,
                            "action": self._text(transition.ac.tokens),
                            "reward": transition.reward + (final if last else 0.0),
                            "terminated": last and not cut,
                            "truncated": last and cut,
                        }
                    )
        return StepTable.from_columns({name: [row[name] for row in rows] for name in rows[0]}), None

    def _text(self, tokens: list[int]) -> str:
        return self.decode(tokens) if self.decode else " ".join(map(str, tokens))

    def put(self, batch: Sequence[Any], places: None, advantages: Floats) -> Any:  # noqa: ARG002
        """What ``assemble_training_data`` returns: data, and the trajectory of each."""
        import torch
        from tinker import TensorData
        from tinker_cookbook.rl.data_processing import assemble_training_data

        ones = [torch.ones(len(group.trajectories_G)) for group in batch]
        data, metadata = assemble_training_data(batch, ones)
        turns = [t for group in batch for each in group.trajectories_G for t in each.transitions]
        sizes = [len(t.ac.tokens) * (not t.metrics.get("parse_error_masked")) for t in turns]
        values = torch.from_numpy(np.repeat(advantages, sizes)).float()
        written = [datum.loss_fn_inputs["mask"].to_torch() > 0 for datum in data]
        if sum(int(mask.sum()) for mask in written) != len(values):
            raise ValueError("a trajectory begins with a response; give it an observation first")
        for datum, mask in zip(data, written, strict=True):
            own, values = values[: mask.sum()], values[mask.sum() :]
            filled = torch.zeros(len(mask)).masked_scatter(mask, own)
            datum.loss_fn_inputs["advantages"] = TensorData.from_torch(filled)
        return data, metadata

    def example(self, episodes: Sequence[ExampleEpisode]) -> list[Any]:
        """Trajectory groups of the episodes; the cookbook leaves failed ones out."""
        from tinker import ModelInput
        from tinker_cookbook.completers import TokensWithLogprobs
        from tinker_cookbook.rl.types import Trajectory, TrajectoryGroup, Transition

        groups: dict[str, TrajectoryGroup] = {}
        for episode in episodes:
            group = groups.setdefault(episode.group, TrajectoryGroup([], [], []))
            seen: list[int] = []
            turns = []
            for observation, response in episode.turns:
                shown = ModelInput.from_ints([*seen, *observation])
                seen += [*observation, *response]
                action = TokensWithLogprobs(list(response), [-0.5] * len(response))
                turns.append(Transition(shown, action, 0.0, False))
            if not episode.failed:
                stop = "max_turns" if episode.truncated else "completed"
                group.trajectories_G.append(Trajectory(turns, ModelInput.empty(), stop))
                group.final_rewards_G.append(episode.reward)
                group.metrics_G.append({})
        return list(groups.values())

    def advantages(self, result: Any) -> list[Sequence[float]]:
        """The advantages on each datum's targets."""
        return [datum.loss_fn_inputs["advantages"].tolist() for datum in result[0]]


def assemble_with(method: str | Recipe = DEFAULT, **options: Any) -> Callable[..., Any]:
    """A function in place of ``assemble_training_data``; options are those of the adapter."""
    adapter = TinkerAdapter(**options)
    return lambda groups, _=None: credit_batch(adapter, groups, method)[0]
