"""Every recipe against advantages that are known exactly: ``ascribe audit``, figure by figure.

A case is world/recipe/group size, ``mean`` stands for the mean over worlds, and ``A minus B`` is
the difference of two recipes, paired over blocks of tasks. ``--docs`` writes the results into
docs/audit.md and draws its figure (with matplotlib) instead of running anything.
"""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from common import Figures

from ascribe.audit import ABLATIONS, FULL, FULL_FORMS, QUICK, QUICK_FORMS, audit, named
from ascribe.audit.report import AuditTables, figure, json_lines, markdown, page

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "audit.jsonl"
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
"""Metrics that are kept."""

ABLATED = ("bipace_q_mean", "sbc")
"""What the ablations are shown beside."""

BLURRED = ("gigpo", "gigpo_mean", "bipace_q_mean", "sbc_keep", "sbc")
"""What is scored in clusters that mix states."""

BLUR = 0.97
"""At this blur at most one pair of rows of a cluster in five is in the same state."""


def main() -> None:
    """Run the audit and print its figures, or write the page from those that are kept."""
    if "--docs" in sys.argv:
        lines = kept()
        write_page()
        draw(lines)
        return

    with Figures("audit") as figures:
        for line in lines_of(quick=figures.quick):
            if line["metric"] in PUBLISHED:
                figures.lines.append(json.dumps(line))
                print(figures.lines[-1], flush=True)


def lines_of(*, quick: bool) -> list[dict[str, Any]]:
    """The audit, then the parts of ``sbc`` left out one by one, then blurred fingerprints."""

    def run(names: tuple[str, ...], settings: Any) -> list[dict[str, Any]]:
        found = audit({name: named(name) for name in names}, settings, processes=2)
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
    """The committed figures of the audit, or of one of its additions."""
    lines = [json.loads(line) for line in RESULTS.read_text().splitlines()[1:]]
    if not what:
        return [line for line in lines if ": " not in line["case"]]
    start = f"{what}: "
    return [
        line | {"case": line["case"].removeprefix(start)}
        for line in lines
        if line["case"].startswith(start)
    ]


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
    """The page with its tables as the committed results say."""
    for name, table in tables().items():
        start, end = f"<!-- begin: {name} -->\n", f"<!-- end: {name} -->"
        place = re.compile(re.escape(start) + ".*?" + re.escape(end), re.DOTALL)
        text = place.sub(lambda _: f"{start}\n{table}\n{end}", text)  # noqa: B023 (called at once)
    return text


def write_page() -> None:
    """Fill the page."""
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


def draw(lines: list[dict[str, Any]]) -> None:
    """Draw the figure."""
    FIGURE.parent.mkdir(exist_ok=True)
    figure(lines, FIGURE)


if __name__ == "__main__":
    main()
