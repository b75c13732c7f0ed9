"""Tasks that are known completely: their arrays, and their exact values by dynamic programming."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from ascribe.steps.arrays import Floats, Ints


@dataclass(frozen=True, eq=False)
class Tasks:
    """Several tasks of one world, as arrays, and a policy that acts in them.

    A response is an action and one of its surface forms (the thought before the action). Each
    response has its own logit, so two responses with the same action have different gradients, as
    two completions of a language model have. Sizes: n tasks, S states, A actions, K outcomes of an
    action, M surface forms, D numbers of a fingerprint, W wordings.

    Attributes:
        horizon: most steps of an episode.
        outcome: state that follows, [n, S, A, K]; S is the end.
        chance: probability of each outcome, [n, S, A, K].
        reward: expected reward of each outcome, [n, S, A, K].
        start: first state of each task, [n].
        logits: the policy's preference for each response, [n, S, A, M].
        observation: what is seen in a state, [n, S]; hidden states share an observation.
        centre: where the fingerprints of a state lie, [n, S, D], unit length.
        shift: how another wording moves the fingerprint, [n, S, W, D]; wording 0 does not.
        verb: which of ``actions`` each action of a task is, [n, A].
        texts: the text of each observation.
        actions: the texts of actions.
        missed: chance that a paid success goes unseen; the seen ones pay more, so that the mean
            stays.
        reward_noise: standard deviation of noise on every reward.
    """

    horizon: int
    outcome: Ints
    chance: Floats
    reward: Floats
    start: Ints
    logits: Floats
    observation: Ints
    centre: Floats
    shift: Floats
    verb: Ints
    texts: Sequence[str]
    actions: Sequence[str]
    missed: float = 0.0
    reward_noise: float = 0.0

    @property
    def count(self) -> int:
        """How many tasks there are."""
        return int(self.start.size)

    @property
    def states(self) -> int:
        """How many states a task has."""
        return int(self.outcome.shape[1])

    @property
    def forms(self) -> int:
        """How many surface forms an action has."""
        return int(self.logits.shape[3])

    @cached_property
    def response_policy(self) -> Floats:
        """Probability of each response, [n, S, A, M]."""
        flat = self.logits.reshape(self.count, self.states, -1)
        weight = np.exp(flat - flat.max(axis=-1, keepdims=True))
        out: Floats = (weight / weight.sum(axis=-1, keepdims=True)).reshape(self.logits.shape)
        return out

    @cached_property
    def policy(self) -> Floats:
        """Probability of each action, [n, S, A]."""
        return np.asarray(self.response_policy.sum(axis=-1))

    def with_logits(self, logits: Floats) -> "Tasks":
        """The same tasks under another policy."""
        return replace(self, logits=logits)

    def solve(self, gamma: float) -> "Exact":
        """Exact values and visits of the policy."""
        value, q = self._values(gamma)
        return Exact(value, q, self._visits())

    def _values(self, gamma: float) -> tuple[Floats, Floats]:
        r"""V and Q, backwards from the horizon.

        ``Q_t(s, a) = Σ_k p_k (r_k + γ V_{t+1}(s_k))``, ``V_t(s) = Σ_a π(a | s) Q_t(s, a)``; nothing
        follows the end or the horizon.
        """
        n, states, actions, _ = self.outcome.shape
        leads = self.outcome + (states + 1) * np.arange(n)[:, None, None, None]
        paid = (self.chance * self.reward).sum(axis=-1)
        value = np.zeros((self.horizon + 1, n, states + 1))
        q = np.zeros((self.horizon, n, states, actions))
        for t in range(self.horizon - 1, -1, -1):
            later = value[t + 1].ravel()[leads]
            q[t] = paid + gamma * np.einsum("nsak,nsak->nsa", self.chance, later)
            value[t, :, :states] = (self.policy * q[t]).sum(axis=-1)
        return value[:-1, :, :states], q

    def _visits(self) -> Floats:
        """Chance to be in each state at each step, forwards from the start."""
        n, states = self.count, self.states
        leads = (self.outcome + (states + 1) * np.arange(n)[:, None, None, None]).ravel()
        visits = np.zeros((self.horizon, n, states))
        visits[0, np.arange(n), self.start] = 1.0
        for t in range(self.horizon - 1):
            flow = (visits[t][:, :, None] * self.policy)[..., None] * self.chance
            arrived = np.bincount(leads, flow.ravel(), n * (states + 1))
            visits[t + 1] = arrived.reshape(n, states + 1)[:, :states]
        return visits

    def success(self) -> Floats:
        """Exact undiscounted return of the policy in each task."""
        return np.asarray(self._values(1.0)[0][0, np.arange(self.count), self.start])

    def gradient(self, exact: "Exact") -> Floats:
        r"""The policy gradient that exact advantages give, on the response logits, [n, S, A, M].

        ``Σ_t d_t(s) π(a, m | s) A_t(s, a)`` with d the visits: the expectation, over trajectories,
        of the sum of ``A ∇ log π``. Summed over m it is the gradient on the action logits.
        """
        mean = np.einsum("tns,tnsa->nsa", exact.visits, exact.advantage)
        return np.asarray(self.response_policy * mean[..., None])


@dataclass(frozen=True, eq=False)
class Exact:
    """Exact values of a policy: step by step, task by task, state by state."""

    value: Floats
    """V, [T, n, S]."""
    q: Floats
    """Q, [T, n, S, A]."""
    visits: Floats
    """Chance to be in a state at a step, [T, n, S]."""

    @cached_property
    def advantage(self) -> Floats:
        """Q - V, [T, n, S, A]."""
        return np.asarray(self.q - self.value[..., None])


def unit(vectors: npt.NDArray[np.float64]) -> Floats:
    """The vectors at unit length."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))
