"""EZPoints: write a formula with two cards that equals 12, one symbol at a time.

Two cards are dealt such that their sum or their product is 12. An action is one symbol: a number
from 1 to 10, ``+``, ``*`` or ``=``, which ends the episode. Text that is no symbol and a number
without a card are illegal: a blank ``_`` is written instead. After six symbols only the end is
left. ``docs/environments/games.md`` has the rewards, and what differs from ``EZPoints-v0`` of
gym_cards (RL4VLM, Zhai et al. 2024). Formulas are read by a small parser, never evaluated as code.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from ascribe_lab.envs.protocol import Outcome, Start, TextEnvironment

TARGET = 12
SYMBOLS = 6
BLANK = "_"
NUMBERS = tuple(str(number) for number in range(1, 11))
OPERATORS = ("+", "*")
RANKS = {11: "jack", 12: "queen", 13: "king"}
SUITS = ("hearts", "spades", "diamonds", "clubs")

TASK = (
    "Write a formula that equals 12, one symbol at a time. Use each of the two cards once, with + "
    "or *, and end with =. Jacks, queens and kings count as 10."
)


@dataclass
class Deal:
    """An episode: the cards, what they count, and the formula so far."""

    cards: tuple[str, ...]
    numbers: tuple[str, ...]
    formula: list[str] = field(default_factory=list)

    def unused(self) -> list[str]:
        """The numbers that may still be written, in the order of the cards."""
        left = Counter(self.numbers) - Counter(self.formula)
        return sorted(left.elements(), key=self.numbers.index)


class EZPoints(TextEnvironment[Deal]):
    """EZPoints. See ``docs/environments/games.md``.

    Args:
        horizon: number of symbols after which an episode is truncated.
        expert: whether info has ``expert_action``.
    """

    file_options = frozenset({"horizon", "expert"})

    def __init__(self, *, horizon: int = SYMBOLS + 1, expert: bool = False) -> None:
        super().__init__(horizon=horizon, expert=expert)

    def begin(self, task: int, generator: np.random.Generator) -> Start[Deal]:  # noqa: ARG002
        # The deal is the task: the same number deals the same cards, whatever the seed.
        deal, family = _deal(np.random.default_rng(task))
        return Start(deal, _shown(deal), TASK, family)

    def act(self, episode: Deal, action: str) -> Outcome:
        symbol = action.strip()
        legal = symbol in OPERATORS or symbol == "=" or symbol in episode.unused()
        if len(episode.formula) >= SYMBOLS:
            return Outcome(_shown(episode), reward=-1.0, valid=legal)
        if symbol == "=":
            won = not episode.unused() and value(episode.formula) == TARGET
            reward = 10.0 if won else -1.0
            return Outcome(_shown(episode), reward, terminated=True, won=won)
        episode.formula.append(symbol if legal else BLANK)
        return Outcome(_shown(episode), reward=0.0 if legal else -1.0, valid=legal)

    def admissible(self, episode: Deal) -> list[str]:
        return [*dict.fromkeys(episode.unused()), *OPERATORS, "="]

    def expert_action(self, episode: Deal) -> str | None:
        """The first symbol of the shortest ending that makes the formula right."""
        unused = episode.unused()
        for length in range(SYMBOLS - len(episode.formula)):
            for ending in product((*dict.fromkeys(unused), *OPERATORS), repeat=length):
                numbers = Counter(ending) - Counter(OPERATORS * length)
                if numbers == Counter(unused) and value([*episode.formula, *ending]) == TARGET:
                    return [*ending, "="][0]
        return None


def value(formula: Sequence[str]) -> int | None:
    """What a formula of numbers, ``+`` and ``*`` equals; None if it is not well formed.

    ::

        formula = product ("+" product)*
        product = factor ("*" factor)*
        factor  = "+"* number

    Blanks count for nothing.
    """
    symbols = [symbol for symbol in formula if symbol != BLANK]
    total, product, expects_factor = 0, 1, True
    for symbol in symbols:
        if symbol in NUMBERS and expects_factor:
            product *= int(symbol)
            expects_factor = False
        elif symbol == "*" and not expects_factor:
            expects_factor = True
        elif symbol == "+":
            if not expects_factor:
                total, product, expects_factor = total + product, 1, True
        else:
            return None
    return None if expects_factor else total + product


def _deal(generator: np.random.Generator) -> tuple[Deal, str]:
    """One card at random, another that makes 12 with it, and how: by sum or product."""
    first = int(generator.integers(2, 14))
    number = min(first, 10)
    by_product = TARGET % number == 0 and bool(generator.random() < 0.5)
    second = TARGET // number if by_product else TARGET - number
    pair = [
        (f"{RANKS.get(rank, rank)} of {SUITS[generator.integers(len(SUITS))]}", str(min(rank, 10)))
        for rank in (first, second)
    ]
    if generator.random() < 0.5:
        pair.reverse()
    cards, numbers = zip(*pair, strict=True)
    return Deal(cards, numbers), "product" if by_product else "sum"


def _shown(deal: Deal) -> str:
    return f"Cards: {', '.join(deal.cards)}\nFormula: {' '.join(deal.formula)}".rstrip()
