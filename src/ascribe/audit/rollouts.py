"""Rollouts of known tasks, all episodes side by side, as the step table that a recipe sees."""

from dataclasses import dataclass

import numpy as np

from ascribe.audit.tasks import Exact, Tasks, unit
from ascribe.steps.arrays import Bools, Floats, Ints, Objects
from ascribe.steps.table import Coded, StepTable

OPENINGS = ("", "Now: ", "It is your turn. ", "Look: ", "So far: ", "This is what you see. ")
"""Wordings of one observation differ in how they open."""

THOUGHTS = ("I know what to do.", "Let me think.", "One thing at a time.", "This should help.")
"""Surface forms of one action differ in the thought before it."""


@dataclass(frozen=True, eq=False)
class Walk:
    """What happened: arrays over episodes and steps, with ``alive`` where a step was taken."""

    task: Ints
    """Task of each episode."""
    state: Ints
    response: Ints
    """Action times surface forms, plus surface form."""
    reward: Floats
    alive: Bools
    ended: Bools
    """Whether the episode ended by itself."""


@dataclass(frozen=True, eq=False)
class Batch:
    """A step table, and what is true of each of its rows, in the table's row order."""

    table: StepTable
    task: Ints
    step: Ints
    state: Ints
    response: Ints
    advantage: Floats
    """The exact advantage of the action taken."""
    group_size: int


def walk(tasks: Tasks, group_size: int, random: np.random.Generator) -> Walk:
    """Episodes of every task under its policy, step by step, all episodes at once."""
    n, states, actions, forms = tasks.logits.shape
    task = np.repeat(np.arange(n), group_size)
    responses = tasks.response_policy.reshape(n, states, actions * forms).cumsum(axis=-1)
    outcomes = tasks.chance.cumsum(axis=-1)
    now = tasks.start[task]
    shape = (task.size, tasks.horizon)
    state, response = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    reward, alive = np.zeros(shape), np.zeros(shape, dtype=np.bool_)
    going = np.ones(task.size, dtype=np.bool_)
    for t in range(tasks.horizon):
        here = np.minimum(now, states - 1)
        said = _drawn(responses[task, here], random)
        action = said // forms
        came = _drawn(outcomes[task, here, action], random)
        paid = tasks.reward[task, here, action, came]
        if tasks.missed:
            seen = random.random(task.size) >= tasks.missed
            paid = np.where(paid > 0.5, paid * seen / (1 - tasks.missed), paid)
        if tasks.reward_noise:
            paid = paid + tasks.reward_noise * random.normal(size=task.size)
        state[:, t], response[:, t], alive[:, t] = here, said, going
        reward[:, t] = np.where(going, paid, 0.0)
        now = np.where(going, tasks.outcome[task, here, action, came], now)
        going = going & (now < states)
    return Walk(task, state, response, reward, alive, ~going)


def _drawn(cumulative: Floats, random: np.random.Generator) -> Ints:
    """One draw from each row of cumulative probabilities."""
    below = random.random((cumulative.shape[0], 1)) >= cumulative
    return np.asarray(np.minimum(below.sum(axis=1), cumulative.shape[1] - 1))


@dataclass(frozen=True)
class Conditions:
    """How tasks are rolled out.

    Attributes:
        group_size: episodes of each task.
        paraphrase: chance that an observation is worded otherwise than usual.
        noise: length of the noise on each fingerprint; another wording moves it by 0.22 besides.
        blur: from 0 to 1, how much all fingerprints look alike: the share of a direction that all
            states have in common. Clusters of blurred fingerprints mix states.
    """

    group_size: int = 8
    paraphrase: float = 0.3
    noise: float = 0.15
    blur: float = 0.0


def rollouts(
    tasks: Tasks, exact: Exact | None, random: np.random.Generator, conditions: Conditions
) -> Batch:
    """A batch of rollouts as a step table with fingerprints, and the truth beside it.

    Args:
        tasks: the tasks, each a group of the table.
        exact: their exact values; without them the batch's true advantages are NaN.
        random: where randomness comes from.
        conditions: how the tasks are rolled out.
    """
    walked = walk(tasks, conditions.group_size, random)
    episode, step = np.nonzero(walked.alive)
    task, state = walked.task[episode], walked.state[episode, step]
    response = walked.response[episode, step]
    wordings = tasks.shift.shape[2]
    other = random.random(task.size) < conditions.paraphrase
    wording = np.where(other, random.integers(1, max(wordings, 2), task.size) % wordings, 0)

    common = np.zeros(tasks.centre.shape[2])
    common[0] = 1.0
    centre = np.sqrt(1 - conditions.blur) * tasks.centre + np.sqrt(conditions.blur) * common
    vectors = centre[task, state] + 0.22 * tasks.shift[task, state, wording]
    vectors += conditions.noise * random.normal(size=vectors.shape) / vectors.shape[1] ** 0.5

    spoken = tasks.verb[task, response // tasks.forms] * tasks.forms + response % tasks.forms
    last = np.append(episode[1:] != episode[:-1], True)
    table = StepTable(
        group=Coded(task, _names("task", tasks.count)),
        trajectory=Coded(episode, _names("episode", walked.task.size)),
        step=step,
        state=Coded(tasks.observation[task, state] * wordings + wording, _states(tasks, wordings)),
        action=Coded(spoken, _responses(tasks)),
        reward=walked.reward[episode, step],
        terminated=last & walked.ended[episode],
        truncated=last & ~walked.ended[episode],
        fingerprint=unit(vectors),
    )
    truth = np.full(task.size, np.nan)
    if exact is not None:
        truth = exact.advantage[step, task, state, response // tasks.forms]
    return Batch(table, task, step, state, response, truth, conditions.group_size)


def _names(kind: str, count: int) -> Objects:
    return np.array([f"{kind} {number:06}" for number in range(count)], dtype=object)


def _states(tasks: Tasks, wordings: int) -> Objects:
    openings = [OPENINGS[w] if w < len(OPENINGS) else f"({w}) " for w in range(wordings)]
    texts = [opening + text for text in tasks.texts for opening in openings]
    return np.array(texts, dtype=object)


def _responses(tasks: Tasks) -> Objects:
    thoughts = [THOUGHTS[m] if m < len(THOUGHTS) else f"Thought {m}." for m in range(tasks.forms)]
    texts = [
        f"<think>{thought}</think><action>{action}</action>"
        for action in tasks.actions
        for thought in thoughts
    ]
    return np.array(texts, dtype=object)
