"""The environments of the study, as the policies of ``experiments/learning_loop.py`` play them.

In each, most steps are alone in their state, by the environment's own key, which ``look`` gives.
``copy.deepcopy`` clones a world, so that a step can be branched; ``reseed`` draws anew what is left
to chance.
"""

import random
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from ascribe_lab.envs import desk
from ascribe_lab.envs.desk import Desk, open_actions
from experiments import learning_loop as loop
from experiments.learning_loop import Tokens


class ServiceDesk:
    """Ascribe's service desk: 40 tasks are trained on, 64 others are for evaluation.

    The prompt has what the customer said, what was looked up, the changes that were made, and the
    last answer. A command is up to four words.
    """

    tasks, unseen, shown_tasks = tuple(range(40)), tuple(range(100, 164)), range(200, 456)
    horizon, longest = 20, 4
    words = (
        *desk.TOOLS,
        *desk.TOPICS,
        *desk.NAMES,
        *desk.ZIPS,
        *desk.STREETS,
        *desk.PRODUCTS,
        *desk.OPTIONS,
        *desk.PAYMENTS,
        *(desk.VOUCHER, *desk.REASONS, *desk.FAMILIES, "gold", "plain"),
        *("pending", "delivered", "cancelled", "done", "error", "yes", "no", "now"),
        *(f"c{number}" for number in range(1, 5)),
        *(f"w{number}" for number in range(10, 30)),
    )
    tokens = Tokens(words)

    def __init__(self, task: int, seed: str) -> None:
        self.desk = Desk(horizon=self.horizon, tasks=self.shown_tasks[-1] + 1)
        number = random.Random(seed).randrange(2**32)
        self.said, self.info = self.desk.reset(seed=number, options={"task": task})
        self.won = self.over = False
        self.valid = True

    def look(self) -> tuple[str, tuple[int, ...]]:
        """The environment's key of the state, and the prompt."""
        talk = self.desk.episode
        assert talk is not None
        known = [
            f"{topic.partition(' ')[0]} {said.rpartition(' to ')[2]}".replace(" else ", " ")
            for topic, said in talk.known.items()
        ]
        seen = [f"{what.rpartition(' ')[2]} {said}" for what, said in talk.seen.items()]
        parts = (*known, *seen, *self.changes, "now", self.said.rpartition(": ")[0] or self.said)
        prompt = tuple(chain.from_iterable(map(self.tokens.encode, parts)))
        return self.info["state"], prompt

    changes: tuple[str, ...] = ()

    def step(self, action: str) -> float:
        """The reward of a command."""
        self.said, reward, ended, truncated, self.info = self.desk.step(action)
        self.valid, self.over = self.info["valid"], ended or truncated
        self.won = self.info["won"]
        if self.said == "Done.":
            self.changes = (*self.changes, f"done {action}")
        return reward

    def demonstrate(self, rng: random.Random, noise: float) -> str:
        """A command of a careful agent, in any order, or one of a careless one."""
        talk = self.desk.episode
        assert talk is not None
        if rng.random() >= noise:
            return rng.choice(open_actions(talk))
        orders = [*talk.database["orders"]]
        own = talk.wish
        return rng.choice(
            [
                f"ask {rng.choice(desk.TOPICS)}",
                f"get_order {rng.choice(orders)}",
                f"get_product {rng.choice(desk.PRODUCTS)}",
                f"get_member {talk.customer}",
                f"list_orders {talk.customer}",
                f"cancel_order {own.order} {rng.choice(desk.REASONS)}",
                f"return_item {own.order} {own.item} {rng.choice(desk.PAYMENTS)}",
                f"exchange_item {own.order} {own.item} {rng.choice(desk.OPTIONS)}",
                f"change_address {own.order} {rng.choice(desk.STREETS)}",
                rng.choice(["close", "transfer"]),
            ]
        )

    def reseed(self, _: int) -> None:
        """Nothing: what the seed decides is decided at the start."""


CANDIDATES, LOGS = 8, 8


class Release:
    """One call decides: release the one version of eight that works, then finish the work.

    Each of eight logs names two versions that fail; the seed decides which. Nothing can be read or
    undone after ``release``, but four more things must be done, in any order, before ``close``. Won
    if the right version was released, and all was done. The task decides the right version.
    """

    tasks, unseen, shown_tasks = tuple(range(40)), tuple(range(100, 164)), range(200, 456)
    horizon, longest = 16, 2
    after = ("notify", "tag", "archive", "announce")
    versions = tuple(f"v{number}" for number in range(CANDIDATES))
    logs = tuple(f"log{number}" for number in range(LOGS))
    others = ("read", "release", "close", "released", "error", "now")
    tokens = Tokens([*others, *after, *versions, *logs])

    def __init__(self, task: int, seed: str) -> None:
        self.right = int(np.random.default_rng([11, task]).integers(CANDIDATES))
        rng = random.Random(seed)
        wrong = [number for number in range(CANDIDATES) if number != self.right]
        self.pages = [tuple(sorted(rng.sample(wrong, 2))) for _ in range(LOGS)]
        self.read: dict[int, tuple[int, ...]] = {}
        self.released: int | None = None
        self.finished: list[str] = []
        self.turn, self.won, self.over, self.valid = 0, False, False, True

    def look(self) -> tuple[str, tuple[int, ...]]:
        """What was read and what it said, what was released, and what was done after it."""
        state = f"{sorted(self.read.items())} {self.released} {sorted(self.finished)}"
        words = [f"{self.logs[n]} {' '.join(f'v{v}' for v in p)}" for n, p in self.read.items()]
        if self.released is not None:
            words.append(f"released v{self.released}")
        words += [*self.finished, "now" if self.valid else "error"]
        return state, self.tokens.encode(" ".join(words))

    def step(self, action: str) -> float:
        """The reward of a command."""
        name, _, given = action.partition(" ")
        before = self.released is None
        self.valid, self.turn = True, self.turn + 1
        if name == "read" and given in self.logs and before:
            number = self.logs.index(given)
            self.read[number] = self.pages[number]
        elif name == "release" and given in self.versions and before:
            self.released = self.versions.index(given)
        elif action in self.after and not before and action not in self.finished:
            self.finished.append(action)
        elif action == "close":
            self.over = True
            self.won = self.released == self.right and len(self.finished) == len(self.after)
        else:
            self.valid = False
        self.over = self.over or self.turn >= self.horizon
        return float(self.won)

    def open_actions(self) -> Sequence[str]:
        """What a careful agent may do now."""
        if self.released is not None:
            return [each for each in self.after if each not in self.finished] or ["close"]
        failing = set(chain.from_iterable(self.read.values()))
        unread = [self.logs[number] for number in range(LOGS) if number not in self.read]
        if len(failing) < CANDIDATES - 1 and unread:
            return [f"read {log}" for log in unread]
        return [f"release v{v}" for v in range(CANDIDATES) if v not in failing]

    def demonstrate(self, rng: random.Random, noise: float) -> str:
        """A command of a careful agent, or one of a careless one."""
        if rng.random() >= noise:
            return rng.choice(self.open_actions())
        if self.released is not None:
            return rng.choice([*self.after, "close"])
        return rng.choice([f"read {rng.choice(self.logs)}", f"release {rng.choice(self.versions)}"])

    def reseed(self, number: int) -> None:
        """Draw anew what the logs that were not read say; what was read stays."""
        rng = random.Random(number)
        wrong = [version for version in range(CANDIDATES) if version != self.right]
        for log in range(LOGS):
            if log not in self.read:
                self.pages[log] = tuple(sorted(rng.sample(wrong, 2)))


class OneCall(Release):
    """The check of the harness: all logs are read, and the release ends the episode."""

    horizon = 1

    def __init__(self, task: int, seed: str) -> None:
        super().__init__(task, seed)
        wrong = [number for number in range(CANDIDATES) if number != self.right]
        random.Random(seed).shuffle(wrong)
        self.read = {n: tuple(sorted(wrong[2 * n : 2 * n + 2])) for n in range(4)}

    def step(self, action: str) -> float:
        """1 for the right release."""
        super().step(action)
        self.over, self.won = True, self.released == self.right
        return float(self.won)


WORLDS: dict[str, Any] = {"desk": ServiceDesk, "release": Release, "one call": OneCall}
loop.ALL_WORLDS.update(WORLDS)
