"""Tabular tasks: their arrays, their exact values by dynamic programming, and rollouts of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ascribe.steps.arrays import Bools, Floats, Ints, Objects
from ascribe.steps.table import Coded, StepTable

OPENINGS = ("", "Now: ", "It is your turn. ", "Look: ", "So far: ", "This is what you see. ")
"""Wordings of one observation differ in how they open."""

THOUGHTS = ("I know what to do.", "Let me think.", "One thing at a time.", "This should help.")
"""Surface forms of one action differ in the thought before it."""


@dataclass(frozen=True, eq=False)
class TabularTasks:
    """Several tasks of one world, as arrays, with a tabular policy.

    A response is an action and one of its surface forms (the thought before the action). Each
    response has its own logit, so two responses with the same action have different gradients, as
    two completions of a language model have. Sizes: n tasks, S states, A actions, K outcomes of an
    action, M surface forms, D dimensions of a fingerprint, W wordings.

    Attributes:
        horizon: maximum number of steps of an episode.
        outcome: next state, [n, S, A, K]; S is the end of the episode.
        chance: probability of each outcome, [n, S, A, K].
        reward: expected reward of each outcome, [n, S, A, K].
        start: first state of each task, [n].
        logits: the policy's logit of each response, [n, S, A, M].
        observation: what the agent sees in a state, [n, S]; hidden states share an observation.
        centre: unit vector around which the fingerprints of a state lie, [n, S, D].
        shift: how another wording moves the fingerprint, [n, S, W, D]; wording 0 does not. With
            more wordings than W, they take turns.
        verb: which of ``actions`` each action of a task is, [n, A].
        texts: the text of each observation.
        actions: the text of each action.
        wordings: number of wordings of an observation.
        missed: probability that the verifier misses a success; the reward of the other successes
            is raised, so that the mean stays the same.
        reward_noise: standard deviation of the noise on every reward.
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
    wordings: int
    missed: float = 0.0
    reward_noise: float = 0.0

    @property
    def count(self) -> int:
        """Number of tasks."""
        return int(self.start.size)

    @property
    def states(self) -> int:
        """Number of states of a task."""
        return int(self.outcome.shape[1])

    @property
    def forms(self) -> int:
        """Number of surface forms of an action."""
        return int(self.logits.shape[3])

    @cached_property
    def response_policy(self) -> Floats:
        """Probability of each response, [n, S, A, M]."""
        flat = self.logits.reshape(self.count, self.states, -1)
        weight = np.exp(flat - flat.max(axis=-1, keepdims=True))
        return np.asarray((weight / weight.sum(axis=-1, keepdims=True)).reshape(self.logits.shape))

    @cached_property
    def entropy(self) -> Floats:
        """Entropy of the response in each state, [n, S]."""
        chance = self.response_policy.reshape(self.count, self.states, -1)
        return np.asarray(-(chance * np.log(np.where(chance > 0, chance, 1.0))).sum(axis=-1))

    @cached_property
    def policy(self) -> Floats:
        """Probability of each action, [n, S, A]."""
        return np.asarray(self.response_policy.sum(axis=-1))

    @cached_property
    def _flat_outcome(self) -> Ints:
        """``outcome`` as an index into an array of n x (S + 1) states."""
        return self.outcome + (self.states + 1) * np.arange(self.count)[:, None, None, None]

    def solve(self, gamma: float) -> "Exact":
        """Exact values and visits of the policy."""
        return Exact(*self._values(gamma), self._visits())

    def _values(self, gamma: float) -> tuple[Floats, Floats]:
        r"""V and Q, backwards from the horizon.

        ``Q_t(s, a) = Σ_k p_k (r_k + γ V_{t+1}(s_k))``, ``V_t(s) = Σ_a π(a | s) Q_t(s, a)``; the
        value after the end or the horizon is 0.
        """
        n, states, actions, _ = self.outcome.shape
        expected_reward = (self.chance * self.reward).sum(axis=-1)
        value = np.zeros((self.horizon + 1, n, states + 1))
        q = np.zeros((self.horizon, n, states, actions))
        for t in range(self.horizon - 1, -1, -1):
            later = value[t + 1].ravel()[self._flat_outcome]
            q[t] = expected_reward + gamma * np.einsum("nsak,nsak->nsa", self.chance, later)
            value[t, :, :states] = (self.policy * q[t]).sum(axis=-1)
        return value[:-1, :, :states], q

    def _visits(self) -> Floats:
        """Probability of each state at each step, forwards from the start."""
        n, states = self.count, self.states
        visits = np.zeros((self.horizon, n, states))
        visits[0, np.arange(n), self.start] = 1.0
        for t in range(self.horizon - 1):
            flow = (visits[t][:, :, None] * self.policy)[..., None] * self.chance
            arrived = np.bincount(self._flat_outcome.ravel(), flow.ravel(), n * (states + 1))
            visits[t + 1] = arrived.reshape(n, states + 1)[:, :states]
        return visits

    def success(self) -> Floats:
        """Exact undiscounted return of the policy in each task."""
        return np.asarray(self._values(1.0)[0][0, np.arange(self.count), self.start])

    def gradient(self, exact: "Exact") -> Floats:
        r"""The policy gradient of the exact advantages, on the response logits, [n, S, A, M].

        ``Σ_t d_t(s) π(a, m | s) A_t(s, a)`` with d the visits: the expectation, over trajectories,
        of the sum of ``A ∇ log π``. Summed over m it is the gradient on the action logits.
        """
        mean = np.einsum("tns,tnsa->nsa", exact.visits, exact.advantage)
        return np.asarray(self.response_policy * mean[..., None])

    def by_action(self, gradient: Floats) -> Floats:
        """A flat gradient of response logits, summed to that of action logits."""
        return np.asarray(gradient.reshape(*gradient.shape[:-1], -1, self.forms).sum(axis=-1))


@dataclass(frozen=True, eq=False)
class Exact:
    """Exact values of a policy, by step, task and state."""

    value: Floats
    """V, [T, n, S]."""
    q: Floats
    """Q, [T, n, S, A]."""
    visits: Floats
    """Probability of being in a state at a step, [T, n, S]."""

    @cached_property
    def advantage(self) -> Floats:
        """Q - V, [T, n, S, A]."""
        return np.asarray(self.q - self.value[..., None])


def unit(vectors: Floats) -> Floats:
    """The vectors, scaled to unit length."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


@dataclass(frozen=True, eq=False)
class Episodes:
    """Sampled episodes: arrays over episodes and steps, with ``alive`` where a step was taken."""

    task: Ints
    """Task of each episode."""
    state: Ints
    response: Ints
    """Action times number of surface forms, plus surface form."""
    reward: Floats
    alive: Bools
    ended: Bools
    """Whether the episode terminated before the horizon."""


def sample_episodes(
    tasks: TabularTasks,
    group_size: int,
    random: np.random.Generator,
    drawn: Ints | None = None,
) -> Episodes:
    """``group_size`` episodes of every task, or of some, under its policy, all at once."""
    n, states, actions, forms = tasks.logits.shape
    task = np.repeat(np.arange(n) if drawn is None else drawn, group_size)
    responses = tasks.response_policy.reshape(n, states, actions * forms).cumsum(axis=-1)
    outcomes = tasks.chance.cumsum(axis=-1)
    current = tasks.start[task]
    shape = (task.size, tasks.horizon)
    state, response = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    reward, alive = np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    running = np.ones(task.size, dtype=np.bool_)
    for t in range(tasks.horizon):
        visited = np.minimum(current, states - 1)
        sampled = _draw(responses[task, visited], random)
        action = sampled // forms
        outcome = _draw(outcomes[task, visited, action], random)
        payoff = tasks.reward[task, visited, action, outcome]
        if tasks.missed:
            noticed = random.random(task.size) >= tasks.missed
            payoff = np.where(payoff > 0.5, payoff * noticed / (1 - tasks.missed), payoff)
        if tasks.reward_noise:
            payoff = payoff + tasks.reward_noise * random.normal(size=task.size)
        state[:, t], response[:, t], alive[:, t] = visited, sampled, running
        reward[:, t] = np.where(running, payoff, 0.0)
        current = np.where(running, tasks.outcome[task, visited, action, outcome], current)
        running = running & (current < states)
    return Episodes(task, state, response, reward, alive, ~running)


def _draw(cumulative: Floats, random: np.random.Generator) -> Ints:
    """One draw from each row of cumulative probabilities."""
    below = random.random((cumulative.shape[0], 1)) >= cumulative
    return np.asarray(np.minimum(below.sum(axis=1), cumulative.shape[1] - 1))


@dataclass(frozen=True)
class Conditions:
    """How tasks are rolled out.

    Attributes:
        group_size: episodes of each task.
        paraphrase: probability that an observation is paraphrased.
        noise: length of the noise on each fingerprint; a paraphrase adds a shift of 0.22.
        blur: from 0 to 1, the weight of one direction that all fingerprints share. Clusters of
            blurred fingerprints mix states.
    """

    group_size: int = 8
    paraphrase: float = 0.3
    noise: float = 0.15
    blur: float = 0.0


@dataclass(frozen=True, eq=False)
class AuditBatch:
    """A step table with the true task, state and advantage of each of its rows."""

    table: StepTable
    task: Ints
    step: Ints
    state: Ints
    response: Ints
    advantage: Floats
    """The exact advantage of the action taken."""
    group_size: int


def rollouts(
    tasks: TabularTasks,
    exact: Exact | None,
    random: np.random.Generator,
    conditions: Conditions,
    drawn: Ints | None = None,
) -> AuditBatch:
    """A batch of rollouts as a step table with fingerprints, and the true values of its rows.

    Args:
        tasks: the tasks, each a group of the table.
        exact: their exact values; without them the batch's true advantages are NaN.
        random: source of randomness.
        conditions: how the tasks are rolled out.
        drawn: the tasks that are, in ascending order; by default all.
    """
    episodes = sample_episodes(tasks, conditions.group_size, random, drawn)
    episode, step = np.nonzero(episodes.alive)
    task, state = episodes.task[episode], episodes.state[episode, step]
    response = episodes.response[episode, step]
    wordings, shifts = tasks.wordings, tasks.shift.shape[2]
    paraphrased = random.random(task.size) < conditions.paraphrase
    wording = np.where(paraphrased, random.integers(1, max(wordings, 2), task.size) % wordings, 0)

    common = np.zeros(tasks.centre.shape[2])
    common[0] = 1.0
    centre = np.sqrt(1 - conditions.blur) * tasks.centre + np.sqrt(conditions.blur) * common
    vectors = centre[task, state] + 0.22 * tasks.shift[task, state, wording % shifts]
    vectors += conditions.noise * random.normal(size=vectors.shape) / vectors.shape[1] ** 0.5

    text = tasks.verb[task, response // tasks.forms] * tasks.forms + response % tasks.forms
    last = np.append(episode[1:] != episode[:-1], True)
    table = StepTable(
        group=Coded(task, _names("task", tasks.count)),
        trajectory=Coded(episode, _names("episode", episodes.task.size)),
        step=step,
        state=Coded(
            tasks.observation[task, state] * wordings + wording,
            _states(tuple(tasks.texts), wordings),
        ),
        action=Coded(text, _responses(tasks)),
        reward=episodes.reward[episode, step],
        terminated=last & episodes.ended[episode],
        truncated=last & ~episodes.ended[episode],
        fingerprint=unit(vectors),
        entropy=tasks.entropy[task, state],
    )
    truth = np.full(task.size, np.nan)
    if exact is not None:
        truth = exact.advantage[step, task, state, response // tasks.forms]
    return AuditBatch(table, task, step, state, response, truth, conditions.group_size)


def _names(kind: str, count: int) -> Objects:
    return np.array([f"{kind} {index:06}" for index in range(count)], dtype=object)


@lru_cache(maxsize=4)
def _states(texts: tuple[str, ...], wordings: int) -> Objects:
    openings = [OPENINGS[w] if w < len(OPENINGS) else f"({w}) " for w in range(wordings)]
    return np.array([opening + text for text in texts for opening in openings], dtype=object)


def _responses(tasks: TabularTasks) -> Objects:
    thoughts = [THOUGHTS[m] if m < len(THOUGHTS) else f"Thought {m}." for m in range(tasks.forms)]
    texts = [f"<think>{t}</think><action>{a}</action>" for a in tasks.actions for t in thoughts]
    return np.array(texts, dtype=object)
