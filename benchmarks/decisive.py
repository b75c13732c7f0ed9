"""Does credit find the step that lost a session? Public sessions of real agents, four logs.

A task of tau-bench and tau2 names the calls that change the database. A call that changes it, and
was not refused, is right if it is among its task's, else wrong. The decisive step of a lost session
is its first response with a wrong call; a session that only leaves something out has none. Steps
and labels are counted here from the files, and advantages come from the readers of Ascribe; both
must have the same calls, response by response.

``top1`` and ``top3``: the decisive step is among the 1 or 3 lowest advantages of its session (ties
share the ranks they span). ``hard1`` and ``hard3``: the same where it is not the last call.
``wrong``: pairs of calls of one tool, a right and a wrong one, each session with one vote for a
tool, in which the right one has the higher advantage. Intervals are 95 %, over tasks drawn again.

Credit is shown beside rules that learn nothing (any call, the last call, an error, the call that
the fewest other attempts made), and recipes beside themselves with the outcomes shuffled within
each task. The logs lie in the folder ``real`` of ``ASCRIBE_TEST_DATA``; a folder of other results
of tau-bench or tau2 is measured by ``--log FOLDER``.
"""

import json
import os
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from common import RESULTS, ROOT, Figures, fill_page, read_lines

from ascribe import RECIPES, StepTable, recipe
from ascribe.sessions.reading import import_files
from ascribe.steps.check import arrange
from ascribe.steps.returns import episode_outcome

LOGS = ("tau_bench", "tau2_airline", "tau_bench_retail", "tau_bench_checked")
WRITES = {
    *("update_reservation_flights", "cancel_reservation", "book_reservation", "send_certificate"),
    *("update_reservation_baggages", "update_reservation_passengers", "cancel_pending_order"),
    *("modify_pending_order_items", "modify_pending_order_address", "modify_pending_order_payment"),
    *("return_delivered_order_items", "exchange_delivered_order_items", "modify_user_address"),
}
"""The tools that change the database."""
METRICS = ("top1", "top3", "hard1", "hard3", "wrong")
DRAWS = 1000
SHUFFLES = 3
EQUAL = 1e-12
LEARNED = ("returns", "gigpo", "sbc", "events")
"""Recipes that are shown with shuffled outcomes, too."""
GOALS = {
    ("mean of 4 logs, events", metric): goal
    for metric, goal in zip(METRICS, (0.75, 0.93, 0.65, 0.90, 0.90), strict=True)
}

Floats = np.ndarray[Any, np.dtype[np.float64]]
Calls = list[tuple[str, str]]


@dataclass(frozen=True)
class Log:
    """A log: its table, and what is known of its sessions; places are in canonical order."""

    name: str
    table: StepTable
    calls: list[Calls]
    """The calls of each place, as name and canonical arguments."""
    refused: list[bool]
    session: np.ndarray[Any, np.dtype[np.int64]]
    task: np.ndarray[Any, np.dtype[np.int64]]
    """Session of each place, and task of each session."""
    decisive: list[tuple[int, bool]]
    """Places of decisive steps, and whether another call follows."""
    writes: list[tuple[int, str, bool, float]]
    """Calls that change the database in lost sessions: place, tool, whether wrong, weight."""

    def draws(self, count: int) -> Floats:
        """How often each task is drawn: once, and then at random."""
        tasks = int(self.task.max()) + 1
        random = np.random.default_rng(0).multinomial(tasks, [1 / tasks] * tasks, count)
        return np.vstack([np.ones(tasks), random]).astype(np.float64)


def sessions(folder: Path) -> Iterator[tuple[str, float, list[dict[str, Any]], list[Any]]]:
    """Task, reward, messages and the task's calls of each session, in the order of the files."""
    for path in sorted(folder.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(document, list):
            for each in document:
                task = (each.get("info") or {}).get("task") or {}
                yield str(each["task_id"]), each["reward"], each["traj"], task.get("actions") or []
            continue
        tasks = {each["id"]: each.get("evaluation_criteria") or {} for each in document["tasks"]}
        for each in document["simulations"]:
            wanted = tasks[each["task_id"]].get("actions") or []
            wanted = [a for a in wanted if a.get("requestor", "assistant") == "assistant"]
            reward = (each.get("reward_info") or {}).get("reward")
            if reward is not None:
                messages = each["messages"]
                scripted = bool(messages) and messages[0]["role"] == "assistant"
                scripted = scripted and not messages[0].get("tool_calls")
                yield each["task_id"], reward, messages[scripted:], wanted


def calls_of(listed: Any) -> Calls:
    """Name and canonical arguments of each of these calls that the agent made."""
    found = []
    for each in listed if isinstance(listed, list) else [listed]:
        call = each.get("function") or each if isinstance(each, dict) else {}
        if "name" in call and each.get("requestor", "assistant") == "assistant":
            arguments = call["arguments"]
            if isinstance(arguments, str):
                with suppress(ValueError):
                    arguments = json.loads(arguments)
            found.append((call["name"], json.dumps(arguments, sort_keys=True)))
    return found


def written(message: dict[str, Any]) -> Calls:
    """The call that the text of an ``act`` or ``react`` agent of tau-bench ends with."""
    text = str(message.get("content") or "").rpartition("Action:")
    try:
        call = json.loads(text[2]) if text[1] else {}
    except ValueError:
        return []
    named = isinstance(call, dict) and "arguments" in call and call.get("name") != "respond"
    return calls_of([call]) if named else []


def responses(messages: list[dict[str, Any]]) -> Iterator[tuple[Calls, bool]]:
    """The calls of each response, and whether one was refused."""
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            refused = False
            if made := written(message):
                text = str(messages[place + 1 : place + 2] and messages[place + 1]["content"])
                yield made, text.removeprefix("API output: ").lower().startswith("error")
                continue
            for after in messages[place + 1 :]:
                if after["role"] != "tool":
                    break
                text = str(after.get("content") or "").lower()
                refused |= bool(after.get("error")) or text.startswith("error")
            yield calls_of(message.get("tool_calls") or []), refused


def read(folder: Path) -> Log:
    """A log with its labels.

    Raises:
        ValueError: if the table has other responses than the files.
    """
    table = import_files([folder]).table
    steps = arrange(table)
    calls = [*map(shown, table.action.take(steps.rows).texts())]
    ends = np.append(steps.starts[1:], steps.rows.size)
    outcome = episode_outcome(steps.reward, steps.trajectory, steps.trajectory_count)
    groups = table.group.take(steps.rows[steps.starts]).texts()
    known = defaultdict(list)  # the table's rows are in another order than the files
    for group, earned, start, end in zip(groups, outcome, steps.starts, ends, strict=True):
        task = str(group).rpartition("/")[2]
        known[task, earned, *map(tuple, calls[start:end])].append(slice(start, end))
    refused = [False] * steps.rows.size
    decisive, writes = [], []
    for task, reward, messages, wanted in sessions(folder):
        found = [*responses(messages)] or [([], False)]
        try:
            own = known[task, reward, *(tuple(made) for made, _ in found)].pop(0)
        except IndexError:
            raise ValueError(f"{folder.name}, task {task}: other calls than in the file") from None
        refused[own] = [failed for _, failed in found]
        if any(map(written, messages)):  # judged are calls in the API's form, as they always were
            continue
        right = set(
            calls_of(
                [
                    {"name": a["name"], "arguments": a.get("kwargs", a.get("arguments"))}
                    for a in wanted
                ]
            )
        )
        changing = [
            (place, [call for call in made if call[0] in WRITES])
            for place, (made, failed) in enumerate(found, own.start)
            if not failed
        ]
        judged = [(p, made[0][0], not right.issuperset(made)) for p, made in changing if made]
        if reward != 0:
            continue
        votes = Counter(each[1:] for each in judged)
        writes += [(place, tool, bad, 1 / votes[tool, bad]) for place, tool, bad in judged]
        if wrong := [place for place, _, bad in judged if bad]:
            decisive.append((wrong[0], any(made for made, _ in found[wrong[0] - own.start + 1 :])))
    return Log(
        folder.name,
        table,
        calls,
        refused,
        steps.trajectory,
        steps.group_of_trajectory,
        decisive,
        writes,
    )


def shown(action: str | None) -> Calls:
    """The calls of an action of the table."""
    try:
        return calls_of(json.loads(action or ""))
    except ValueError:
        return []


def measure(log: Log, advantage: Floats, draws: Floats) -> dict[str, Floats]:
    """Each metric for each draw of tasks; ``advantage`` is in canonical order."""
    task = log.task[log.session]
    found: dict[str, list[tuple[int, float]]] = defaultdict(list)
    start = np.searchsorted(log.session, np.arange(log.task.size + 1))
    for place, hard in log.decisive:
        own = (
            advantage[start[log.session[place]] : start[log.session[place] + 1]] - advantage[place]
        )
        lower, ties = (own < -EQUAL).sum(), (np.abs(own) <= EQUAL).sum()
        for ranks in (1, 3):
            share = float(np.clip((ranks - lower) / ties, 0, 1))
            for name in (f"top{ranks}", *([f"hard{ranks}"] if hard else [])):
                found[name].append((task[place], share))
    result = {}
    for name, pairs in found.items():
        of, share = zip(*pairs, strict=True)
        weight = draws[:, list(of)]
        result[name] = weight @ np.array(share) / np.maximum(weight.sum(1), 1)
    won, all_pairs = np.zeros(len(draws)), np.zeros(len(draws))
    by_tool: dict[str, tuple[list[tuple[int, float]], list[tuple[int, float]]]] = defaultdict(
        lambda: ([], [])
    )
    for place, tool, bad, vote in log.writes:
        by_tool[tool][bad].append((place, vote))
    for good, bad in by_tool.values():
        if good and bad:
            (i, v), (j, w) = (map(np.array, zip(*side, strict=True)) for side in (good, bad))
            apart = advantage[i][:, None] - advantage[j]
            higher = (apart > EQUAL) + 0.5 * (np.abs(apart) <= EQUAL)
            left, right = draws[:, task[i]] * v, draws[:, task[j]] * w
            won += ((left @ higher) * right).sum(1)
            all_pairs += left.sum(1) * right.sum(1)
    return result | {"wrong": won / np.maximum(all_pairs, 1e-9)}


def baselines(log: Log) -> dict[str, Floats]:
    """Credit without learning, in canonical order."""
    called = np.array([bool(made) for made in log.calls])
    last = np.zeros_like(called)
    last[
        [max(np.flatnonzero(called & (log.session == s)), default=0) for s in range(log.task.size)]
    ] = True
    made_by = defaultdict(set)
    for place, made in enumerate(log.calls):
        for call in made if not log.refused[place] else []:
            made_by[log.task[log.session[place]], call].add(log.session[place])
    fewest = np.full(called.size, 999.0)
    for place in np.flatnonzero(called & ~np.array(log.refused)):
        own, task = log.session[place], log.task[log.session[place]]
        fewest[place] = min(len(made_by[task, call] - {own}) for call in log.calls[place])
    rules = {"any call": called, "last call": last & called, "an error": log.refused}
    return {name: -np.array(rule, np.float64) for name, rule in rules.items()} | {
        "consensus": fewest
    }


def shuffled(table: StepTable, seed: int) -> StepTable:
    """The table with the outcomes of each task's sessions in another order."""
    steps = arrange(table)
    outcome = episode_outcome(steps.reward, steps.trajectory, steps.trajectory_count)
    order = np.lexsort(
        (np.random.default_rng(seed).random(outcome.size), steps.group_of_trajectory)
    )
    reward = np.zeros(len(table))
    last = steps.rows[np.append(steps.starts[1:], steps.rows.size) - 1]
    reward[last[np.argsort(steps.group_of_trajectory, kind="stable")]] = outcome[order]
    return replace(table, reward=reward)


def credited(log: Log, name: str, table: StepTable | None = None) -> Floats:
    """The advantages of a recipe, in canonical order."""
    return recipe(name)(table or log.table).advantage[arrange(log.table).rows]


Scores = dict[str, Floats]
"""Metrics by name, for each draw of tasks."""


def emit(figures: Figures, case: str, scores: Scores) -> None:
    """Each metric with its interval."""
    for name, drawn in scores.items():
        interval = (drawn[0], *np.quantile(drawn[1:], [0.025, 0.975]))
        figures.emit_interval(
            case,
            name,
            interval,
            "difference" if "_over_" in name else "share",
            "higher",
            GOALS.get((case, name)),
        )


def runs(log: Log) -> list[str]:
    """The recipes that need nothing but steps."""
    names = []
    for name in RECIPES:
        try:
            credited(log, name)
        except ValueError as error:
            print(f"{name} does not run: {error}", file=sys.stderr)
        else:
            names.append(name)
    return names


def part(log: Log, share: float, seed: int) -> Log:
    """The log with this share of its tasks."""
    tasks = int(log.task.max()) + 1
    kept = np.random.default_rng(seed).permutation(tasks)[: max(round(share * tasks), 2)]
    stays = np.isin(log.task[log.session], kept)
    place = np.cumsum(stays) - 1
    old = np.unique(log.session[stays], return_inverse=True)
    return Log(
        log.name,
        log.table.take(arrange(log.table).rows[stays]),
        [made for made, stay in zip(log.calls, stays, strict=True) if stay],
        [failed for failed, stay in zip(log.refused, stays, strict=True) if stay],
        old[1],
        np.unique(log.task[old[0]], return_inverse=True)[1],
        [(place[at], hard) for at, hard in log.decisive if stays[at]],
        [(place[at], *rest) for at, *rest in log.writes if stays[at]],
    )


def over_consensus(log: Log, name: str, share: float, seeds: int) -> Floats:
    """``top1`` of a recipe less that of consensus in random parts of a log with labels."""
    apart = []
    for some in (part(log, share, seed) for seed in range(seeds)):
        if some.decisive:
            once = some.draws(0)
            of_rule, own = baselines(some)["consensus"], credited(some, name)
            apart.append(
                measure(some, own, once)["top1"][0] - measure(some, of_rule, once)["top1"][0]
            )
    return np.array(apart)


PAGE = ROOT / "docs" / "real_agents.md"
SHOWN = ("any call", "last call", "consensus", "returns", "gigpo", "bipace_q", "sbc", "events")


def filled(text: str) -> str:
    """The page with what the committed results say."""
    values: dict[str, dict[str, float]] = defaultdict(dict)
    for line in read_lines(RESULTS / "decisive.jsonl")[1:]:
        values[line["case"]][line["metric"]] = line["value"]
    rows = ["| mean of four logs | " + " | ".join(METRICS) + " |", "| --- |" + " ---: |" * 5]
    names = [*SHOWN, "events, outcomes shuffled"]
    for name in names:
        found = values[f"mean of 4 logs, {name}"]
        cells = (
            f"{found[m]:.2f} [{found[f'{m}_low']:.2f}, {found[f'{m}_high']:.2f}]" for m in METRICS
        )
        rows.append(f"| {name} | " + " | ".join(cells) + " |")
    return fill_page(text, {"mean": "\n".join(rows)})


def annotated(figures: Figures, folder: Path) -> None:
    """How often a rule without learning meets the step that a person named, in Who&When.

    All sessions are lost, and each is the only attempt at its task, so there is nothing to compare.
    """
    sessions = [json.loads(path.read_text("utf-8")) for path in folder.rglob("*.json")]
    steps = [(int(each["mistake_step"]), len(each["history"])) for each in sessions]
    figures.emit(folder.name, "sessions", len(steps), "sessions", "higher")
    for rule, found in (
        ("any step", [1 / length for _, length in steps]),
        ("first step", [step == 0 for step, _ in steps]),
        ("last step", [step == length - 1 for step, length in steps]),
    ):
        figures.emit(f"{folder.name}, {rule}", "top1", float(np.mean(found)), "share", "higher")


def main() -> None:
    """Measure and print, or fill the page."""
    if "--docs" in sys.argv:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    with Figures("decisive", log={"type": Path, "help": "a folder of other results"}) as figures:
        real = Path(os.environ.get("ASCRIBE_TEST_DATA", "."), "real")
        folders = [real / name for name in (LOGS[:1] if figures.quick else LOGS)]
        if figures.options.log:
            folders = [figures.options.log]
        if not all(folder.is_dir() for folder in folders):
            sys.exit(
                "name a folder of results, or let ASCRIBE_TEST_DATA name one with real sessions"
            )
        total: dict[str, list[Scores]] = defaultdict(list)
        for folder in folders:
            log = read(folder)
            draws = log.draws(DRAWS)
            figures.emit(log.name, "sessions", len(log.decisive), "sessions", "higher")
            figures.emit(
                log.name,
                "hard_sessions",
                sum(hard for _, hard in log.decisive),
                "sessions",
                "higher",
            )
            rules = {name: measure(log, rule, draws) for name, rule in baselines(log).items()}
            scores = dict(rules)
            for name in runs(log):
                scores[name] = measure(log, credited(log, name), draws)
                if name in LEARNED:
                    mixed = [shuffled(log.table, seed) for seed in range(SHUFFLES)]
                    chance = [measure(log, credited(log, name, each), draws) for each in mixed]
                    mean = {
                        metric: np.mean([each[metric] for each in chance], 0) for metric in METRICS
                    }
                    scores[f"{name}, outcomes shuffled"] = mean
                    for rule, other in {**rules, "shuffled": mean}.items():
                        metric = f"top1_over_{rule.replace(' ', '_')}"
                        scores[name] |= {metric: scores[name]["top1"] - other["top1"]}
            for name, found in scores.items():
                emit(figures, f"{log.name}, {name}", found)
                total[name].append(found)
            for name in {"events"} & scores.keys():
                for words, share, seeds in (("a tenth", 0.1, 20), ("a third", 1 / 3, 10)):
                    apart = over_consensus(log, name, share, seeds)
                    case = f"{log.name}, {name}, {words} of the tasks"
                    figures.emit(
                        case, "top1_over_consensus", apart.mean(), "difference", "higher", -0.05
                    )
        if not figures.quick and not figures.options.log:
            annotated(figures, real / "whowhen")
        for name, found in total.items():
            mean = {metric: np.mean([each[metric] for each in found], 0) for metric in found[0]}
            emit(figures, f"mean of {len(found)} logs, {name}", mean)


if __name__ == "__main__":
    main()
