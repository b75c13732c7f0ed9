"""Corrections: every wrong answer of a group is put before the policy once more, beside others.

A correction is an episode of the same task, judged by the same environment. What differs is the
prompt, which shows the wrong answer among others of its group (IBPO, Appendix C.1). What is shown
follows from the answers of the group and its seed alone, so it does not matter who plays it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ascribe.agents import Agent, CorrectingPrompt, CorrectionPrompt, replace_surrogates
from ascribe.engines.plan import Seat
from ascribe.engines.player import Player
from ascribe.estimators import IBPO, Recipe
from ascribe.estimators.correction import draw_tuples
from ascribe.rollout import Clock, Policy, Rollout

DRAWS = 3
"""Mixed into the group's seed where references are drawn: episodes mix in other numbers."""


@dataclass(frozen=True)
class Corrections:
    """What is corrected, and how often.

    Attributes:
        count: corrections of each wrong answer.
        references: other answers that stand beside the wrong one: right ones if there are any.
        prompt: asks for a correction.
    """

    count: int = 1
    references: int = 1
    prompt: CorrectionPrompt = field(default_factory=CorrectionPrompt)

    def __post_init__(self) -> None:
        for name in ("count", "references"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")

    def agent(self, agent: Agent) -> Agent:
        """The agent, which can be asked for corrections too."""
        return replace(agent, prompt=CorrectingPrompt(agent.prompt, self.prompt))


@dataclass(frozen=True)
class Answer:
    """An answer, as it travels to whoever corrects others of its group."""

    seat: Seat
    right: bool
    text: str


def why_not(recipe: Recipe, corrections: int, turns: int | None = None) -> str | None:
    """What is wrong with so many corrections for this recipe; None if nothing is.

    Args:
        recipe: who learns from them.
        corrections: of each wrong answer.
        turns: decisions that an episode may have, if known.
    """
    if recipe.needs_corrections and not corrections:
        return "ibpo needs corrections of wrong answers: give at least 1"
    if corrections and not recipe.needs_corrections:
        return f"{recipe.name} does not learn from corrections: leave it at 0, or take ibpo"
    if corrections and turns is not None and turns > 1:
        return f"only episodes of one decision can be corrected, and these may have {turns}"
    return None


def answers(played: Rollout, seats: Iterable[Seat], recipe: Recipe) -> list[Answer]:
    """What was answered at these seats, in the order of the trajectories.

    Args:
        played: episodes of one decision.
        seats: where they were played; those of others do no harm.
        recipe: ``ibpo``, which knows what is right.
    """
    assert isinstance(recipe, IBPO)
    at = {f"{seat.group}/{seat.member}": seat for seat in seats}
    paid = np.array([trajectory.reward for trajectory in played.trajectories], dtype=np.float64)
    return [
        Answer(at[trajectory.name], right, replace_surrogates(str(trajectory.steps[0].sample.text)))
        for trajectory, right in zip(
            played.trajectories, recipe.is_right(paid).tolist(), strict=True
        )
    ]


def correction_seats(
    found: Iterable[Answer], given: Corrections, *, size: int, needed: int
) -> dict[tuple[str, int], list[Seat]]:
    """The corrections of each wrong answer, by its group and member.

    Args:
        found: all answers of the groups that are to be corrected, wherever they were played.
        given: what is corrected.
        size: members that a group was meant to have; corrections are numbered on from there, so
            that no two episodes of a group's seed are sampled alike.
        needed: a group with fewer answers does not count, and is not corrected.
    """
    groups: dict[str, list[Answer]] = {}
    for answer in found:
        groups.setdefault(answer.seat.group, []).append(answer)
    seats: dict[tuple[str, int], list[Seat]] = {}
    for group in groups.values():
        if len(group) >= needed:
            seats |= _of_group(group, given, size)
    return seats


def _of_group(
    group: Sequence[Answer], given: Corrections, size: int
) -> dict[tuple[str, int], list[Seat]]:
    members = sorted(group, key=lambda answer: answer.seat.member)
    random = np.random.default_rng([members[0].seat.seed, DRAWS])
    right = np.array([answer.right for answer in members])
    same = np.zeros(len(members), dtype=np.int64)
    tuples = draw_tuples(right, same, 1, random, size=1 + given.references)
    # Always first, or always last, would tell which is wrong.
    places = random.integers(0, given.references + 1, len(tuples))
    seats = {}
    for number in np.flatnonzero(tuples.complete):
        target = members[tuples.target[number]]
        texts = [members[other].text for other in tuples.references[number]]
        texts.insert(int(places[number]), target.text)
        seat = target.seat
        first = size + seat.member * given.count
        seats[seat.group, seat.member] = [
            replace(
                seat,
                group=f"{seat.group}/corrects/{seat.member}",
                member=first + turn,
                attempts=tuple(texts),
            )
            for turn in range(given.count)
        ]
    return seats


def with_corrections(
    player: Player,
    played: Rollout,
    seats: Sequence[Seat],
    everyone: Iterable[Answer],
    given: Corrections,
    *,
    size: int,
    policy: Policy,
) -> Rollout:
    """What was played at these seats, and after it the corrections of what is wrong in it.

    A correction that fails is lost alone: the answer then has one less, or none.

    Args:
        player: who plays them.
        played: the answers.
        seats: where they were played.
        everyone: all answers of their groups, also those that were played elsewhere.
        given: what is corrected.
        size: members that a group was meant to have.
        policy: who answers.
    """
    needed = player.failures.needs(size)
    due = correction_seats(everyone, given, size=size, needed=needed)
    chosen, target = [], {}
    for seat in seats:
        for one in due.get((seat.group, seat.member), ()):
            chosen.append(one)
            target[one.group] = f"{seat.group}/{seat.member}"
    if not chosen:
        return played
    failures = replace(player.failures, smallest_group=1)
    return joined(played, corrected(player.play(chosen, given.count, policy, failures), target))


def corrected(played: Rollout, target: Mapping[str, str]) -> Rollout:
    """What was played, with the name of what it corrects; ``target`` names that by group."""
    return replace(
        played,
        trajectories=tuple(replace(t, corrects=target[t.group]) for t in played.trajectories),
        given_up=tuple(replace(lost, corrects=target[lost.group]) for lost in played.given_up),
    )


def joined(one: Rollout, other: Rollout) -> Rollout:
    """Two rollouts as one."""
    clocks = (one.clock, other.clock)
    return Rollout(
        one.trajectories + other.trajectories,
        one.dropped + other.dropped,
        one.given_up + other.given_up,
        Clock(
            sum(clock.policy_seconds for clock in clocks),
            sum(clock.environment_seconds for clock in clocks),
            sum(clock.seconds for clock in clocks),
            sum(clock.tokens for clock in clocks),
        ),
        one.retries + other.retries,
    )


def without_corrections(played: Rollout) -> Rollout:
    """The answers alone, and all that was lost."""
    kept = tuple(trajectory for trajectory in played.trajectories if trajectory.corrects is None)
    return replace(played, trajectories=kept)
