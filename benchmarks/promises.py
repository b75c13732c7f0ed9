"""What is promised about costs, and the tables of ``docs/benchmarks.md``.

``python benchmarks --page`` makes them from ``benchmarks/results`` alone; what is not there is
called not measured. Goals are those of the figures.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from common import RESULTS, ROOT, fill_page, read_lines

PAGE = ROOT / "docs" / "benchmarks.md"
TOLD = ("ascribe", "ascribe-rl", "numpy", "trl", "verl", "ray")
"""Packages whose versions the page has; results have all."""

Figure = dict[str, Any]


class Promise(NamedTuple):
    """A figure that a reader cares about."""

    words: str
    bench: str
    case: str
    """A pattern. Of several cases the worst counts, of those with a goal if there are any."""
    metric: str
    against: str
    limit: str = ""
    """What limits it, for as long as the goal is not reached."""
    ends: str = ""
    """What the bounds of its interval are called, before ``low`` and ``high``."""
    beside: str = ""
    """A metric whose value is shown with ``against``."""


OWN, TIME = "time in Ascribe's code, share of a step", "time in Ascribe's code in a step"
SMALL = "about 300 short calls of numpy, which cost the same for a model of any size"
PROMISES = (
    Promise(f"TRL, SmolLM2: {OWN}", "engine_trl", "SmolLM2.*", "own_share", "step", ends="share_"),
    Promise(f"TRL, tiny model: {TIME}", "engine_trl_tiny", ".*", "own_milliseconds", "-", SMALL),
    Promise(
        *("TRL, tiny model: whole iteration", "engine_trl_tiny", ".*", "paired_ratio"),
        *("TRL alone (TRL by itself: {})", "", "paired_", "null_ratio"),
    ),
    Promise(
        *("verl, SmolLM2: " + OWN, "engine_verl", "SmolLM2[^:]*turns", "own_share", "step"),
        ends="share_",
    ),
    Promise(
        *("verl, tiny model: " + TIME, "engine_verl_tiny", "[^:]*", "own_milliseconds", "-"),
        "calls of TransferQueue, verl's store of rows, and those of numpy",
    ),
    Promise(
        *("verl, tiny model: whole step", "engine_verl_tiny", "[^:]*", "paired_ratio"),
        *("verl alone (verl by itself: {})", "", "paired_", "null_ratio"),
    ),
    Promise(
        *("Fingerprints from a pass of SmolLM2", "capture", ".*", "ratio_to_bare_pass"),
        *("bare pass (bare by itself: {})", "noise", "ratio_", "null_ratio"),
    ),
    Promise(
        *("`bipace_q` with fingerprints of 3,584 numbers", "clustering", ".*", "ratio"),
        *("bare matrix product", "numpy's conversion of half precision"),
    ),
    Promise(
        *("`gigpo` on a million steps in memory", "estimators", "gigpo, .*", "cpu_seconds", "-"),
    ),
    Promise(
        *("Driver of verl, 62 million tokens and more", "driver", ".*", "all", "-"),
        "decoding tokens to texts, on one core",
    ),
    Promise("Driver of verl, memory", "driver", ".*", "memory", "-"),
    Promise(
        *("Archives of 1 to 100 million scattered rows", "scale", ".* scattered .*", "rate", "-"),
        "each row is collected on the disk, read again and written",
    ),
    Promise(
        *("Archives, growth with size", "scale", ".* scattered .*", "exponent", "size"),
        "`sbc` at 100 million rows, on a busy machine",
    ),
    Promise("Archives, memory", "scale", ".*", "peak", "-"),
    Promise(
        *("`events` on a million sessions", "scale_events", "1,000,000 sessions", "cpu", "-"),
        "the fit reads every part of the archive several times",
    ),
    Promise(
        "Gateway log, 10,000 to a million calls, growth", "gateway_log", ".*", "exponent", "size"
    ),
    Promise(
        *("Logs of agents, responses read", "reading", "[^0-9]*[0-9]?[^0-9]*", "rate", "-"),
        "parsing JSON, and finding the key of a state",
    ),
    Promise("Logs of agents, time", "reading", ".* times .*", "ratio to json", "parsing JSON"),
    Promise(
        "Reports on real logs", "reports", ".*", "cpu", "-", "reading, and permutations of outcomes"
    ),
)


BENCHMARKS = tuple(dict.fromkeys(promise.bench for promise in PROMISES))


def write_page() -> None:
    """Write the tables into the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def filled(text: str) -> str:
    """The page with its tables."""
    head = ["what", "measured", "against", "goal", "verdict", "benchmark"]
    versions = [["benchmark", "date", "load", "packages"], *headers()]
    return fill_page(
        text, {"promises": table([head, *map(row, PROMISES)]), "versions": table(versions)}
    )


def row(promise: Promise) -> list[str]:
    """A promise, what was measured, and whether that is good enough."""
    found, figures = figures_of(promise)
    if found is None:
        against = promise.against.partition(" (")[0]
        return [promise.words, "", against, "", "not measured", f"`{promise.bench}`"]
    case, goal = found["case"], found["goal"]
    beside = ""
    if promise.beside:
        beside = interval(figures, case, promise.beside, promise.beside.removesuffix("ratio"))
    ends = promise.ends or f"{promise.metric}_"
    measured = interval(figures, case, promise.metric, ends)
    if promise.against == "-" or found["unit"] not in ("ratio", ""):
        measured += f" {found['unit']}"
    return [
        promise.words,
        measured,
        promise.against.format(beside),
        "" if goal is None else f"{'≤' if found['better'] == 'lower' else '≥'} {number(goal)}",
        "no goal" if goal is None else said(found, promise),
        f"`{promise.bench}`",
    ]


def said(found: Figure, promise: Promise) -> str:
    """Whether a figure reaches its goal; if not, what limits it."""
    sign = 1 if found["better"] == "higher" else -1
    if sign * found["value"] >= sign * found["goal"]:
        return "reached"
    return f"**not reached**: {promise.limit}" if promise.limit else "**not reached**"


def figures_of(promise: Promise) -> tuple[Figure | None, list[Figure]]:
    """The figure that counts, and all of the benchmark."""
    path = RESULTS / f"{promise.bench}.jsonl"
    figures = read_lines(path)[1:] if path.exists() else []
    found = [
        each
        for each in figures
        if each["metric"] == promise.metric and re.fullmatch(promise.case, each["case"])
    ]
    found = [each for each in found if each["goal"] is not None] or found

    def distance(each: Figure) -> float:
        better = each["value"] / (each["goal"] or 1)
        return better if each["better"] == "lower" else -better

    return max(found, key=distance, default=None), figures


def interval(figures: list[Figure], case: str, metric: str, ends: str) -> str:
    """A figure with its interval, if it has one."""
    value = {each["metric"]: each["value"] for each in figures if each["case"] == case}
    shown = number(value[metric])
    if f"{ends}low" in value:
        shown += f" [{number(value[f'{ends}low'])}, {number(value[f'{ends}high'])}]"
    return shown


def number(value: float) -> str:
    """Three digits, and commas in large numbers."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 1000 else f"{value:.3g}"


def headers() -> Iterator[list[str]]:
    """When each benchmark ran, and with which packages."""
    for name in BENCHMARKS:
        path = RESULTS / f"{name}.jsonl"
        if path.exists():
            header = read_lines(path)[0]
            of = header["packages"]
            packages = [f"{each} {of[each]}" for each in of if each in TOLD]
            load = str(header["machine"]["load"])
            yield [f"`{name}`", header["date"], load, ", ".join(packages)]


def table(rows: list[list[str]]) -> str:
    """A Markdown table, the first row of which is its head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
