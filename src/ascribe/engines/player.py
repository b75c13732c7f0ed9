"""``Player``: plays the episodes of an iteration in a pool that stays open between iterations."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from ascribe.agents import Agent
from ascribe.engines.plan import Seat, SeatPlan
from ascribe.rollout import FailurePolicy, Policy, Rollout, Sampling, Setup, rollout
from ascribe.rollout.pools import Pool


@dataclass
class Player:
    """Who is played with, and how.

    Attributes:
        setup: the environment and its pool.
        agent: what the policy is shown, and how its answers are read.
        sampling: how tokens are drawn.
        max_turns: decisions after which an episode is cut.
        failures: what to do about episodes that fail.
        slots: environments that are open at once.
    """

    setup: Setup
    agent: Agent
    sampling: Sampling
    max_turns: int
    failures: FailurePolicy
    slots: int
    _pool: Pool | None = None
    _open: ExitStack = field(default_factory=ExitStack)

    def play(
        self,
        seats: Sequence[Seat],
        size: int,
        policy: Policy,
        failures: FailurePolicy | None = None,
    ) -> Rollout:
        """Play these members of groups of ``size``; ``failures`` in place of the player's own."""
        if self._pool is None:
            self._pool = self._open.enter_context(self.setup.open_pool(self.slots))
        plan = SeatPlan(
            groups=len({seat.group for seat in seats}),
            size=size,
            max_turns=self.max_turns,
            sampling=self.sampling,
            seats=tuple(seats),
        )
        return rollout(plan, self._pool, self.agent, policy, failures=failures or self.failures)

    def close(self) -> None:
        """Close the pool; the next episodes open another."""
        self._pool = None
        self._open.close()
