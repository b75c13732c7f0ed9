"""Eight small worlds, each of which makes step-level credit hard in one way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ascribe.steps.arrays import Floats, Ints
from ascribe_lab.audit.tasks import Conditions, TabularTasks, unit

DIMENSIONS = 16
"""Dimensions of a fingerprint."""

SHIFTS = 32
"""Most ways in which a wording moves a fingerprint."""

DOORS = ("go north", "go east", "go south", "go west")

ITEMS: dict[str, tuple[str, ...]] = {
    "oak log": (),
    "oak planks": ("oak log",),
    "stick": ("oak planks",),
    "crafting table": ("oak planks",),
    "wooden pickaxe": ("oak planks", "stick", "crafting table"),
    "wooden sword": ("oak planks", "stick", "crafting table"),
    "wooden axe": ("oak planks", "stick", "crafting table"),
    "ladder": ("stick", "crafting table"),
    "cobblestone": ("wooden pickaxe",),
    "string": (),
    "wool": (),
    "leather": (),
    "bow": ("stick", "string", "crafting table"),
    "fishing rod": ("stick", "string", "crafting table"),
    "painting": ("stick", "wool", "crafting table"),
    "item frame": ("stick", "leather", "crafting table"),
}
"""Minecraft items and what each is made with. Amounts do not count: items are not used up."""

LONG_GOALS = ("cobblestone", "bow", "fishing rod", "painting", "item frame")
"""Goals that take six items."""

SHORT_GOALS = ("wooden pickaxe", "wooden sword", "wooden axe", "ladder")
"""Goals that take five items."""


Arrays = dict[str, Any]
"""The arrays of one task, by field of ``TabularTasks``, without wordings and surface forms."""


@dataclass(frozen=True)
class World:
    """A family of tasks.

    Attributes:
        about: why credit assignment is hard in it.
        build: draws a random task.
        horizon: maximum number of steps of an episode.
        texts: the text of each observation.
        actions: the text of each action.
        paraphrase: probability that an observation is paraphrased.
        wordings: number of wordings of an observation.
        noise: length of the noise on each fingerprint.
        missed: see ``TabularTasks``.
        reward_noise: see ``TabularTasks``.
        pays_once: whether the return is a success between 0 and 1.
    """

    about: str
    build: Callable[[np.random.Generator], Arrays]
    horizon: int
    texts: Sequence[str]
    actions: Sequence[str]
    paraphrase: float
    wordings: int = 2
    noise: float = Conditions.noise
    missed: float = 0.0
    reward_noise: float = 0.0
    pays_once: bool = True

    def tasks(
        self,
        count: int,
        random: np.random.Generator,
        *,
        forms: int = 4,
        wordings: int | None = None,
        success: tuple[float, float] = (0.1, 0.9),
    ) -> TabularTasks:
        """Random tasks in which the policy's success lies between two bounds.

        Args:
            count: number of tasks.
            random: source of randomness.
            forms: surface forms of each action.
            wordings: wordings of each observation; by default the world's own number.
            success: bounds on the exact success; without failures or without successes, credit
                has no signal.
        """
        wordings = wordings or self.wordings
        draws: list[Arrays] = []
        while sum(draw["start"].size for draw in draws) < count:
            drafts = [self.build(random) for _ in range(count)]
            draw = {name: np.stack([draft[name] for draft in drafts]) for name in drafts[0]}
            shape = (*draw["observation"].shape, min(wordings, SHIFTS), DIMENSIONS)
            draw["shift"] = random.normal(size=shape) / DIMENSIONS**0.5
            draw["shift"][:, :, 0] = 0.0
            draw["logits"] = draw["logits"][..., None]
            rate = self._build_tasks(draw, wordings).success()
            accepted = (rate > success[0]) & (rate < success[1]) | (not self.pays_once)
            draws.append({name: values[accepted] for name, values in draw.items()})
        arrays = {name: np.concatenate([draw[name] for draw in draws])[:count] for name in draws[0]}
        arrays["logits"] = np.repeat(arrays["logits"], forms, axis=-1) - np.log(forms)
        return self._build_tasks(arrays, wordings)

    def _build_tasks(self, arrays: Arrays, wordings: int) -> TabularTasks:
        return TabularTasks(
            horizon=self.horizon,
            texts=self.texts,
            actions=self.actions,
            wordings=wordings,
            missed=self.missed,
            reward_noise=self.reward_noise,
            **arrays,
        )


def _graph(
    random: np.random.Generator,
    *,
    states: int,
    slip: float,
    pull: float,
    goals: int = 3,
    alias: float = 0.0,
) -> Arrays:
    """A random graph of rooms; some doors lead back to the same room, and an action may slip.

    ``goals`` doors lead to the goal, which pays 1 and ends the episode; with 0 every door has a
    reward, and episodes end at the horizon. ``pull`` is how strongly the policy may prefer
    doors towards the goal, or away from it. A share ``alias`` of the rooms look like others.
    """
    actions = 4
    stay = np.broadcast_to(np.arange(states)[:, None], (states, actions))
    leads = random.integers(0, states, (states, actions))
    leads = np.where(random.random((states, actions)) < 0.15, stay, leads)
    reward = np.zeros((states, actions, 3))
    logits = 0.8 * random.normal(size=(states, actions))
    if not goals:
        payoff = random.normal(size=(states, actions))
        reward += 0.3 * payoff[..., None]
        logits += 0.4 * payoff
    else:
        leads.ravel()[random.choice(states * actions, goals, replace=False)] = states
        away = steps_to_goal(leads)[leads]
        toward = pull * random.uniform(-1.0, 1.0)
        logits -= toward * (away - away.min(axis=1, keepdims=True)).clip(0, 3)
        reward[..., 0] = leads == states
    elsewhere = random.integers(0, states, (states, actions))
    looks = np.arange(states)
    alike = int(alias * states)
    looks[states - alike :] = random.integers(0, states - alike, alike)
    return {
        "outcome": np.stack([leads, stay, elsewhere], axis=-1),
        "chance": np.broadcast_to([1 - slip, slip / 2, slip / 2], reward.shape),
        "reward": reward,
        "logits": logits,
        "start": 0,
        "observation": looks,
        "centre": unit(random.normal(size=(states, DIMENSIONS)))[looks],
        "verb": np.arange(actions),
    }


def steps_to_goal(leads: Ints) -> Floats:
    """Fewest actions from each state to the goal (the last entry), if no action slips."""
    states = leads.shape[0]
    away = np.append(np.full(states, 99.0), 0.0)
    for _ in range(states):
        away[:states] = np.minimum(away[:states], 1 + away[leads].min(axis=1))
    return away


def _closure(goal: str) -> list[str]:
    """The goal and everything it takes, in the order in which it can be made."""
    needed = {goal}
    for name in reversed(ITEMS):
        if name in needed:
            needed |= set(ITEMS[name])
    return [name for name in ITEMS if name in needed]


def _craft(random: np.random.Generator, *, goals: Sequence[str], blind: bool = False) -> Arrays:
    """Crafting with prerequisites: an item can be made once everything it needs is held.

    The last action drops an item by mistake. Making the goal pays 1 and ends the episode. After an
    action that fails, a ``blind`` agent sees "Nothing happens." instead of what it holds.
    """
    goal = int(random.integers(len(goals)))
    items = _closure(goals[goal])
    size, held = len(items), np.arange(1 << len(items))
    needs = [sum(1 << items.index(ingredient) for ingredient in ITEMS[name]) for name in items]
    dropped = 1 << int(random.integers(0, size - 1))
    outcome = np.zeros((held.size, size + 1), dtype=np.int64)
    fails = np.zeros(outcome.shape, dtype=np.bool_)
    for a, need in enumerate(needs):
        makes = ((held >> a) & 1 == 0) & (held & need == need)
        outcome[:, a] = np.where(makes, held | (1 << a), held)
        fails[:, a] = ~makes
    outcome[:, size] = held & ~dropped
    fails[:, size] = held & dropped == 0
    end = 2 * held.size if blind else held.size
    outcome[:, size - 1] = np.where(fails[:, size - 1], held, end)
    logits = 0.7 * random.normal(size=outcome.shape) - 1.1 * fails
    logits[:, size] -= 0.3
    observation, centre = held, unit(random.normal(size=(held.size, DIMENSIONS)))
    if blind:
        seeing = np.where(fails & (outcome != end), outcome + held.size, outcome)
        outcome = np.concatenate([seeing, seeing])
        logits = np.concatenate([logits, logits + 0.3 * random.normal(size=logits.shape)])
        observation = np.append(held, np.full(held.size, held.size))
        # What the agent holds is in its memory, but hardly in the fingerprint of what it sees.
        nothing = unit(random.normal(size=DIMENSIONS))
        centre = np.concatenate([centre, unit(nothing + 0.38 * centre)])
    kinds = list(ITEMS)
    unchanged = np.broadcast_to(np.arange(outcome.shape[0])[:, None], outcome.shape)
    reward = np.zeros((*outcome.shape, 2))
    reward[..., 0] = outcome == end
    return {
        "outcome": np.stack([outcome, unchanged], axis=-1),
        "chance": np.broadcast_to([0.95, 0.05], reward.shape),
        "reward": reward,
        "logits": logits,
        "start": 0,
        "observation": observation + goal * (held.size + blind),
        "centre": centre,
        "verb": np.array([*(kinds.index(name) for name in items), len(kinds)]),
    }


def _stop(random: np.random.Generator) -> Arrays:
    """Improve one of three drafts and decide when to hand it in.

    Handing in ends the episode and pays 1 with a probability that grows with the draft's quality.
    Each other turn costs 0.01. Careful work improves the draft by one; hasty work improves it by
    two, or makes it worse.
    """
    levels, drafts, actions = 6, 3, 4
    states = levels * drafts
    draft, quality = np.divmod(np.arange(states), levels)
    accepted = np.sort(random.beta(0.8, 0.8, levels))
    accepted[0] = 0.02
    best = np.append(levels - 1, random.integers(1, levels, drafts - 1))[draft]
    care = random.uniform(0.35, 0.8, drafts)[draft]
    base = draft * levels
    outcome = np.repeat(np.arange(states)[:, None, None], 2, axis=2)
    outcome = np.repeat(outcome, actions, axis=1)
    outcome[:, 0, :] = states
    outcome[:, 1, 0] = base + np.minimum(quality + 1, best)
    outcome[:, 2, 0] = base + np.minimum(quality + 2, best)
    outcome[:, 2, 1] = base + np.maximum(quality - 2, 0)
    outcome[:, 3, 0] = (draft + 1) % drafts * levels + quality // 2
    prob = np.stack([accepted[quality], care, np.full(states, 0.45), np.full(states, 0.9)], axis=1)
    reward = np.full((states, actions, 2), -0.01)
    reward[:, 0] = 1.0, 0.0
    logits = 0.6 * random.normal(size=(states, actions))
    logits[:, 0] += 0.4 * quality - 1.2
    return {
        "outcome": outcome,
        "chance": np.stack([prob, 1 - prob], axis=-1),
        "reward": reward,
        "logits": logits,
        "start": int(random.integers(0, drafts)) * levels,
        "observation": np.arange(states),
        "centre": unit(random.normal(size=(states, DIMENSIONS))),
        "verb": np.arange(actions),
    }


def _keydoor(random: np.random.Generator) -> Arrays:
    """A corridor with a locked door at its end and a key buried at one place.

    The key determines how often the door pays, but no observation shows whether the agent has it.
    """
    places, actions = 6, 4
    states = 2 * places
    key, place = np.divmod(np.arange(states), places)
    buried = int(random.integers(1, 3))
    stay = np.arange(states)
    outcome = np.repeat(np.repeat(stay[:, None, None], 2, axis=2), actions, axis=1)
    chance = np.zeros((states, actions, 2))
    chance[...] = 0.95, 0.05
    reward = np.zeros((states, actions, 2))
    at_door = place == places - 1
    outcome[:, 0, 0] = np.where(at_door, states, stay + 1)
    outcome[at_door, 0, 1] = states
    chance[at_door, 0, 0] = np.where(key[at_door] == 1, 0.9, 0.15)
    chance[at_door, 0, 1] = 1 - chance[at_door, 0, 0]
    reward[at_door, 0, 0] = 1.0
    outcome[:, 1, 0] = key * places + np.maximum(place - 1, 0)
    outcome[:, 2, 0] = places + place
    chance[:, 2, 0] = np.where((key == 0) & (place == buried), 0.6, 0.0)
    chance[:, 2, 1] = 1 - chance[:, 2, 0]
    taste = 0.4 * random.normal(size=(places, actions))
    logits = np.concatenate([taste, taste + 0.2 * random.normal(size=taste.shape)])
    logits[:, 0] += 1.0
    logits[place == buried, 2] += 0.4
    visible = unit(random.normal(size=(places, DIMENSIONS)))[place]
    trace = 0.12 * (2 * key - 1)[:, None] * unit(random.normal(size=DIMENSIONS))
    return {
        "outcome": outcome,
        "chance": chance,
        "reward": reward,
        "logits": logits,
        "start": 0,
        "observation": place,
        "centre": unit(visible + trace),
        "verb": np.arange(actions),
    }


def graph_world(
    about: str, *, states: int = 16, slip: float = 0.1, pull: float = 0.0, **fields: Any
) -> World:
    """A world of random graphs: arguments of ``_graph``, and fields of ``World``."""
    kinds = {name: fields.pop(name) for name in ("goals", "alias") if name in fields}
    build = partial(_graph, states=states, slip=slip, pull=pull, **kinds)
    texts = [f"You are in room {number} of {states}." for number in range(states)]
    pays_once = kinds.get("goals", 3) > 0
    return World(about, build, texts=texts, actions=DOORS, pays_once=pays_once, **fields)


def _craft_world(about: str, goals: Sequence[str], *, blind: bool) -> World:
    """Texts are what the agent may hold on the way to each goal, in the order of the states."""
    texts = []
    for goal in goals:
        items = _closure(goal)
        for code in range(1 << len(items)):
            held = [name for bit, name in enumerate(items) if code >> bit & 1]
            texts.append(f"Make: {goal}. You hold: {', '.join(held) or 'nothing'}.")
        texts += ["Nothing happens."] * blind
    return World(
        about=about,
        build=partial(_craft, goals=goals, blind=blind),
        horizon=18,
        texts=texts,
        actions=(*(f"make {name}" for name in ITEMS), "tidy up"),
        paraphrase=0.45,
        wordings=3,
    )


WORLDS: dict[str, World] = {
    "graph": graph_world(
        "paraphrased states of a random graph", pull=0.8, horizon=14, paraphrase=0.25
    ),
    "craft": _craft_world("prerequisites: recipes of Minecraft", LONG_GOALS, blind=False),
    "alias": _craft_world(
        'one observation, "Nothing happens.", for many states', SHORT_GOALS, blind=True
    ),
    "stop": World(
        about="the policy decides when the episode ends",
        build=_stop,
        horizon=20,
        texts=[f"Draft {d + 1} has quality {q}." for d in range(3) for q in range(6)],
        actions=("hand in", "work with care", "work in haste", "take up another draft"),
        paraphrase=0.3,
    ),
    "chance": graph_world(
        "stochastic transitions and a verifier that misses successes",
        slip=0.4,
        pull=1.0,
        horizon=14,
        paraphrase=0.25,
        missed=0.3,
    ),
    "dense": graph_world(
        "a noisy reward at every step",
        goals=0,
        horizon=12,
        paraphrase=0.3,
        reward_noise=0.3,
    ),
    "keydoor": World(
        about="a hidden variable determines the reward",
        build=_keydoor,
        horizon=18,
        texts=[f"You stand at place {number} of the corridor." for number in range(6)],
        actions=("go on", "go back", "dig", "wait"),
        paraphrase=0.45,
        wordings=3,
    ),
    "long": graph_world(
        "horizon 50, with loops", states=36, pull=0.6, horizon=50, paraphrase=0.4, wordings=3
    ),
}
"""Every world by name."""
