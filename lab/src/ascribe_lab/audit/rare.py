"""Six more worlds: long horizons, states that rarely recur, bounded memory, and sub-agents."""

from functools import partial
from itertools import product

import numpy as np

from ascribe.steps.arrays import Floats, Ints
from ascribe_lab.audit.tasks import unit
from ascribe_lab.audit.worlds import (
    DIMENSIONS,
    DOORS,
    WORLDS,
    Arrays,
    World,
    graph_world,
    steps_to_goal,
)

ROOMS = 10
"""Rooms of a quest."""

WINDOW, FINDINGS = 6, 4
"""Lines that fit into a context window, and findings that there are."""

NOTES = [
    (lines, saved, fresh)
    for lines, saved, fresh in product(range(WINDOW), range(FINDINGS + 1), range(FINDINGS + 1))
    if saved + fresh <= FINDINGS
]
"""States of a window: lines in use, findings in the summary, and findings that are not yet."""

PARTS, FLAWS, DRAFTS = 3, 2, 2
"""Parts of a task that can be delegated, flaws that count, and drafts of a sub-agent."""

TEAM = list(product(range(PARTS + 1), range(FLAWS + 1), range(DRAFTS + 2)))
"""States of a team: parts done, flaws, and whose turn it is: 0 the agent's, else a sub-agent's with
one draft less than that."""

TOOLS = ("search", "edit", "test", "submit")
PHASES = 5
"""Phases of work in a shell; one tool leads from each to the next."""

SHELL = list(product(range(PHASES + 1), range(len(TOOLS)), range(2)))
"""States of a shell: phase, tool used last, and whether it failed."""


def _arrays(
    done: Ints, failed: Ints, *, chance: Floats, pays: Floats, logits: Floats, looks: Floats
) -> Arrays:
    """A task whose actions succeed with a chance, and pay only then. The first state is the start.

    All arrays have a row for each state; ``looks`` is what fingerprints are made of.
    """
    return {
        "outcome": np.stack([done, failed], axis=-1),
        "chance": np.stack([chance, 1 - chance], axis=-1),
        "reward": np.stack([pays, np.zeros_like(pays)], axis=-1),
        "logits": logits,
        "start": 0,
        "observation": np.arange(len(done)),
        "centre": unit(looks),
        "verb": np.arange(done.shape[1]),
    }


def _looks(random: np.random.Generator, *parts: Ints) -> Floats:
    """Vectors that are sums of one for each value of each part of a state."""
    vectors = [random.normal(size=(part.max() + 1, DIMENSIONS))[part] for part in parts]
    return np.asarray(np.sum(vectors, axis=0))


def _quest(random: np.random.Generator, *, legs: int, pull: float) -> Arrays:
    """One door to be found on each leg; behind the last one the episode ends and pays 1.

    All legs have the same rooms. On each leg, one door leads back to the leg before.
    """
    actions, states = len(DOORS), legs * ROOMS
    leads = random.integers(0, ROOMS, (ROOMS, actions))
    toward = pull * random.uniform(0.3, 1.0)
    done = np.zeros((legs, ROOMS, actions), dtype=np.int64)
    logits = 0.6 * random.normal(size=done.shape)
    for leg in range(legs):
        door, trap = random.choice(ROOMS * actions, 2, replace=False)
        ways = leads.copy()
        ways.ravel()[door] = ROOMS
        away = steps_to_goal(ways)[ways]
        logits[leg] -= toward * (away - away.min(axis=1, keepdims=True)).clip(0, 3)
        done[leg] = leg * ROOMS + leads
        done[leg].ravel()[trap] = max(leg - 1, 0) * ROOMS + trap // actions
        done[leg].ravel()[door] = (leg + 1) * ROOMS + (door // actions if leg < legs - 1 else 0)
    shape = (states, actions)
    leads = done.reshape(shape)
    stay = np.broadcast_to(np.arange(states)[:, None], shape)
    return _arrays(
        leads,
        stay,
        chance=np.full(shape, 0.9),
        pays=(leads == states).astype(np.float64),
        logits=logits.reshape(shape),
        looks=_looks(random, *np.divmod(np.arange(states), ROOMS)),
    )


def _compaction(random: np.random.Generator) -> Arrays:
    """Collect findings in a window of a few lines, and answer.

    A full window is emptied, and findings that no summary holds are lost. A summary takes one line.
    An answer ends the episode and pays 1 with a chance that grows with the findings.
    """
    number = {state: index for index, state in enumerate(NOTES)}

    def at(lines: int, saved: int, fresh: int) -> int:
        fresh = min(fresh, FINDINGS - saved)
        return number[(lines, saved, fresh) if lines < WINDOW else (min(saved, 1), saved, 0)]

    end = len(NOTES)
    done = [[at(n + 1, s, f + 1), at(n + 2, s, f + 1), at(1, s + f, 0), end] for n, s, f in NOTES]
    failed = [[at(n + 1, s, f), at(n + 2, s, f), at(n + 1, s, f), end] for n, s, f in NOTES]
    lines, saved, fresh = np.array(NOTES).T
    found = saved + fresh
    accepted = 0.02 + 0.9 * (found / FINDINGS) ** random.uniform(1.5, 3.0)
    chance = np.empty((end, 4))
    chance[:, 0], chance[:, 1] = random.uniform(0.15, 0.35), random.uniform(0.3, 0.6)
    chance[:, 2], chance[:, 3] = 0.95, accepted
    pays = np.zeros((end, 4))
    pays[:, 3] = 1.0
    logits = 0.6 * random.normal(size=(end, 4))
    logits[:, 2] -= 0.8
    logits[:, 3] += 0.4 * found - 2.0
    looks = _looks(random, lines, saved, fresh)
    ends = np.array([done, failed])
    return _arrays(*ends, chance=chance, pays=pays, logits=logits, looks=looks)


def _delegate(random: np.random.Generator) -> Arrays:
    """A task of several parts; the agent does a part itself or calls a sub-agent for it.

    A sub-agent improves its draft until it reports; the better the draft, the more likely is the
    part done, and else there is a flaw. Handing in ends the episode and pays 1 with a chance that
    grows with the parts and falls with the flaws. Which way is better differs from task to task.
    """
    number = {state: index for index, state in enumerate(TEAM)}
    end, done, failed = len(TEAM), [], []
    for parts, flaws, turn in TEAM:
        here, more = number[parts, flaws, turn], number[parts, min(flaws + 1, FLAWS), 0]
        part = number[min(parts + 1, PARTS), flaws, 0]
        if turn:
            draft = number[parts, flaws, min(turn + 1, DRAFTS + 1)]
            done.append([draft, here, here, part])
            failed.append([here, here, here, more])
        else:
            called, fixed = number[parts, flaws, 1], number[parts, max(flaws - 1, 0), 0]
            done.append([part, called, fixed, end])
            failed.append([more, here, here, end])
    parts, flaws, turn = np.array(TEAM).T
    own, skill = random.uniform(0.1, 0.9), random.uniform(0.3, 0.9)
    accepted = np.array([0.02, 0.1, 0.35, 0.95])[parts] * 0.4**flaws
    reported = np.array([0.1, 0.6, 0.95])[turn - 1]
    chance = np.full((end, 4), 0.95)
    chance[:, 0] = np.where(turn > 0, skill, own)
    chance[:, 2] = 0.1
    chance[:, 3] = np.where(turn > 0, reported, accepted)
    pays = np.zeros((end, 4))
    pays[turn == 0, 3] = 1.0
    logits = 0.6 * random.normal(size=(end, 4))
    logits[:, 3] += np.where(turn > 0, -0.3, 0.6 * parts - 1.6)
    ends, looks = np.array([done, failed]), _looks(random, parts, flaws, turn)
    return _arrays(*ends, chance=chance, pays=pays, logits=logits, looks=looks)


def _shell(random: np.random.Generator) -> Arrays:
    """Work in a shell through phases, each of which has a right tool.

    A wrong tool may break what was done; after an error only the tool that mends it helps.
    Submitting ends the episode and pays 1 with a chance that grows with the phase. Texts tell the
    tool used last and whether it failed, and hardly ever recur; the phase only fingerprints tell.
    """
    number = {state: index for index, state in enumerate(SHELL)}
    right, mends = random.integers(0, 3, PHASES + 1), int(random.integers(0, 3))
    end, done, failed = len(SHELL), [], []
    chance = np.full((end, 4), 0.75)
    for row, (phase, _, error) in enumerate(SHELL):
        done.append([number[phase, tool, error] for tool in range(3)] + [end])
        failed.append([number[max(phase - 1 + error, 0), tool, 1] for tool in range(3)] + [end])
        if error:
            done[row][mends] = number[phase, mends, 0]
        elif phase < PHASES:
            tool = right[phase]
            done[row][tool], failed[row][tool] = number[phase + 1, tool, 0], number[phase, tool, 1]
    phase, tool, error = np.array(SHELL).T
    chance[:, 3] = (0.02 + 0.9 * (phase / PHASES) ** 2) * np.where(error, 0.4, 1.0)
    pays = np.zeros((end, 4))
    pays[:, 3] = 1.0
    logits = 0.6 * random.normal(size=(end, 4))
    logits[np.arange(end), right[phase]] += 0.5
    logits[:, 3] += 0.3 * phase - 1.5
    ends, looks = np.array([done, failed]), _looks(random, phase, tool, error)
    arrays = _arrays(*ends, chance=chance, pays=pays, logits=logits, looks=looks)
    return arrays | {"observation": 2 * tool + error}


def _quest_world(about: str, *, legs: int, pull: float, horizon: int) -> World:
    """Texts tell the leg and the room."""
    places = product(range(1, legs + 1), range(1, ROOMS + 1))
    return World(
        about=about,
        build=partial(_quest, legs=legs, pull=pull),
        horizon=horizon,
        texts=[f"Leg {leg} of {legs}, room {room}." for leg, room in places],
        actions=DOORS,
        paraphrase=0.3,
    )


def _turn(turn: int) -> str:
    return f"Sub-agent: your draft is number {turn - 1}." if turn else "Agent: it is your turn."


RARE_WORLDS: dict[str, World] = {
    "quest60": _quest_world("horizon 60, reward at the end only", legs=4, pull=0.7, horizon=60),
    "quest200": _quest_world("horizon 200, reward at the end only", legs=10, pull=0.7, horizon=200),
    "reworded": graph_world(
        "states recur, and their texts hardly do",
        pull=0.8,
        horizon=14,
        paraphrase=1.0,
        wordings=300,
    ),
    "shell": World(
        about="nothing recurs: texts never, and fingerprints are noisy",
        build=_shell,
        horizon=30,
        texts=[
            f"{tool}: {'error' if error else 'ok'}." for tool, error in product(TOOLS, range(2))
        ],
        actions=TOOLS,
        paraphrase=1.0,
        wordings=2000,
        noise=0.6,
    ),
    "compaction": World(
        about="what is not in the summary is lost when the window is full",
        build=_compaction,
        horizon=40,
        texts=[f"{n} of {WINDOW} lines, {s} in the summary, {f} new." for n, s, f in NOTES],
        actions=("read a line", "read two lines", "write a summary", "answer"),
        paraphrase=0.3,
    ),
    "delegate": World(
        about="the agent may call a sub-agent, whose steps are steps of the episode",
        build=_delegate,
        horizon=24,
        texts=[f"{p} of {PARTS} parts done, {f} flaws. {_turn(turn)}" for p, f, turn in TEAM],
        actions=("work", "call a sub-agent", "check", "report"),
        paraphrase=0.3,
    ),
}
"""Every world of this module by name."""

ALL_WORLDS = WORLDS | RARE_WORLDS
"""Every world of the audit by name."""
