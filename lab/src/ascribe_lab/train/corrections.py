"""Corrections: the policy sees every wrong response of a group once more, beside others.

A correction is an episode of the same task, judged by the same environment. What differs is the
prompt, which shows the wrong response among others of its group (IBPO, Appendix C.1). What it shows
follows from the group's responses and its seed alone, so any process may play it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ascribe.estimators import IBPO, Recipe
from ascribe.estimators.ibpo import draw_tuples
from ascribe.steps.errors import InputError
from ascribe.steps.problems import replace_surrogates
from ascribe_lab.agents import Agent, CorrectingPrompt, CorrectionPrompt
from ascribe_lab.rollout import Rollout, SamplingPolicy
from ascribe_lab.train.episodes import EpisodeSpec, Player, join_rollouts

DRAWS = 3
"""Mixed into the group's seed where references are drawn; episodes mix in other numbers."""


@dataclass(frozen=True)
class Corrections:
    """What is corrected, and how often.

    Attributes:
        count: corrections of each wrong response.
        references: other responses shown beside the wrong one: right ones if there are any. With 0
            the wrong one is shown alone (IBPO, Table 2: k = 1).
        prompt: asks for a correction.
    """

    count: int = 1
    references: int = 1
    prompt: CorrectionPrompt = field(default_factory=CorrectionPrompt)

    def __post_init__(self) -> None:
        if self.count < 1 or self.references < 0:
            raise InputError(f"count must be at least 1, and references at least 0, not {self}")

    def agent(self, agent: Agent) -> Agent:
        """The agent, with a prompt that can ask for corrections too."""
        return replace(agent, prompt=CorrectingPrompt(agent.prompt, self.prompt))


@dataclass(frozen=True)
class JudgedResponse:
    """A response as other members of its group see it."""

    spec: EpisodeSpec
    right: bool
    text: str


def correction_problem(recipe: Recipe, corrections: int, turns: int | None = None) -> str | None:
    """What is wrong with this number of corrections for a recipe; None if nothing is.

    Args:
        recipe: the estimator.
        corrections: of each wrong response.
        turns: decisions that an episode may have, if known.
    """
    if recipe.needs_corrections and not corrections:
        return "ibpo needs corrections of wrong responses: give at least 1"
    if corrections and not recipe.needs_corrections:
        return f"{recipe.name} does not learn from corrections: leave it at 0, or take ibpo"
    if corrections and turns is not None and turns > 1:
        return f"only episodes of one decision can be corrected, and these may have {turns}"
    return None


def judged_responses(
    rollout: Rollout, specs: Iterable[EpisodeSpec], recipe: Recipe
) -> list[JudgedResponse]:
    """The responses of episodes of one decision, in the order of the trajectories.

    Args:
        rollout: the episodes.
        specs: of these episodes, and perhaps of others.
        recipe: ``ibpo``, which defines which responses are right.
    """
    assert isinstance(recipe, IBPO)
    by_name = {spec.name: spec for spec in specs}
    rewards = np.array([trajectory.reward for trajectory in rollout.trajectories], dtype=np.float64)
    return [
        JudgedResponse(
            by_name[trajectory.name],
            right,
            replace_surrogates(str(trajectory.steps[0].sample.text)),
        )
        for trajectory, right in zip(
            rollout.trajectories, recipe.is_right(rewards).tolist(), strict=True
        )
    ]


def correction_specs(
    responses: Iterable[JudgedResponse], corrections: Corrections, *, size: int, needed: int
) -> dict[str, list[EpisodeSpec]]:
    """The corrections of each wrong response, by the name of its trajectory.

    Args:
        responses: of all members of the groups, whichever process played them.
        corrections: what is corrected.
        size: members that a group was meant to have; corrections are numbered on from there, so
            that no two episodes of a group's seed are sampled alike.
        needed: a group with fewer responses does not count, and is not corrected.
    """
    groups: dict[str, list[JudgedResponse]] = {}
    for response in responses:
        groups.setdefault(response.spec.group, []).append(response)
    specs: dict[str, list[EpisodeSpec]] = {}
    for group in groups.values():
        if len(group) >= needed:
            specs |= _specs_of_group(group, corrections, size)
    return specs


def _specs_of_group(
    group: Sequence[JudgedResponse], corrections: Corrections, size: int
) -> dict[str, list[EpisodeSpec]]:
    members = sorted(group, key=lambda response: response.spec.member)
    random = np.random.default_rng([members[0].spec.seed, DRAWS])
    right = np.array([response.right for response in members])
    same = np.zeros(len(members), dtype=np.int64)
    tuples = draw_tuples(right, same, 1, random, size=1 + corrections.references)
    # Always first, or always last, would show which is wrong.
    places = random.integers(0, corrections.references + 1, len(tuples))
    specs = {}
    for number in np.flatnonzero(tuples.complete):
        target = members[tuples.target[number]]
        texts = [members[other].text for other in tuples.references[number]]
        texts.insert(int(places[number]), target.text)
        spec = target.spec
        first = size + spec.member * corrections.count
        specs[spec.name] = [
            replace(
                spec,
                group=f"{spec.group}/corrects/{spec.member}",
                member=first + turn,
                attempts=tuple(texts),
            )
            for turn in range(corrections.count)
        ]
    return specs


def with_corrections(
    player: Player,
    rollout: Rollout,
    specs: Sequence[EpisodeSpec],
    responses: Iterable[JudgedResponse],
    corrections: Corrections,
    *,
    size: int,
    policy: SamplingPolicy,
) -> Rollout:
    """A rollout, and after it the corrections of its wrong responses.

    A correction that fails does not drop the others: the response then has one less, or none.

    Args:
        player: plays the corrections.
        rollout: the episodes of this process.
        specs: of these episodes.
        responses: of all members of their groups, whichever process played them.
        corrections: what is corrected.
        size: members that a group was meant to have.
        policy: the model.
    """
    needed = player.failures.needs(size)
    due = correction_specs(responses, corrections, size=size, needed=needed)
    mine = {spec.name: due[spec.name] for spec in specs if spec.name in due}
    if not mine:
        return rollout
    failures = replace(player.failures, smallest_group=1)
    every = [spec for few in mine.values() for spec in few]
    played = player.play(every, corrections.count, policy, failures)
    targets = {spec.group: name for name, few in mine.items() for spec in few}
    return join_rollouts([rollout, mark_corrections(played, targets)])


def mark_corrections(rollout: Rollout, targets: Mapping[str, str]) -> Rollout:
    """The rollout, with the trajectory that each episode corrects, by its group."""
    return replace(
        rollout,
        trajectories=tuple(replace(t, corrects=targets[t.group]) for t in rollout.trajectories),
        failed=tuple(replace(f, corrects=targets[f.group]) for f in rollout.failed),
    )


def without_corrections(rollout: Rollout) -> Rollout:
    """The rollout without its corrections; failed episodes stay."""
    kept = tuple(trajectory for trajectory in rollout.trajectories if trajectory.corrects is None)
    return replace(rollout, trajectories=kept)
