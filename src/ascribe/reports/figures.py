"""The figures of a report as Vega-Lite specifications, for the page and for the exports.

A specification holds its data and no colours of text or background; those come from a theme, so
the same figure can be drawn light and dark. No figure relies on colour alone: legends follow the
order of the bars' parts, lines differ in dashes and marks, and every figure has a table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ascribe.reports.facts import Facts, Rows
from ascribe.reports.runs import HELD_OUT, SUCCESS, RunMetrics
from ascribe.steps.problems import one_line

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
SLATE = "#6b7a90"
"""Of what has no other meaning: counts, sizes, dots."""

MEANINGS = {
    "#2878b5": ("credited", "returns differ", "steps with a signal"),
    "#b5629a": ("zero variance", "groups with equal returns"),
    "#c987b3": ("of those, expected by chance",),
    "#b98500": (*("singleton", "steps alone in their state", "state groups with one step"),),
    "#00876a": ("success",),
    "#6aa84f": ("held-out tasks won",),
    "#808080": ("group of one",),
    "#8a94a6": ("missing state",),
    "#4d7f8f": ("same action",),
    "#a0704a": ("truncated", "responses cut by a limit"),
    "#5b5fc7": ("revisit",),
    "#8f8f2e": ("counterfactual",),
    "#7a5c3e": ("no target",),
}
"""What each colour stands for, in every chart: blue and orange for credit (as in the browser),
purple for equal returns, yellow for steps without peers. Distinguishable for colour-blind
readers, on white and on near-black."""

COLORS = {name: color for color, names in MEANINGS.items() for name in names}

DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [4, 4], [1, 3]]
FLAT = {"labelAngle": 0, "labelOverlap": True, "labelSeparation": 4}
"""An axis whose labels are horizontal."""
ITERATION = {"field": "iteration", "type": "ordinal", "title": "iteration", "axis": FLAT}

RUN_SHARES = {
    "signal": (
        {
            "signal_share": "steps with a signal",
            "singleton_share": "state groups with one step",
            "parse_rate": "responses with an action",
        },
        "Signal of the run",
        "Shares of steps, of state groups and of responses in each iteration.",
    ),
}
"""Figures of several shares of a run: columns with their labels, title and caption."""
RUN_LINES = {
    "entropy": (
        "Entropy",
        "Entropy of the policy's next token. Near 0, its samples no longer differ.",
    ),
    "response_tokens": ("Tokens of a response", "Mean number of tokens in a response."),
}
"""Metrics of a run that have a figure of their own: title and caption."""


@dataclass(frozen=True)
class Figure:
    """A chart, its caption, and the name of the table that holds its numbers."""

    name: str
    title: str
    caption: str
    table: str
    spec: Spec


def draw(facts: Facts) -> list[Figure]:
    """Every figure that says something: more than one bar, or more than one part of a bar."""
    tables = facts.tables
    figures = _outcomes(tables["outcomes"])
    if len(tables["reasons"]) > len({row["term"] for row in tables["reasons"]}):
        figures.append(_reasons(tables["reasons"]))
    if len(tables["iterations"]) > 1:
        figures += _iterations(tables["iterations"])
    return figures


def _outcomes(rows: Rows) -> list[Figure]:
    if len(rows) < 2:
        return []
    groups = _value("groups", "task groups")
    caption = (
        "Task groups by the returns of their trajectories. Only groups whose returns differ show "
        "which trajectories were better."
    )
    chart = _bars(rows, "outcome", groups, COLORS["returns differ"])
    return [Figure("outcomes", "Outcomes of task groups", caption, "outcomes", chart)]


def _reasons(rows: Rows) -> Figure:
    rows = [{**row, "reason": row["reason"].replace("_", " ")} for row in rows]
    names = sorted({row["reason"] for row in rows}, key=lambda name: (name != "credited", name))
    parts = _color("reason", names)
    return Figure(
        "reasons",
        "Where the signal is",
        "Steps in each term of the recipe: credited, or the reason why not.",
        "reasons",
        _bars(rows, "term", _share("share", "share of steps"), parts, row_height=34),
    )


def _iterations(rows: Rows) -> list[Figure]:
    labels = {
        "success": "success",
        "signal": "steps with a signal",
        "alone": "steps alone in their state",
        "equal_groups": "groups with equal returns",
        "expected_equal": "of those, expected by chance",
        "cut_turns": "responses cut by a limit",
    }
    labels = {name: label for name, label in labels.items() if rows[0][name] is not None}
    rows = [{**row, "batch": one_line(row["batch"], 120)} for row in rows]
    return [
        Figure(
            "over_iterations",
            "Signal over iterations",
            "One point per iteration.",
            "iterations",
            _share_lines(rows, labels),
        ),
        Figure(
            "turns_over_iterations",
            "Turns over iterations",
            "Mean number of steps of an episode. If it falls while success does not rise, the "
            "agent has stopped using its turns.",
            "iterations",
            _line(rows, "turns", "turns of an episode"),
        ),
    ]


def draw_run(run: RunMetrics) -> list[Figure]:
    """The figures of a run, from the metrics of its iterations."""
    rows = run.rows
    present = rows[0].keys()
    figures = []
    curves = {SUCCESS: "success", HELD_OUT: "held-out tasks won"}
    if curves := {name: label for name, label in curves.items() if name in present}:
        chart = _share_lines(rows, curves)
        if HELD_OUT in curves:
            rule = {
                "data": {"values": [{"threshold": run.config.threshold}]},
                "mark": {"type": "rule", "strokeDash": [2, 4]},
                "encoding": {"y": {"field": "threshold", "type": "quantitative"}},
            }
            lines = {"mark": chart.pop("mark"), "encoding": chart.pop("encoding")}
            chart["layer"] = [lines, rule]
        caption = run.summary or "Share of training episodes won; no held-out tasks were played."
        figures.append(Figure("run_success", "Success over the run", caption, "run", chart))
    for name, (labels, title, caption) in RUN_SHARES.items():
        if shares := {column: label for column, label in labels.items() if column in present}:
            chart = _share_lines(rows, shares)
            figures.append(Figure(f"run_{name}", title, caption, "run", chart))
    for name, (title, caption) in RUN_LINES.items():
        if name in present:
            chart = _line(rows, name, title[0].lower() + title[1:])
            figures.append(Figure(f"run_{name}", title, caption, "run", chart))
    return figures


# Parts of a specification.


def _chart(rows: Rows, **parts: Any) -> Spec:
    return {
        "$schema": SCHEMA,
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": rows},
        **parts,
    }


def _line(rows: Rows, name: str, title: str) -> Spec:
    """One number over the iterations."""
    return _chart(
        [_point(row, name, "value") for row in rows if row[name] is not None],
        height=160,
        mark=_mark("line", point={"size": 50, "color": SLATE}, color=SLATE),
        encoding={"x": ITERATION, "y": _value("value", title)},
    )


def _share_lines(rows: Rows, labels: Mapping[str, str]) -> Spec:
    """Shares over the iterations, by the columns of the rows and their labels."""
    names = list(labels.values())
    kinds = {"field": "what", "type": "nominal", "sort": names}
    legend = {"columns": 1, "symbolStrokeWidth": 0}  # the marks are too small for dashes
    return _chart(
        [
            {**_point(row, name, "share"), "what": label}
            for row in rows
            for name, label in labels.items()
            if row[name] is not None
        ],
        height=240,
        mark=_mark("line", point={"size": 50}),
        encoding={
            "x": ITERATION,
            "y": _share("share", "share"),
            "color": _color("what", names) | {"legend": legend},
            "strokeDash": {**kinds, "scale": {"domain": names, "range": DASHES}, "legend": legend},
            "shape": {**kinds, "scale": {"domain": names}, "legend": legend},
        },
    )


def _point(row: dict[str, Any], name: str, field: str) -> dict[str, Any]:
    named = {"iteration": row["iteration"], field: row[name]}
    return named | {"batch": row["batch"]} if "batch" in row else named


def _bars(rows: Rows, y: str, x: Spec, color: str | Spec, *, row_height: int = 26) -> Spec:
    """Horizontal bars for each value of ``y``, in one colour, or stacked by colour."""
    encoding = {"y": {"field": y, "type": "nominal", "sort": None, "title": None}, "x": x}
    mark = _mark("bar")
    if isinstance(color, str):
        mark["color"] = color
    else:
        encoding["color"] = color
        encoding["order"] = {"field": "order"}
        names = color["sort"]
        rows = [{**row, "order": names.index(row[color["field"]])} for row in rows]
    height = row_height * len({row[y] for row in rows})
    return _chart(rows, height=height, mark=mark, encoding=encoding)


def _mark(kind: str, **parts: Any) -> Spec:
    return {"type": kind, "tooltip": {"content": "data"}, **parts}


def _value(field: str, title: str, axis: Spec | None = None) -> Spec:
    axis = {"tickCount": 5, **(axis or {})}
    return {"field": field, "type": "quantitative", "title": title, "axis": axis}


def _share(field: str, title: str) -> Spec:
    """A number from 0 to 1, as a percentage."""
    return _value(field, title, {"format": "%"}) | {"scale": {"domain": [0, 1]}}


def _color(field: str, names: Sequence[str]) -> Spec:
    used = [COLORS.get(name, SLATE) for name in names]
    return {
        "field": field,
        "type": "nominal",
        "sort": list(names),
        "scale": {"domain": list(names), "range": used},
        # Beside a chart on a narrow screen there is room for one long name.
        "legend": {"columns": 1 if max(map(len, names)) > 13 else 3},
    }
