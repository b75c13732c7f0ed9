"""Tinker cookbook: an advantage for each turn, in place of one for each trajectory.

::

    from tinker_cookbook.rl import train
    from ascribe.engines.adapters.tinker import assemble_with

    train.assemble_training_data = assemble_with("sbc", decode=tokenizer.decode)

A batch is a list of ``TrajectoryGroup``; each transition is a step.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

import numpy as np

from ascribe.engines.adapters import ExampleEpisode, check_seams, credit_batch
from ascribe.engines.options import Options
from ascribe.estimators import DEFAULT, Recipe
from ascribe.sessions import Decoder
from ascribe.sessions.sequences import START
from ascribe.steps.arrays import Bools, Floats
from ascribe.steps.errors import InputError
from ascribe.steps.table import StepTable

LIMITS = ("max_", "context_overflow", "rollout_timeout")
"""How the stop reasons begin that are limits."""

OPTIONS = (
    Options(
        source="tinker_cookbook.rl.train.Config, which assemble_with is not given",
        applied={
            "kl_penalty_coef": "added to the advantages of tokens, as to the cookbook's own",
            "kl_discount_factor": "as kl_penalty_coef",
            "loss_fn": "takes the advantages of tokens; cross_entropy would take none",
            "remove_constant_reward_groups": "groups of one total reward are left out before",
            "rollout_error_tolerance": "members that failed are left out of their groups before",
            "termination": "in the rewards that are credited",
            "stream_minibatch_config": "each minibatch is credited on its own",
        },
        untouched=(
            *("learning_rate", "dataset_builder", "model_name", "recipe_name", "max_tokens"),
            *("log_path", "eval_every", "save_every", "evaluator_builders", "renderer_name"),
            *("load_checkpoint_path", "wandb_project", "wandb_name", "session_name"),
            *("kl_reference_config", "loss_fn_config", "num_substeps", "lora_rank", "temperature"),
            *("compute_post_kl", "enable_trace", "span_chart_every", "async_config", "base_url"),
            *("ttl_seconds", "rolling_save_every", "rolling_ttl_seconds", "num_groups_to_log"),
            *("rollout_json_export", "max_steps", "num_epochs"),
        ),
    ),
)
"""What becomes of the cookbook's options; none would be wrong."""

COLUMNS = (
    *("group", "trajectory", "step", "state", "action"),
    *("reward", "terminated", "truncated"),
)


@dataclass(frozen=True)
class TinkerAdapter:
    """Trajectory groups to steps, and advantages into the data that the cookbook makes of them."""

    decode: Decoder | None = None
    """Token ids to text; without it texts are the ids themselves."""
    key: Callable[[Any], str] | None = None
    """The state of a transition; by default what its observation adds to the turn before it."""
    told: Mapping[str, Any] = field(default_factory=dict)
    """What the cookbook's ``assemble_training_data`` is told besides."""

    def steps(self, batch: Sequence[Any]) -> tuple[StepTable, Bools]:
        """One row for each transition; a group's final reward is added to the last one's.

        A trajectory without a transition is one row too, so that its reward counts in its group.
        The second value tells which rows are transitions.
        """
        rows: list[tuple[Any, ...]] = []
        written: list[bool] = []
        for number, group in enumerate(batch):
            for member, trajectory in enumerate(group.trajectories_G):
                name, final = f"{number}/{member}", group.final_rewards_G[member]
                cut = str(trajectory.stop_reason or "").startswith(LIMITS)
                before: list[int] = []
                for step, transition in enumerate(trajectory.transitions):
                    last = step == len(trajectory.transitions) - 1
                    shown = [] if self.key else transition.ob.to_ints()
                    new = shown[len(before) :] if shown[: len(before)] == before else shown
                    before = shown + transition.ac.tokens
                    state = self.key(transition) if self.key else self._text(new) or START
                    reward = transition.reward + (final if last else 0.0)
                    action = self._text(transition.ac.tokens)
                    ends = (last and not cut, last and cut)
                    rows.append((str(number), name, step, state, action, reward, *ends))
                    written.append(True)
                if not trajectory.transitions:
                    rows.append((str(number), name, 0, START, "", final, not cut, cut))
                    written.append(False)
        columns = {name: [row[at] for row in rows] for at, name in enumerate(COLUMNS)}
        return StepTable.from_columns(columns), np.array(written, dtype=np.bool_)

    def _text(self, tokens: list[int]) -> str:
        return self.decode(tokens) if self.decode else " ".join(map(str, tokens))

    def put(self, batch: Sequence[Any], places: Bools, advantages: Floats) -> Any:
        """What ``assemble_training_data`` returns: data, and the trajectory of each."""
        import torch
        from tinker import TensorData
        from tinker_cookbook.rl.data_processing import assemble_training_data

        ones = [torch.ones(len(group.trajectories_G)) for group in batch]
        data, metadata = assemble_training_data(batch, ones, **self.told)
        turns = [t for group in batch for each in group.trajectories_G for t in each.transitions]
        sizes = [len(t.ac.tokens) * (not t.metrics.get("parse_error_masked")) for t in turns]
        values = torch.from_numpy(np.repeat(advantages[places], sizes)).float()
        written = [datum.loss_fn_inputs["mask"].to_torch() > 0 for datum in data]
        if sum(int(mask.sum()) for mask in written) != len(values):
            raise InputError(
                "a trajectory begins with a response", hint="give it an observation first"
            )
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
    check_seams(import_module("tinker_cookbook.rl.train"), "assemble_training_data")

    def assemble(groups: Sequence[Any], _: Any = None, **told: Any) -> Any:
        return credit_batch(replace(adapter, told=told), groups, method)[0]

    return assemble
