"""Score every recipe against exact advantages: the figures of ``ascribe audit``.

A case is world/recipe/group size, ``mean`` stands for the mean over worlds, and ``A minus B`` is
the difference of two recipes, paired over blocks of tasks. ``METRIC_low`` and ``METRIC_high`` bound
the 95 % interval over blocks. ``--docs`` writes the committed results into docs/audit.md and draws
its figure (with matplotlib) instead of running anything.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from common import RESULTS, ROOT, Figures, fill_page, read_lines

from ascribe.audit import ABLATIONS, FULL, FULL_FORMS, QUICK, QUICK_FORMS, audit, scored_recipe
from ascribe.audit.report import (
    FIGURE,
    MEANS,
    PAIRED,
    AuditTables,
    TableCells,
    figure,
    json_lines,
    markdown,
    page,
)
from ascribe.audit.run import METRICS

PAGE = ROOT / "docs" / "audit.md"
PICTURE = ROOT / "docs" / "figures" / "audit"
PREDICTOR = RESULTS / "audit_predictor.jsonl"
SEED = 22
"""That of ``audit_predictor.py``, so that both are about the same runs."""
LEADER = "sbc"
SHOWN_SCORES = (
    "both, 8 trajectories, success cosine",
    "start, 8 trajectories, success pooled 16",
    "start, 8 trajectories, success cosine",
    "start, 8 trajectories, discounted cosine",
    "start, 8 trajectories, discounted pooled inf",
    "start, 8 trajectories, discounted action cosine",
    "start, 8 trajectories, cosine",
    "start, 8 trajectories, sign",
    "start, 8 trajectories, mse",
)
"""Scores that the page shows beside the one that was chosen."""
ABLATED = ("bipace_q_mean", "sbc")
"""What the ablations are shown beside."""

BLURRED = ("gigpo", "gigpo_mean", "bipace_q_mean", "sbc_keep", "sbc")
"""What is scored in clusters that mix states."""

BLUR = 0.97
"""At this blur at most one pair of rows of a cluster in five is in the same state."""


def main() -> None:
    """Run the audit and print its figures, or write the page from the committed ones."""
    if "--docs" in sys.argv:
        PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        figure(kept(), PICTURE)
        return

    with Figures("audit") as figures:
        for line in filter(is_shown, lines_of(quick=figures.quick)):
            values = (line["value"], line["low"], line["high"])
            figures.emit_interval(
                line["case"], line["metric"], values, "1", line["better"], line["goal"]
            )


def is_shown(line: dict[str, Any]) -> bool:
    """Whether the page or its figure shows a line."""
    metric, case = line["metric"], line["case"].rpartition(": ")[2]
    if case.startswith("mean/") and metric in MEANS:
        return True
    return metric in PAIRED or (metric in FIGURE and case.endswith("/8"))


def lines_of(*, quick: bool) -> list[dict[str, Any]]:
    """The audit, then the parts of ``sbc`` left out one by one, then blurred fingerprints."""

    def run(names: tuple[str, ...], settings: Any) -> list[dict[str, Any]]:
        found = audit({name: scored_recipe(name) for name in names}, settings, processes=2)
        return list(json_lines(found, LEADER))

    lines = run(QUICK_FORMS, QUICK) if quick else run(FULL_FORMS, replace(FULL, seed=SEED))
    if not quick:
        parts = tuple(f"sbc-{part}" for part in ABLATIONS)
        lines += marked("ablation", run((*ABLATED, *parts), QUICK))
        lines += marked("blurred", run(BLURRED, replace(QUICK, blur=BLUR, updates=0)))
    return lines


def marked(what: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines under names of their own."""
    return [line | {"case": f"{what}: {line['case']}"} for line in lines]


def kept(what: str = "") -> list[dict[str, Any]]:
    """The committed figures of the audit, or of one of its additions, each with its interval."""
    start, lines = f"{what}: " if what else "", {}
    for line in read_lines(RESULTS / "audit.jsonl")[1:]:
        if not line["case"].startswith(start) or (not what and ": " in line["case"]):
            continue
        case, metric = line["case"].removeprefix(start), line["metric"]
        if metric in METRICS:
            lines[case, metric] = line | {"case": case}
        else:
            name, _, end = metric.rpartition("_")
            lines[case, name][end] = line["value"]
    return list(lines.values())


def tables(text: str) -> dict[str, str]:
    """Every part of the page that is made from results and has a place there, by its name."""
    parts: dict[str, Callable[[], str]] = {
        "results": lambda: page(kept()),
        "predictor": predictor,
        "ablation": lambda: two_tables("ablation", AuditTables.by_world),
        "blurred": lambda: two_tables("blurred", AuditTables.differences),
    }
    return {name: part() for name, part in parts.items() if f"<!-- begin: {name} -->" in text}


def two_tables(what: str, second: Callable[[AuditTables, int], TableCells]) -> str:
    """Means of an addition to the audit, and a table by world."""
    tables = AuditTables(kept(what))
    return f"{markdown(*tables.means(8))}\n\n{markdown(*second(tables, 8))}\n"


def predictor() -> str:
    """How well scores of a few batches predict learning, chosen and tested on different worlds."""
    lines = {(line["case"], line["metric"]): line for line in read_lines(PREDICTOR)[1:]}
    (chosen,) = {case.partition(": ")[2] for case, _ in lines if case.startswith("chosen: ")}
    rows = []
    for score in dict.fromkeys((chosen, *SHOWN_SCORES, "ceiling")):
        cells = [
            "{} [{}, {}]".format(*(f"{lines[score, m]['value']:.3f}" for m in (half, *ends)))
            for half in ("chosen_on", "tested_on")
            for ends in [(f"{half}_low", f"{half}_high")]
        ]
        rows.append([score, *cells])
    return markdown(["score", "worlds to choose on", "other worlds"], rows) + "\n"


def filled(text: str) -> str:
    """The page with the tables of the committed results."""
    return fill_page(text, tables(text))


if __name__ == "__main__":
    main()
