"""The result of an audit as JSON lines, and from those the tables, the page and the figure."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ascribe.audit.run import METRICS, Audit, Interval
from ascribe.steps.atomic import replacing

BETTER = {name: "lower" if name in ("mse", "gradient_variance") else "higher" for name in METRICS}
"""Every metric, and which direction is better."""

PAIRED = ("update_cosine", "momentum_auc", "learning_auc")
"""Metrics in which recipes are compared pair by pair, world by world: what should follow from a
batch, and what does."""

MEANS = METRICS[:8]
"""Columns of the table of means."""

FIGURE = (*PAIRED, "gradient_cosine", "gradient_direction")
"""Metrics of the figure."""

MINUS = " minus "
"""Between the two recipes of a paired difference, in the name of a case."""

Line = Mapping[str, Any]
TableCells = tuple[list[str], list[list[str]]]
"""Head and rows of a table."""


def json_lines(audit: Audit, leader: str | None = None) -> Iterator[dict[str, Any]]:
    """One object for every figure: ``bench, case, metric, value, unit, goal, better``.

    Two more keys, ``low`` and ``high``, are the 95 % interval over blocks. A case is
    ``world/recipe/size``, with the world ``mean`` for the mean over worlds. With a ``leader``, its
    paired differences with every other recipe follow, as ``world/leader minus recipe/size``.
    """
    cases = [
        (world, recipe, size)
        for size in dict.fromkeys(size for _, _, size in audit.scores)
        for world in (*audit.settings.worlds, "mean")
        for recipe in audit.recipes
    ]
    for world, recipe, size in cases:
        for metric in audit.metrics(size):
            score = audit.estimate(world, recipe, size, metric)
            yield line_of(f"{world}/{recipe}/{size}", metric, score, None)
    for world, recipe, size in cases:
        if leader in (None, recipe):
            continue
        for metric in audit.metrics(size):
            if metric in PAIRED:
                score = audit.difference(world, str(leader), recipe, size, metric)
                yield line_of(f"{world}/{leader}{MINUS}{recipe}/{size}", metric, score, 0.0)


def line_of(case: str, metric: str, score: Interval, goal: float | None) -> dict[str, Any]:
    """The object of one figure."""
    return {
        "bench": "audit",
        "case": case,
        "metric": metric,
        "value": round(score.value, 4),
        "unit": "1",
        "goal": goal,
        "better": BETTER[metric],
        "low": round(score.low, 4),
        "high": round(score.high, 4),
    }


class AuditTables:
    """The lines of an audit, by case and metric, as tables."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self.lines: dict[tuple[str, str, int, str], Line] = {}
        for line in lines:
            world, recipe_and_size = line["case"].split("/", 1)
            recipe, size = recipe_and_size.rsplit("/", 1)
            self.lines[world, recipe, int(size), line["metric"]] = line
        names = dict.fromkeys(recipe for _, recipe, _, _ in self.lines)
        self.recipes = [name for name in names if MINUS not in name]
        self.pairs = [name for name in names if MINUS in name]
        self.worlds = list(dict.fromkeys(key[0] for key in self.lines))
        self.sizes = list(dict.fromkeys(key[2] for key in self.lines))

    def has(self, size: int, metric: str) -> bool:
        """Whether a metric was measured at a size."""
        return ("mean", self.recipes[0], size, metric) in self.lines

    def learning_size(self) -> int:
        """The size of the learning runs, or else the middle one."""
        learned = [size for size in self.sizes if self.has(size, "learning_auc")]
        return learned[0] if learned else self.sizes[len(self.sizes) // 2]

    def means(self, size: int) -> TableCells:
        """The main metrics, as means over worlds."""
        metrics = [name for name in MEANS if self.has(size, name)]
        rows = [
            [name, *(_cell(self.lines["mean", name, size, metric]) for metric in metrics)]
            for name in self.recipes
        ]
        return ["recipe", *metrics], rows

    def by_world(self, size: int) -> TableCells:
        """The paired metrics in every world, side by side."""
        return self._cells("recipe", self.recipes, size, lambda line: f"{line['value']:.3f}")

    def differences(self, size: int) -> TableCells:
        """Their paired differences in every world; a star marks an interval without zero."""
        return self._cells("difference", self.pairs, size, _signed)

    def starred(self, size: int, metric: str) -> TableCells:
        """One metric in every world; a star marks a clear difference to the leader."""
        pairs = {name.split(MINUS)[-1]: name for name in self.pairs}
        rows = []
        for name in self.recipes:
            row = [name]
            for world in self.worlds:
                apart = self.lines.get((world, pairs.get(name, ""), size, metric))
                star = "*" if apart and _is_clear(apart) else ""
                row.append(f"{self.lines[world, name, size, metric]['value']:.2f}{star}")
            rows.append(row)
        return ["recipe", *self.worlds], rows

    def _cells(
        self, head: str, names: list[str], size: int, text: Callable[[Line], str]
    ) -> TableCells:
        metrics = [name for name in PAIRED if self.has(size, name)]
        rows = [
            [
                name,
                *(
                    " / ".join(text(self.lines[world, name, size, metric]) for metric in metrics)
                    for world in self.worlds
                ),
            ]
            for name in names
        ]
        return [head, *self.worlds], rows


def _cell(line: Line) -> str:
    return f"{line['value']:.3f} ±{(line['high'] - line['low']) / 2:.3f}"


def _signed(line: Line) -> str:
    return f"{line['value']:+.3f}" + ("*" if _is_clear(line) else "")


def _is_clear(line: Line) -> bool:
    return bool(line["low"] > 0 or line["high"] < 0)


def page(lines: Iterable[Line]) -> str:
    """The tables as Markdown: means over worlds, each world, and paired differences."""
    tables = AuditTables(lines)
    sections = []
    for size in tables.sizes:
        sections += [f"### Means over worlds, group size {size}", markdown(*tables.means(size))]
    size = tables.learning_size()
    shown = " / ".join(name for name in PAIRED if tables.has(size, name))
    sections += [
        f"### {shown}, group size {size}",
        markdown(*tables.by_world(size)),
        markdown(*tables.differences(size)),
    ]
    return "\n\n".join(sections) + "\n"


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def figure(lines: Iterable[Line], path: Path) -> list[Path]:
    """Draw means over worlds with intervals, and every world, as PNG and SVG.

    Raises:
        ImportError: without matplotlib (the extra ``figures``).
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

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
    paths = [path.with_suffix(".png"), path.with_suffix(".svg")]
    with replacing(paths[0]) as file:
        drawing.savefig(file, format="png", dpi=100)
    with rc_context({"svg.hashsalt": "ascribe"}), replacing(paths[1]) as file:
        drawing.savefig(file, format="svg", metadata={"Date": None})
    return paths
