"""What counts as the state of a step of a session, chosen by what recurs."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np

from ascribe.groups.canonical import NOISE
from ascribe.groups.keys import StateKey, keyed, propose, shows_noise
from ascribe.sessions.messages import State
from ascribe.steps.arrays import Ints
from ascribe.steps.hints import page
from ascribe.steps.table import StepTable

Choice: TypeAlias = State | Literal["cleaned"]
"""What counts as the state; ``cleaned``: the observation without times, ids, temporary paths."""

CHOICES: tuple[Choice, ...] = ("key", "observation", "cleaned", "tool", "history")
"""In the order in which ``auto`` prefers them; the last is a hash, which no key can improve."""
CLOSE = 0.05
"""``auto`` takes the first choice that leaves at most so many more steps alone than the best."""
MANY_ALONE = 0.5
"""Share of steps alone in their state from which most cannot be compared."""


@dataclass(frozen=True)
class ChosenState:
    """The state that was taken, and what the others would have given.

    Attributes:
        state: the choice.
        best: the one that ``auto`` takes.
        alone: share of the steps that are alone in their state, for each choice that was measured.
        key: what cleans observations.
        texts: the steps with their observations, if a key may help.
        known: the key that ``propose`` gives, if it was needed already.
    """

    state: Choice
    best: Choice
    alone: Mapping[Choice, float]
    key: StateKey
    texts: StepTable | None
    known: StateKey | None

    @cached_property
    def full(self) -> StateKey:
        """The key that ``propose`` gives, with counters and lists."""
        if self.texts is None:
            return StateKey()
        return propose(self.texts) if self.known is None else self.known

    @cached_property
    def proposed(self) -> tuple[StateKey, float]:
        """The key that ``propose`` gives, and the share of steps alone with it."""
        texts = self.texts
        if texts is not None and self.full != StateKey():
            texts = replace(texts, state=keyed(texts.state, self.full))
        return self.full, 1.0 if texts is None else alone(texts)

    def advice(self, arguments: Sequence[str]) -> str:
        """The command that takes something else, where that may be better; else nothing.

        Args:
            arguments: the files and options of ``ascribe import``.
        """
        words = shlex.join(arguments)
        command = f"ascribe import {words} -o steps.parquet --state"
        share = self.alone[self.state]
        if share > self.alone[self.best] + CLOSE:
            return (
                f"With another state, only {self.alone[self.best]:.1%} have none: {command} "
                f"{self.best}"
            )
        one_file = len(arguments) == 1 or arguments[1].startswith("--")
        if one_file and share > self.proposed[1] + CLOSE:
            return (
                f"With observations {self.full.in_words()}, only {self.proposed[1]:.1%} have none. "
                "If what that removes does not matter: "
                f"ascribe states {words} -o steps.parquet --state observation"
            )
        if self.state == "cleaned":
            return (
                f"The column state holds observations {self.key.in_words()}, so that more steps "
                f"can be compared. To keep the texts: {command} observation"
            )
        if share > MANY_ALONE:
            return (
                "Whatever the state, most steps have no other step to compare with. If your "
                "environment has a key for its state, write it into the file: "
                f"{page('howto/state')}"
            )
        return ""


def choose(
    tables: Mapping[State, StepTable], state: Choice | None, key: StateKey | None
) -> tuple[StepTable, ChosenState]:
    """The table with the states that were asked for; without any, with those that recur.

    Args:
        tables: the steps, by what counts as their state.
        state: the choice; None: the best one.
        key: of an earlier part of the same steps; None: it is proposed if it could help.
    """
    choices = dict[Choice, StepTable](tables.items())
    texts = tables.get("observation")
    full, measured = None, None
    if texts is not None and (state == "cleaned" or (len(tables) > 1 and alone(texts) > CLOSE)):
        if key is None:
            measured = texts
            # A counter may count pages that differ, and an order may matter: these are left to
            # whoever knows the texts. So the rest of the key can wait until it is asked for.
            full = propose(texts) if shows_noise(texts) else None
            key = StateKey(tuple(each for each in full.rules if each in NOISE) if full else ())
        if key != StateKey() or state == "cleaned":
            choices["cleaned"] = replace(texts, state=keyed(texts.state, key))
    shares = {choice: alone(choices[choice]) for choice in CHOICES if choice in choices}
    best = _best(choices, shares)
    chosen = state or best
    return choices[chosen], ChosenState(chosen, best, shares, key or StateKey(), measured, full)


def _best(tables: Mapping[Choice, StepTable], shares: Mapping[Choice, float]) -> Choice:
    """The first choice that leaves about as few steps alone as any.

    One that gives every group a single state says nothing about where a step was. If nearly all
    steps are alone whatever the choice, the observation is at least readable.
    """
    several = [c for c in shares if _visits(tables[c]).size > tables[c].group.values.size]
    candidates = several or list(shares)
    least = min(shares[choice] for choice in candidates)
    if least > 1 - CLOSE and "observation" in shares:
        return "observation"
    return next(choice for choice in candidates if shares[choice] <= least + CLOSE)


def alone(table: StepTable) -> float:
    """The share of the steps that are alone in their state."""
    return float((_visits(table) == 1).sum() / max(len(table), 1))


def _visits(table: StepTable) -> Ints:
    """How many steps each state of each group has."""
    pairs = table.group.codes * (table.state.values.size + 1) + table.state.codes
    counts: Ints = np.unique(pairs, return_counts=True)[1]
    return counts
