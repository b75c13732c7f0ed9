"""Files in which no decision matters: in how many is something called certain all the same?

Luck alone decides what a session earns, within its task and for its version. A finding is expected
to be false in one of ten files at most, so of 200 files of a kind at most 28 may hold something
certain: with a true share of a tenth, more do in 3 % of runs. ``KINDS`` holds the kinds; each makes
one file from a random generator. A kind may also write a log and read it, such as one whose copies
have equal call ids or times: it is a function that returns the table.

Then the other way round: one decision of each file raises the chance to win by .4, and is to be
found. With ``--against SRC``, the folder ``src`` of another version, that version looks at the same
files. Last, the advice to sample more attempts is followed: does the decision become certain?
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import common
import numpy as np

from ascribe import StepTable
from ascribe.decisions import Decisions, find_decisions
from ascribe.estimators.diagnostics import wilson

FILES, MOST = 200, 28
"""Files of a kind, and in how many of them something may be certain."""
TOOLS = ("search", "read", "edit", "run")
Random = np.random.Generator
Row = dict[str, Any]


def call(name: str, **arguments: Any) -> str:
    """A call of a tool, as a message has it."""
    return json.dumps({"name": name, "arguments": arguments})


class Sessions:
    """The sessions of a file, added one by one."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.count = 0

    def add(
        self,
        task: str,
        steps: Sequence[tuple[str, str]],
        reward: float | Sequence[float],
        **columns: Any,
    ) -> None:
        """One session: pairs of state and action, and its reward, at the end or at each step."""
        last = len(steps) - 1
        for number, (state, action) in enumerate(steps):
            earned = reward[number] if isinstance(reward, Sequence) else reward * (number == last)
            place = {"group": task, "trajectory": f"{self.count}", "step": number}
            self.rows.append(place | {"state": state, "action": action, "reward": earned} | columns)
        self.count += 1

    def copy(self, number: int) -> None:
        """A session once more, under a new name."""
        rows = [row for row in self.rows if row["trajectory"] == f"{number}"]
        self.rows += [row | {"trajectory": f"{self.count}"} for row in rows]
        self.count += 1

    def table(self) -> StepTable:
        """All of them."""
        names = self.rows[0]
        return StepTable.from_columns({name: [row[name] for row in self.rows] for name in names})


def walk(task: int, length: int, rng: Random, **how: Any) -> list[tuple[str, str]]:
    """The steps of a session.

    ``recur``: whether states occur in several sessions. ``weights``: how probable each tool is.
    ``values``: how many arguments a tool may be called with.
    """
    recur, values = how.get("recur", True), how.get("values", 2)
    weights = how.get("weights", (0.4, 0.3, 0.2, 0.1))
    state, steps = f"Question {task}: what is in room {task}?", []
    for number in range(length):
        tool = TOOLS[int(rng.choice(len(TOOLS), p=weights))]
        argument = int(rng.integers(values))
        steps.append((state, call(tool, at=argument)))
        state = (
            f"{'Error: no' if rng.random() < 0.2 else 'ok,'} {tool} {argument} in {task}, {number}"
        )
        state += "" if recur else f" ({rng.integers(1 << 40)})"
    return steps


def luck(kind: str, task: float, rng: Random) -> float:
    """What a session earns: the chances of a task differ, those of its sessions do not."""
    if kind == "0 and 1":
        return float(rng.random() < task)
    if kind == "graded":
        return float(rng.binomial(4, task)) / 4
    return float(rng.normal(task))


def plain(
    rng: Random,
    *,
    tasks: int | None = None,
    attempts: int | None = None,
    returns: str | None = None,
    lengths: tuple[int, int] = (2, 5),
    **how: Any,
) -> StepTable:
    """Attempts at tasks; what is not given is drawn for each file."""
    tasks = int(rng.choice([1, 5, 10, 20])) if tasks is None else tasks
    attempts = int(rng.choice([4, 8, 30])) if attempts is None else attempts
    returns = str(rng.choice(["0 and 1", "graded", "continuous"])) if returns is None else returns
    sessions = Sessions()
    for task in range(tasks):
        chance, habit = rng.uniform(0.1, 0.9), how.get("weights", rng.dirichlet([2.0] * 4))
        for _ in range(attempts):
            length = int(rng.integers(lengths[0], lengths[1] + 1))
            if how.get("uneven"):
                length = int(rng.choice([2, 3, 40], p=[0.6, 0.3, 0.1]))
            steps = walk(task, length, rng, **how | {"weights": habit})
            sessions.add(f"task {task}", steps, luck(returns, chance, rng))
    return sessions.table()


def copies(rng: Random, share: float) -> StepTable:
    """Five tasks of 30 sessions, of which this share are copies of another one at the task."""
    sessions, originals = Sessions(), round(30 * (1 - share))
    for task in range(5):
        chance, first = rng.uniform(0.2, 0.8), sessions.count
        for _ in range(originals):
            steps = walk(task, int(rng.integers(6, 12)), rng, values=3)
            sessions.add(f"task {task}", steps, luck("0 and 1", chance, rng))
        for _ in range(30 - originals):
            sessions.copy(first + int(rng.integers(originals)))
    return sessions.table()


def agents(rng: Random, tasks: int, attempts: int, chances: Sequence[float]) -> StepTable:
    """Agents of different strength, each with a habit that changes nothing."""
    sessions, habits = Sessions(), rng.dirichlet([0.7] * 4, len(chances))
    for task in range(tasks):
        ease = rng.uniform(-0.15, 0.15)
        for agent, (chance, habit) in enumerate(zip(chances, habits, strict=True)):
            for _ in range(attempts):
                steps = walk(task, int(rng.integers(2, 5)), rng, weights=habit)
                won = float(rng.random() < chance + ease)
                sessions.add(f"task {task}", steps, won, version=f"agent {agent}")
    return sessions.table()


def prompts(rng: Random) -> StepTable:
    """Forty questions under one task: those for the calculator are easier."""
    sessions = Sessions()
    for number in range(40):
        sums = rng.random() < 0.5
        question = f"What is {rng.integers(1 << 30)}?" if sums else f"Prove lemma {number}."
        tool = "calc" if sums ^ (rng.random() < 0.1) else "search"
        steps = [(question, call(tool)), (f"result {number}", f"answer {number}")]
        sessions.add("support", steps, float(rng.random() < (0.8 if sums else 0.3)))
    return sessions.table()


def rounding(rng: Random) -> StepTable:
    """All sessions earn three tenths, a tenth and so on, in any order."""
    sessions = Sessions()
    for task in range(4):
        for _ in range(12):
            rewards = rng.permutation([0.1, 0.2, 0.3, 0.7, -0.4]).tolist()
            sessions.add(f"task {task}", walk(task, 5, rng), rewards)
    return sessions.table()


SIZES = [(tasks, attempts) for tasks in (1, 10, 50) for attempts in (4, 8, 30)]
KINDS: dict[str, Callable[[Random], StepTable]] = {
    **{
        f"returns {kind}": partial(plain, returns=kind)
        for kind in ("0 and 1", "graded", "continuous")
    },
    **{f"{t} x {a} attempts": partial(plain, tasks=t, attempts=a) for t, a in SIZES},
    "states do not recur": partial(plain, recur=False),
    "one dominant action": partial(plain, weights=(0.94, 0.02, 0.02, 0.02)),
    "unequal lengths": partial(plain, uneven=True),
    **{f"{share:.0%} copies": partial(copies, share=share) for share in (0.1, 0.5, 0.9)},
    "two agents, 4 attempts each": partial(agents, tasks=10, attempts=4, chances=(0.2, 0.7)),
    "two agents, one attempt each": partial(agents, tasks=50, attempts=1, chances=(0.2, 0.7)),
    "ten agents, one attempt each": partial(
        agents, tasks=40, attempts=1, chances=tuple(np.linspace(0.2, 0.7, 10))
    ),
    "forty prompts under one task": prompts,
    "equal but for rounding": rounding,
}
"""What makes a file of each kind."""
NONE_AT_ALL = ("equal but for rounding",)
"""Kinds in which nothing may be certain in any file."""
SHOWN = {
    "returns of 0 and 1, graded or continuous": "returns ",
    "1, 10 or 50 tasks of 4, 8 or 30 attempts": " x ",
    "states that do not recur": "states do not recur",
    "one dominant action": "one dominant action",
    "sessions of unequal lengths": "unequal lengths",
    "10, 50 or 90 % copies of other sessions": "copies",
    "two or ten agents of different strength": "agents, ",
    "forty prompts under one task": "forty",
    "equal returns but for rounding": "rounding",
}
"""Rows of the page, each with a part of the names of its kinds."""


def planted(rng: Random, attempts: int) -> StepTable:
    """One task: in the second state, one of two actions wins in .7 of the sessions, else .3."""
    sessions = Sessions()
    for _ in range(attempts):
        good = bool(rng.random() < 0.5)
        steps = [
            ("Find the key.", call(str(rng.choice(TOOLS[:2])))),
            ("two doors", call("open", door="left" if good else "right")),
            ("a room", call(str(rng.choice(TOOLS[:3])))),
        ]
        sessions.add("key", steps, float(rng.random() < (0.7 if good else 0.3)))
    return sessions.table()


def planted_agents(rng: Random, tasks: int, habits: tuple[float, float]) -> StepTable:
    """Two agents with one attempt at each task; unlocking the door adds .4, forcing it nothing."""
    sessions = Sessions()
    for task in range(tasks):
        for agent, chance in enumerate((0.1, 0.5)):
            good = bool(rng.random() < habits[agent])
            steps = [
                (f"Find key {task}.", call(str(rng.choice(TOOLS[:2])))),
                ("a door", call("unlock" if good else "force", door=task)),
                ("a room", call(str(rng.choice(TOOLS[:3])))),
            ]
            won = float(rng.random() < chance + 0.4 * good)
            sessions.add(f"key {task}", steps, won, version=f"agent {agent}")
    return sessions.table()


def found_planted(found: Decisions) -> bool:
    """Whether the way through the door is found."""
    named = [f"{each.better.action} {each.better.actions}" for each in found.certain]
    return any('"left"' in name or "`unlock`" in name for name in named)


POWER: dict[str, Callable[[Random], StepTable]] = {
    f"planted .4, {n} attempts": partial(planted, attempts=n) for n in (20, 40, 80)
}
AGENTS: dict[str, Callable[[Random], StepTable]] = {
    f"planted .4, two agents, one attempt each at 50 tasks, {habits}": partial(
        planted_agents, tasks=50, habits=shares
    )
    for habits, shares in (("alike", (0.5, 0.5)), ("of other habits", (0.3, 0.7)))
}
"""No older version knows versions."""


class Forks:
    """Attempts at one task with several forks, of which the first adds to the chance to win."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        null = rng.random() < 0.15
        self.effect = 0.0 if null else float(rng.uniform(0.08, 0.6))
        self.first = int(rng.choice([10, 16, 24, 40, 60]))
        self.share = rng.uniform(0.25, 0.75, int(rng.choice([1, 3, 6])))
        self.chance = rng.uniform(0.1, 0.9 - self.effect)
        self.played: list[tuple[Any, bool]] = []

    def play(self, attempts: int) -> Decisions:
        """So many attempts more, and what all of them say."""
        for _ in range(attempts):
            ways = self.rng.random(self.share.size) < self.share
            self.played.append(
                (ways, bool(self.rng.random() < self.chance + self.effect * ways[0]))
            )
        sessions = Sessions()
        for ways, won in self.played:
            steps = [(f"fork {n}", call(f"tool {n}", way=int(way))) for n, way in enumerate(ways)]
            sessions.add("maze", steps, float(won))
        return find_decisions(sessions.table())


MOST_FOLLOWED = 600
"""Attempts to which advice is followed."""


def followed(seed: int) -> dict[str, Any] | None:
    """What comes of the advice to sample more attempts; None where something is certain at once."""
    world = Forks(np.random.default_rng((seed, 3)))
    found = world.play(world.first)
    told = [each for each in found.decisions if not each.doubt and not math.isnan(each.p)]
    if found.certain or not told:
        return None
    best = told[0]
    real = world.effect > 0 and best.state == "fork 0"
    result = {"effect": world.effect if real else 0.0, "more": best.more, "told": None}
    if best.more is not None and best.more <= MOST_FOLLOWED:
        again = world.play(best.more).certain
        result["told"] = any(
            (each.state, each.better.action) == (best.state, best.better.action) for each in again
        )
    return result


# Figures.


def is_certain(name: str, seed: int) -> bool:
    """Whether something is certain in a file without anything to find."""
    return bool(find_decisions(KINDS[name](np.random.default_rng((seed, 1)))).certain)


def is_found(name: str, seed: int) -> bool:
    """Whether what was planted is found."""
    return found_planted(find_decisions((POWER | AGENTS)[name](np.random.default_rng((seed, 2)))))


def looked(name: str, files: int, source: Path) -> list[bool]:
    """``is_found`` by the version of Ascribe in another folder."""
    command = [sys.executable, __file__, "--look", name, str(files)]
    environment = os.environ | {"PYTHONPATH": str(source)}
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: list[bool] = json.loads(done.stdout)
    return found


def emit_share(figures: common.Figures, case: str, metric: str, hits: Iterable[bool]) -> None:
    """A share and its interval."""
    values = list(hits)
    share = float(np.mean(values))
    ends = wilson(share, len(values))
    figures.emit_interval(case, metric, (share, *ends), "share", "higher")


PAGE = common.ROOT / "docs" / "decisions.md"
KEPT = common.RESULTS / "null_decisions.jsonl"


def filled(text: str) -> str:
    """The page with what the committed results say."""
    value = {(d["case"], d["metric"]): d["value"] for d in common.read_lines(KEPT)[1:]}
    rows = ["| 200 files of each kind | with anything certain, at most |", "| --- | ---: |"]
    for row, part in SHOWN.items():
        certain = [value[name, "files_with_anything_certain"] for name in KINDS if part in name]
        rows.append(f"| {row} | {max(certain):.0f} |")
    few, some, many, alike, unlike = (
        f"{100 * value[name, 'found']:.0f} %" for name in (*POWER, *AGENTS)
    )
    case = "advice, true effects of 0.08 to 0.6"
    told, low, high = (
        f"{100 * value[case, f'told_as_promised{end}']:.0f}" for end in ("", "_low", "_high")
    )
    said = (
        "In these files luck alone decides, so at most one in ten may hold something certain.\n"
        f"A decision that adds 40 points was found in {few} of the files with 20 attempts,\n"
        f"{some} with 40 and {many} with 80; in {alike} of those with one attempt of each of\n"
        f"two agents at 50 tasks, and in {unlike} if the agents have unlike habits.\n"
        f"Following the advice on more attempts settled the question in {told} % of the cases\n"
        f"(95 % interval {low} to {high} %).\n"
    )
    return common.fill_page(text, {"null": "\n".join(rows) + f"\n\n{said}"})


def main() -> None:
    """Measure and print, or fill the page."""
    if "--docs" in sys.argv:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    if "--look" in sys.argv:
        name, files = sys.argv[sys.argv.index("--look") + 1 :]
        print(json.dumps([is_found(name, seed) for seed in range(int(files))]))
        return
    against = {"type": Path, "help": "folder src of another version, for power"}
    with (
        common.Figures("null_decisions", against=against) as figures,
        ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool,
    ):
        files, planted_files, worlds = (4, 8, 24) if figures.quick else (FILES, 200, 1500)
        for name in KINDS:
            goal = 0 if name in NONE_AT_ALL else None if figures.quick else MOST
            certain = sum(pool.map(partial(is_certain, name), range(files), chunksize=5))
            figures.emit(name, "files_with_anything_certain", certain, f"of {files}", "lower", goal)
        for name in POWER | AGENTS:
            now = list(pool.map(partial(is_found, name), range(planted_files), chunksize=5))
            emit_share(figures, name, "found", now)
            if figures.options.against is not None and name in POWER:
                before = looked(name, planted_files, figures.options.against)
                emit_share(figures, f"{name}, before", "found", before)
                apart = np.subtract(np.array(now, float), np.array(before, float))
                values = common.bootstrap(apart[:, None])
                figures.emit_interval(name, "more_than_before", values, "share", "higher")
        told = [each for each in pool.map(followed, range(worlds), chunksize=10) if each]
        for low, high in ((0.08, 0.6), (0.08, 0.2), (0.2, 0.4), (0.4, 0.6)):
            of_range = [each for each in told if low <= each["effect"] < high]
            case = f"advice, true effects of {low} to {high}"
            follow = [each["told"] for each in of_range if each["told"] is not None]
            if follow:
                emit_share(figures, case, "told_as_promised", follow)
            emit_share(figures, case, "given", (each["more"] is not None for each in of_range))
        none = [each for each in told if each["effect"] == 0]
        given = (each["more"] is not None for each in none)
        emit_share(figures, "advice, no true effect", "given", given)


if __name__ == "__main__":
    main()
