"""The numbers of an iteration, by the names under which they are logged."""

from collections import Counter

from ascribe.diagnose import diagnose
from ascribe.engines.corrections import without_corrections
from ascribe.engines.crediting import Iteration
from ascribe.rollout.run import Rollout
from ascribe.rollout.summary import success

Numbers = dict[str, float]


def iteration_numbers(iteration: Iteration) -> Numbers:
    """What was played, what was lost, and where the signal is."""
    found: Numbers = {"dropped_groups": len(iteration.dropped)}
    for reason, count in Counter(iteration.dropped.values()).items():
        found[f"dropped/{reason}"] = count
    found |= _credit_numbers(iteration)
    own = {f"ascribe/{name}": float(value) for name, value in found.items()}
    return episode_numbers(iteration.counted) | own


def episode_numbers(rollout: Rollout) -> Numbers:
    """How the episodes went; corrections are no answers to the task, and not among them."""
    rollout = without_corrections(rollout)
    found: Numbers = {
        "episodes": len(rollout.trajectories),
        "given_up": len(rollout.given_up),
        "retries": rollout.retries,
    }
    families = success(rollout)
    if families:
        everything = families.pop()
        found["success"] = everything.rate
        found["return"] = everything.reward
        found["turns"] = everything.turns
        found["invalid_share"] = 1 - everything.valid
    if len(families) > 1:
        found |= {f"success/{one.family}": one.rate for one in families}
    return {f"ascribe/{name}": float(value) for name, value in found.items()}


def _credit_numbers(iteration: Iteration) -> Numbers:
    if iteration.table is None or iteration.credit is None:
        return {}
    seen = diagnose(iteration.table, iteration.credit)
    found = {"signal_share": seen.signal_share, "advantage_rms": seen.advantage_rms}
    found |= {f"rms/{name}": value for name, value in seen.term_rms.items()}
    if seen.states is not None:
        found["singleton_share"] = seen.states.singleton_share_of_rows
    return found | {f"credit/{name}": value for name, value in iteration.credit.numbers.items()}
