"""Score every recipe against exact advantages: the figures of ``ascribe audit``.

A case is world/recipe/group size, ``mean`` stands for the mean over worlds, and ``A minus B`` is
the difference of two recipes, paired over blocks of tasks. ``METRIC_low`` and ``METRIC_high`` bound
the 95 % interval over blocks. ``--docs`` writes the committed results into docs/audit.md and draws
its figure (with matplotlib) instead of running anything.
"""

import sys
from dataclasses import replace
from typing import Any

from common import RESULTS, ROOT, Figures, fill_page, read_lines

from ascribe.audit import ABLATIONS, FULL, FULL_FORMS, QUICK, QUICK_FORMS, audit, scored_recipe
from ascribe.audit.report import AuditTables, figure, json_lines, markdown, page

PAGE = ROOT / "docs" / "audit.md"
FIGURE = ROOT / "docs" / "figures" / "audit"
LEADER = "sbc"
PUBLISHED = (
    "cosine",
    "mse",
    "gradient_cosine",
    "action_gradient_cosine",
    "gradient_direction",
    "sign",
    "learning_auc",
)
"""Metrics of the results."""

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
        figure(kept(), FIGURE)
        return

    with Figures("audit") as figures:
        for line in lines_of(quick=figures.quick):
            if line["metric"] in PUBLISHED:
                values = (line["value"], line["low"], line["high"])
                figures.emit_interval(
                    line["case"], line["metric"], values, "1", line["better"], line["goal"]
                )


def lines_of(*, quick: bool) -> list[dict[str, Any]]:
    """The audit, then the parts of ``sbc`` left out one by one, then blurred fingerprints."""

    def run(names: tuple[str, ...], settings: Any) -> list[dict[str, Any]]:
        found = audit({name: scored_recipe(name) for name in names}, settings, processes=2)
        return list(json_lines(found, LEADER))

    lines = run(QUICK_FORMS, QUICK) if quick else run(FULL_FORMS, FULL)
    if not quick:
        parts = tuple(f"sbc-{part}" for part in ABLATIONS)
        lines += marked("ablation", run((*ABLATED, *parts), replace(QUICK, updates=40)))
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
        if metric in PUBLISHED:
            lines[case, metric] = line | {"case": case}
        else:
            name, _, end = metric.rpartition("_")
            lines[case, name][end] = line["value"]
    return list(lines.values())


def tables() -> dict[str, str]:
    """Every part of the page that is made from results, by the name of its place."""
    ablation, blurred = AuditTables(kept("ablation")), AuditTables(kept("blurred"))
    return {
        "results": page(kept()),
        "ablation": markdown(*ablation.means(8))
        + "\n\n"
        + markdown(*ablation.by_world(8, "learning_auc"))
        + "\n",
        "blurred": markdown(*blurred.means(8))
        + "\n\n"
        + markdown(*blurred.differences(8, "gradient_cosine"))
        + "\n",
    }


def filled(text: str) -> str:
    """The page with the tables of the committed results."""
    return fill_page(text, tables())


if __name__ == "__main__":
    main()
