"""The numbers of episodes by the names that TRL gives."""

import numpy as np

from ascribe.engines.corrections import without_corrections
from ascribe.engines.numbers import Numbers
from ascribe.rollout.run import Rollout


def familiar_numbers(rollout: Rollout) -> Numbers:
    """What dashboards made for TRL show."""
    groups: dict[str, list[float]] = {}
    rollout = without_corrections(rollout)
    for trajectory in rollout.trajectories:
        groups.setdefault(trajectory.group, []).append(trajectory.reward)
    if not groups:
        return {}
    returns = np.concatenate(list(groups.values()))
    cut = [step.sample.finish == "length" for t in rollout.trajectories for step in t.steps]
    return {
        "reward": float(returns.mean()),
        "reward_std": float(returns.std(ddof=1)) if returns.size > 1 else 0.0,
        "frac_reward_zero_std": float(np.mean([np.ptp(values) == 0 for values in groups.values()])),
        "completions/clipped_ratio": float(np.mean(cut)),
    }
