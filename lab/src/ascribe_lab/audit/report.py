"""The result of an audit as JSON lines, and from those the tables."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ascribe_lab.audit.run import METRICS, Audit, Interval

BETTER = {name: "lower" if name in ("mse", "gradient_variance") else "higher" for name in METRICS}
"""Every metric, and which direction is better."""

PAIRED = ("update_cosine", "learning_auc", "momentum_auc")
"""Metrics in which recipes are compared pair by pair, world by world: what should follow from a
batch, and what does."""

MEANS = METRICS[:8]
"""Columns of the table of means."""

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

    def starred(self, size: int, metric: str) -> TableCells:
        """One metric in every world; a star marks a clear difference to the leader."""
        pairs = {name.split(MINUS)[-1]: name for name in self.pairs}
        rows = []
        for name in self.recipes:
            row = [name]
            for world in self.worlds:
                apart = self.lines.get((world, pairs.get(name, ""), size, metric))
                star = "*" if apart and is_clear(apart) else ""
                row.append(f"{self.lines[world, name, size, metric]['value']:.2f}{star}")
            rows.append(row)
        return ["recipe", *self.worlds], rows


def _cell(line: Line) -> str:
    return f"{line['value']:.3f} ±{(line['high'] - line['low']) / 2:.3f}"


def is_clear(line: Line) -> bool:
    """Whether the interval of a difference lies on one side of zero."""
    return bool(line["low"] > 0 or line["high"] < 0)


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
