"""Score every recipe against exact advantages: the figures of ``ascribe audit``.

A case is world/recipe/group size, ``mean`` stands for the mean over worlds, and ``A minus B`` is
the difference of two recipes, paired over blocks of tasks. ``METRIC_low`` and ``METRIC_high`` bound
the 95 % interval over blocks. ``--work`` keeps the parts that were measured. ``--docs`` runs
nothing: it writes the committed results into docs/audit.md and docs/howto/recipe.md, and draws the
figure, with matplotlib.

Cases ``pairs: mean/A minus B/8`` are what docs/audit.md says about learning.
``experiments/recurrence`` has every recipe in more worlds.
"""

import itertools
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from audit_forms import ABLATIONS, scored_recipe
from common import RESULTS, ROOT, Figures, fill_page, read_lines, save_figure

from ascribe.steps.atomic import write_file
from ascribe_lab.audit import (
    FULL,
    FULL_FORMS,
    QUICK,
    QUICK_FORMS,
    WORLDS,
    Audit,
    Settings,
    audit,
)
from ascribe_lab.audit.report import (
    MEANS,
    MINUS,
    PAIRED,
    AuditTables,
    Line,
    json_lines,
    line_of,
    markdown,
)
from ascribe_lab.audit.run import METRICS

FIGURE = (*PAIRED, "gradient_cosine", "gradient_direction")
"""Metrics of the figure."""
LEARNED = ("momentum_auc", "learning_auc")
SUMMARY = ROOT / "docs" / "audit.md"
PICTURE = ROOT / "docs" / "figures" / "audit"
CHOICE = ROOT / "docs" / "howto" / "recipe.md"
LEADER = "sbc"
PAIRS = (
    ("returns", "gigpo"),
    ("gigpo_mean", "grpo"),
    ("gigpo_mean", "gigpo_mean@1"),
    ("gigpo_mean", "gigpo_mean_random"),
    ("bipace_q_mean", "bipace_q_mean_random"),
    ("bipace_q_equal", "bipace_q"),
    ("sbc", "sbc_random"),
    ("sbc", "gigpo"),
    ("sbc", "returns"),
    ("sbc_exact", "returns@0.9"),
)
"""Differences that the page on the audit speaks of."""
BLUR = 0.97
"""At this blur at most one pair of rows of a cluster in five is in the same state."""

LARGER = replace(FULL, worlds=WORLDS, seed=2216, plain=True)
SMALLER = replace(LARGER, blocks=6, batches=4)
PARTS = {
    "": (FULL_FORMS, LARGER),
    "ablation": (("bipace_q_mean", "sbc", *(f"sbc-{part}" for part in ABLATIONS)), SMALLER),
    "blurred": (
        ("gigpo", "gigpo_mean", "bipace_q_mean", "sbc_keep", "sbc"),
        replace(SMALLER, blur=BLUR, updates=0),
    ),
}
"""The audit and additions to it: recipes and settings."""


def main() -> None:
    """Run the audit and print its figures, or fill the pages from the committed ones."""
    if "--docs" in sys.argv:
        SUMMARY.write_text(filled(SUMMARY.read_text(encoding="utf-8")), encoding="utf-8")
        CHOICE.write_text(with_scores(CHOICE.read_text(encoding="utf-8")), encoding="utf-8")
        figure(kept(), PICTURE)
        return

    work = {"type": Path, "help": "folder for the scores of each world"}
    with Figures("audit", work=work) as figures, tempfile.TemporaryDirectory() as spare:
        folder = figures.options.work or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        for line in filter(is_shown, lines_of(folder, quick=figures.quick)):
            values = (line["value"], line["low"], line["high"])
            figures.emit_interval(
                line["case"], line["metric"], values, "1", line["better"], line["goal"]
            )


def is_shown(line: dict[str, Any]) -> bool:
    """Whether a page, its figure or a test shows a line."""
    metric, case = line["metric"], line["case"].rpartition(": ")[2]
    is_mean = case.startswith("mean/") and metric in MEANS
    return case.endswith("/8") and (is_mean or metric in FIGURE)


def lines_of(folder: Path, *, quick: bool) -> list[dict[str, Any]]:
    """The audit, then the parts of ``sbc`` left out one by one, then blurred fingerprints."""
    if quick:
        return run(QUICK_FORMS, QUICK)
    lines = []
    for what, (names, settings) in PARTS.items():
        path = folder / f"{what or 'audit'}.json"
        if not path.exists():
            write_file(path, json.dumps(run(names, settings)))
        lines += marked(what, json.loads(path.read_text(encoding="utf-8")))
    return lines


def run(names: tuple[str, ...], settings: Settings) -> list[dict[str, Any]]:
    """The lines of an audit of these recipes."""
    found = audit({name: scored_recipe(name) for name in names}, settings, processes=2)
    lines = list(json_lines(found, LEADER))
    return lines + (marked("pairs", list(pair_lines(found))) if names == FULL_FORMS else [])


def pair_lines(found: Audit) -> Iterator[dict[str, Any]]:
    """What ``PAIRS`` differ by in learning, without and with momentum, as means over worlds."""
    size = found.settings.learning_size
    for (first, second), metric in itertools.product(PAIRS, LEARNED):
        apart = found.difference("mean", first, second, size, metric)
        yield line_of(f"mean/{first}{MINUS}{second}/{size}", metric, apart, None)


def marked(what: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines under names of their own."""
    return [line | {"case": f"{what}: {line['case']}" if what else line["case"]} for line in lines]


def kept(what: str = "") -> list[dict[str, Any]]:
    """The committed figures of the audit, or of one of its additions, each with its interval."""
    start = f"{what}: " if what else ""
    return joined(
        line | {"case": line["case"].removeprefix(start)}
        for line in read_lines(RESULTS / "audit.jsonl")[1:]
        if line["case"].startswith(start) and (what or ": " not in line["case"])
    )


def joined(lines: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of figures, each with the ends of its interval."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lines:
        case, metric = line["case"], line["metric"]
        if metric in METRICS:
            found[case, metric] = dict(line)
        else:
            name, _, end = metric.rpartition("_")
            found[case, name][end] = line["value"]
    return list(found.values())


def figure(lines: Iterable[Line], path: Path) -> None:
    """Draw means over worlds with intervals, and every world, as PNG and SVG."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (no other part needs it)

    tables = AuditTables(lines)
    size = tables.learning_size()
    metrics = [name for name in FIGURE if tables.has(size, name)]
    drawing = Figure((3.0 * len(metrics), 1.2 + 0.28 * len(tables.recipes)), layout="constrained")
    axes = drawing.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    names = tables.recipes[::-1]
    for axis, metric in zip(axes, metrics, strict=True):
        for y, recipe in enumerate(names):
            values = [tables.lines[w, recipe, size, metric]["value"] for w in tables.worlds[:-1]]
            axis.plot(values, [y] * len(values), "o", color="0.75", markersize=3)
            mean = tables.lines["mean", recipe, size, metric]
            axis.plot([mean["low"], mean["high"]], [y, y], color="C0", linewidth=2)
            axis.plot(mean["value"], y, "o", color="C0", markersize=6)
        axis.set_title(metric.replace("_", " "), fontsize=10)
        axis.set_yticks(range(len(names)), names)
        axis.grid(axis="x", color="0.9")
        axis.set_axisbelow(True)
    caption = "mean over worlds (blue, with its 95 % interval) and each world (grey), group size"
    drawing.supxlabel(f"{caption} {size}", fontsize=9)
    save_figure(drawing, path)


def pairs() -> str:
    """Differences in learning with momentum, what they are like over worlds, and those without."""
    tables, lines = AuditTables(kept()), {}
    for line in kept("pairs"):
        lines[line["case"].split("/")[1], line["metric"]] = line
    rows = []
    for first, second in PAIRS:
        means = []
        for metric in LEARNED:
            mean = lines[f"{first}{MINUS}{second}", metric]
            means.append(f"{mean['value']:+.3f} [{mean['low']:+.3f}, {mean['high']:+.3f}]")
        learned = [
            {w: tables.lines[w, name, 8, "momentum_auc"]["value"] for w in WORLDS}
            for name in (first, second)
        ]
        apart = {world: learned[0][world] - learned[1][world] for world in WORLDS}
        others = np.mean([value for world, value in apart.items() if world != "dense"])
        ahead = f"{sum(value > 0 for value in apart.values())} of {len(WORLDS)}"
        rows.append([f"`{first}` minus `{second}`", means[0], f"{others:+.3f}", ahead, means[1]])
    head = [LEARNED[0], "without dense", "worlds ahead", LEARNED[1]]
    return markdown(["difference", *head], rows) + "\n"


def with_scores(text: str) -> str:
    """The page with learning in rows ``| `RECIPE` | 0.1 ±0.1 |``, of the better form of each."""
    head, rows = AuditTables(kept()).means(8)
    place = head.index("momentum_auc")
    best: dict[str, str] = {}
    for row in rows:
        plain = re.sub("_(mean|exact)$", "", row[0])
        best[plain] = max(best.get(plain, row[place]), row[place])
    for name, cell in best.items():
        text = re.sub(rf"(\| `{name}` \|) [0-9.]+ ±[0-9.]+ \|", rf"\1 {cell} |", text)
    return text


def filled(text: str) -> str:
    """The page with the table of the committed results."""
    return fill_page(text, {"pairs": pairs()})


if __name__ == "__main__":
    main()
