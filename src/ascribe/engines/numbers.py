"""The numbers of an iteration, by the names under which they are logged."""

from collections import Counter

from ascribe.diagnose import diagnose
from ascribe.engines.corrections import without_corrections
from ascribe.engines.crediting import Iteration
from ascribe.rollout.run import Rollout
from ascribe.rollout.summary import success

Numbers = dict[str, float]

LOGGED = {
    "success": "share of episodes won",
    "success/FAMILY": "the same in each family of tasks, where there are several",
    "return": "mean sum of rewards of an episode",
    "episodes": "episodes in groups that count",
    "turns": "decisions of an episode",
    "invalid_share": "share of decisions that were invalid",
    "dropped_groups": "groups that do not count",
    "dropped/REASON": "those by reason, in iterations that have one",
    "given_up": "episodes that failed for good",
    "retries": "how often an episode was taken up again",
    "signal_share": "share of steps that some term credits",
    "singleton_share": "share of steps that are alone in their state",
    "advantage_rms": "root mean square of the advantage",
    "rms/TERM": "the same of each term, such as `episode` and `step`",
    "credit/radius": "largest distance of states that count as the same",
    "credit/collapsed_groups": "tasks of which one cluster holds nearly all steps",
    "credit/parse_rate": "share of actions that a key was found in",
    "credit/pace": "BiPACE's row mix: share of steps credited by peers that did the same",
    "credit/leave_one_out": "share of steps that have only others to be compared with",
    "credit/singleton": "share of steps that are alone in their cluster",
    "credit/contrasting_clusters": "share of clusters in which different things were done",
    "credit/keys_per_cluster": "different things done in a cluster",
    "credit/scale_factor": "what the step term was multiplied by, with `scale: equal`",
    "credit/contribution/AGENT": "CCPO: what an agent added to the team's return, in the mean",
    "credit/trust": "CCPO's Think-Solve: weight of the team's return for the second agent",
    "credit/bonus_mean": "IBPO: mean bonus of an answer",
    "credit/overtakes": "answers that a bonus lifts over a right one",
    "credit/unjudged": "wrong answers without a judged correction",
    "credit/corrections": "corrections that were played",
    "credit/corrections_right": "share of corrections that are right",
    "credit/weight_limit": "weight up to which the bonus lowers the variance",
    "rows": "rows in the update",
    "rows_skipped": "rows left out, for they have no advantage (TRL)",
    "rows_padded": "empty rows",
    "missing": "episodes that raised, and left no row (verl)",
    "seconds/PHASE": "`rollout`, `logprobs`, `credit` and `update` (TRL; verl has `timing_s`)",
}
"""What each number means, by its name without ``ascribe/``. A word in capitals stands for many."""


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
