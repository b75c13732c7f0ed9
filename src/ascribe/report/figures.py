"""The figures of a report as Vega-Lite specifications: the page draws them, and so do the exports.

A specification holds its numbers and no colours of text or paper; those come from a theme, so that
the same figure can be drawn light and dark. No figure tells by colour alone: bars carry a legend in
the order of their parts, lines differ in dashes and marks, and every number is in a table too.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ascribe.report.compare import SIGNS, Comparison
from ascribe.report.facts import ONE, OUTCOMES, Facts
from ascribe.report.text import one_line

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
BLUE, RED, GREEN, PURPLE = "#2878b5", "#d55e00", "#00876a", "#b5629a"
YELLOW, GREY, PALE = "#b98500", "#808080", "#8a94a6"
SERIES = (BLUE, RED, GREEN, PURPLE)
"""Told apart by colour-blind eyes, and seen on white and on near-black."""

DASHES = [[1, 0], [6, 3], [2, 2], [8, 3, 2, 3]]
PERCENT = {"format": "%"}
INSIDE = {"scale": {"padding": 8}}
"""No dot is cut by the edge."""

ROW = 26
"""Height of a bar with its gap."""


@dataclass(frozen=True)
class Figure:
    """A picture, what it shows, and the table whose numbers it draws."""

    name: str
    title: str
    caption: str
    table: str
    spec: Spec


def theme(*, dark: bool) -> Spec:
    """Colours of text and paper."""
    ink, line = ("#e6e9ef", "#3c4452") if dark else ("#1c2330", "#d5dae3")
    return {
        "background": None,
        "font": "system-ui, sans-serif",
        "view": {"stroke": None},
        "axis": {
            "labelColor": ink,
            "titleColor": ink,
            "gridColor": line,
            "domainColor": line,
            "tickColor": line,
            "labelFontSize": 12,
            "titleFontSize": 12,
            "titleFontWeight": "normal",
            "titlePadding": 10,
            "labelLimit": 150,
        },
        "legend": {
            "labelColor": ink,
            "titleColor": ink,
            "orient": "bottom",
            "labelFontSize": 12,
            "labelLimit": 230,
            "offset": 10,
            "title": None,
            "symbolStrokeWidth": 2,
        },
        "text": {"color": ink},
        "rule": {"color": ink},
    }


def draw(facts: Facts, comparisons: Sequence[Comparison]) -> list[Figure]:
    """Every figure that these facts give."""
    tables = facts.tables()
    found = [
        _success(facts),
        _returns(facts),
        _outcomes(tables["outcomes"]),
        _reasons(tables["reasons"]),
    ]
    if len(facts.iterations) > 1:
        found.append(_over_iterations(tables["iterations"]))
        if facts.iterations[0].mean_group_size is not None:
            found.append(_sizes_over_iterations(tables["iterations"]))
    if tables["state_sizes"]:
        found.append(_sizes(tables["state_sizes"]))
    found += [_funnel(facts), _mix(facts), _lengths(tables["lengths"])]
    for comparison in comparisons:
        found += [_signs(comparison), _scatter(comparison)]
    return found


# Outcomes.


def _success(facts: Facts) -> Figure:
    rows = [
        {
            "family": one_line(each.family, 60),
            "success": each.success,
            "low": each.low,
            "high": each.high,
            "tasks": each.tasks,
        }
        for each in facts.families
    ]
    said = "" if facts.success_by_column else " No column says who won: a return above 0 counts."
    spec = _spec(
        rows,
        height=_high(rows, "family"),
        layer=[
            {
                "mark": _mark("bar", color=BLUE),
                "encoding": {"x": _value("success", "success", axis=PERCENT, domain=[0, 1])},
            },
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {"x": _value("low", "success"), "x2": {"field": "high"}},
            },
        ],
        encoding={"y": _y("family")},
    )
    return Figure(
        "success_by_family",
        "Success by family",
        "Share of episodes that succeed, each task counted once; the line is the 95 % interval."
        + said,
        "families",
        spec,
    )


def _returns(facts: Facts) -> Figure:
    rows = [
        {"family": one_line(each.family, 60), "return": each.mean_return} for each in facts.families
    ]
    spec = _spec(
        rows,
        height=_high(rows, "family"),
        mark=_mark("bar", color=GREEN),
        encoding={"y": _y("family"), "x": _value("return", "mean return of an episode")},
    )
    return Figure(
        "return_by_family",
        "Return by family",
        "Mean of the summed rewards of an episode.",
        "families",
        spec,
    )


def _outcomes(rows: list[dict[str, Any]]) -> Figure:
    kinds = (*OUTCOMES, ONE)
    names = [kind for kind in kinds if any(row["outcome"] == kind for row in rows)]
    colors = dict(zip(kinds, (RED, PURPLE, GREY, YELLOW, BLUE, PALE), strict=True))
    shown = [{**row, "family": one_line(row["family"], 60)} for row in rows]
    spec = _spec(
        [{**row, "order": names.index(row["outcome"])} for row in shown],
        height=_high(rows, "family"),
        mark=_mark("bar"),
        encoding={
            "y": _y("family"),
            "x": _value("groups", "task groups"),
            "color": _color("outcome", names, [colors[name] for name in names]),
            "order": {"field": "order"},
        },
    )
    return Figure(
        "outcomes",
        "Groups with something to compare",
        "Task groups by what their trajectories earned. Only where returns differ is there an "
        "episode-level signal.",
        "outcomes",
        spec,
    )


# Signal.


def _reasons(rows: list[dict[str, Any]]) -> Figure:
    rows = [{**row, "reason": row["reason"].replace("_", " ")} for row in rows]
    names = sorted({row["reason"] for row in rows}, key=lambda name: (name != "credited", name))
    colors = (BLUE, RED, PURPLE, YELLOW, GREEN, GREY, PALE)
    spec = _spec(
        [{**row, "order": names.index(row["reason"])} for row in rows],
        height=_high(rows, "term", ROW + 8),
        mark=_mark("bar"),
        encoding={
            "y": _y("term"),
            "x": _value("share", "share of steps", axis=PERCENT, domain=[0, 1]),
            "color": _color("reason", names, colors),
            "order": {"field": "order"},
        },
    )
    return Figure(
        "reasons",
        "Where the signal is",
        "Steps by what became of them in each term of the recipe: credited, or why not.",
        "reasons",
        spec,
    )


def _over_iterations(rows: list[dict[str, Any]]) -> Figure:
    series = {
        "success": "success",
        "signal": "steps with a signal",
        "alone": "steps alone in their state",
        "equal_groups": "groups with equal returns",
    }
    series = {name: said for name, said in series.items() if rows[0][name] is not None}
    names = list(series.values())
    kinds = {"field": "what", "type": "nominal", "sort": names}
    legend = {"columns": 1, "symbolStrokeWidth": 0}  # the marks are too small for dashes
    long = [
        {"number": number, "batch": one_line(row["iteration"]), "what": said, "share": row[name]}
        for number, row in enumerate(rows, start=1)
        for name, said in series.items()
    ]
    spec = _spec(
        long,
        height=240,
        mark={"type": "line", "point": {"size": 50}, "tooltip": {"content": "data"}},
        encoding={
            "x": {"field": "number", "type": "ordinal", "title": "batch", "axis": _flat()},
            "y": _value("share", "share", axis=PERCENT, domain=[0, 1]),
            "color": _color("what", names, SERIES) | {"legend": legend},
            "strokeDash": {
                **kinds,
                "scale": {"domain": names, "range": DASHES},
                "legend": legend,
            },
            "shape": {**kinds, "scale": {"domain": names}, "legend": legend},
        },
    )
    return Figure(
        "over_iterations",
        "Signal over iterations",
        "Batches in the order in which they were given.",
        "iterations",
        spec,
    )


def _sizes_over_iterations(rows: list[dict[str, Any]]) -> Figure:
    long = [
        {"number": number, "size": row["mean_group_size"]}
        for number, row in enumerate(rows, start=1)
    ]
    spec = _spec(
        long,
        height=160,
        mark={"type": "line", "point": {"size": 50}, "color": BLUE, "tooltip": {"content": "data"}},
        encoding={
            "x": {"field": "number", "type": "ordinal", "title": "batch", "axis": _flat()},
            "y": _value("size", "steps in a state group"),
        },
    )
    return Figure(
        "group_size_over_iterations",
        "Group size over iterations",
        "Mean number of steps in a state group; near 1, states are too fine to be compared.",
        "iterations",
        spec,
    )


def _sizes(rows: list[dict[str, Any]]) -> Figure:
    spec = _spec(
        rows,
        height=200,
        mark=_mark("bar", color=BLUE),
        encoding={
            "x": {
                "field": "steps_in_group",
                "type": "ordinal",
                "sort": None,
                "title": "steps in the state group",
                "axis": _flat(),
            },
            "y": _value("groups", "state groups"),
        },
    )
    return Figure(
        "state_sizes",
        "How many steps share a state",
        "State groups by their size. A group of 1 gives no step-level signal.",
        "state_sizes",
        spec,
    )


def _funnel(facts: Facts) -> Figure:
    rows = [row for view in facts.views for row in view.rows()]
    names = [view.name for view in facts.views]
    spec = _spec(
        rows,
        height=_high(rows, "name", 2 * 14 + 8),
        mark=_mark("bar"),
        encoding={
            "y": _y("name"),
            "yOffset": {"field": "states", "sort": names},
            "x": _value("share", "share of steps", axis=PERCENT, domain=[0, 1]),
            "color": _color("states", names, (BLUE, RED)),
        },
    )
    exact, clustered = facts.views
    pairs = [view.stages[-1].pairs or 0 for view in facts.views]
    sampled = exact.steps < facts.diagnosis.rows
    note = f" Over a sample of {exact.steps:,} steps, in whole groups." if sampled else ""
    return Figure(
        "funnel",
        "From steps to usable pairs",
        f"What is left of the steps on the way to a comparison that teaches something. Usable "
        f"pairs: {pairs[0]:,} with exact states, {pairs[1]:,} {clustered.name}.{note}",
        "funnel",
        spec,
    )


def _mix(facts: Facts) -> Figure:
    said = {
        "pace": "peers did the same",
        "leave_one_out": "only others to compare with",
        "singleton": "alone in its state",
    }
    rows = [
        {
            "states": view.name,
            "what": text,
            "share": getattr(view.mix, name),
            "order": list(said).index(name),
        }
        for view in facts.views
        for name, text in said.items()
    ]
    spec = _spec(
        rows,
        height=_high(rows, "states", ROW + 8),
        mark=_mark("bar"),
        encoding={
            "y": _y("states"),
            "x": _value("share", "share of steps", axis=PERCENT, domain=[0, 1]),
            "color": _color("what", list(said.values()), (BLUE, GREEN, RED)),
            "order": {"field": "order"},
        },
    )
    return Figure(
        "row_mix",
        "Row mix",
        "How a step could be credited by peers that took the same action in its state (the row mix "
        "of BiPACE).",
        "row_mix",
        spec,
    )


def _lengths(rows: list[dict[str, Any]]) -> Figure:
    series = ("trajectories", "steps", "gradient")
    long = [
        {"length": row["length"], "of": name, "share": row[name]} for row in rows for name in series
    ]
    spec = _spec(
        long,
        height=220,
        mark=_mark("bar"),
        encoding={
            "x": {
                "field": "length",
                "type": "ordinal",
                "sort": None,
                "title": "steps in the trajectory",
                "axis": _flat(),
            },
            "xOffset": {"field": "of", "sort": list(series)},
            "y": _value("share", "share", axis=PERCENT),
            "color": _color("of", series, (GREY, BLUE, RED)),
        },
    )
    return Figure(
        "lengths",
        "Who makes the gradient",
        "Share of the summed size of advantages by the length of the trajectory, beside its share "
        "of trajectories and steps.",
        "lengths",
        spec,
    )


# Comparisons.


def _signs(comparison: Comparison) -> Figure:
    rows = [
        {"first": each.first, "second": each.second, "share": each.share}
        for each in comparison.signs
    ]
    base = {
        "x": {
            "field": "second",
            "type": "ordinal",
            "sort": list(SIGNS),
            "title": _lines(comparison.second),
            "axis": _flat(),
        },
        "y": {"field": "first", "type": "ordinal", "sort": list(reversed(SIGNS)), "title": None},
    }
    spec = _spec(
        rows,
        height=150,
        encoding=base,
        layer=[
            {
                "mark": {"type": "rect", "color": BLUE},
                "encoding": {
                    "opacity": {
                        "field": "share",
                        "type": "quantitative",
                        "scale": {"domain": [0, 1], "range": [0.04, 0.6]},
                        "legend": None,
                    }
                },
            },
            {
                "mark": {"type": "text", "fontSize": 14},
                "encoding": {"text": {"field": "share", "type": "quantitative", "format": ".1%"}},
            },
        ],
    )
    return Figure(
        f"signs_{comparison.kind}",
        "Signs under both",
        f"Share of {comparison.things} by the sign of their credit: rows by {comparison.first}, "
        f"columns by {comparison.second}.",
        f"signs_{comparison.kind}",
        spec,
    )


def _scatter(comparison: Comparison) -> Figure:
    table = f"dots_{comparison.kind}"
    rows = comparison.tables()[table]
    spec = _spec(
        rows,
        height=260,
        mark={"type": "point", "color": BLUE, "opacity": 0.35, "size": 24},
        encoding={
            "x": _value("first", _lines(comparison.first)) | INSIDE,
            "y": _value("second", _lines(comparison.second)) | INSIDE,
        },
    )
    said = f" Up to {len(rows):,} are drawn." if len(rows) < comparison.compared else ""
    return Figure(
        f"scatter_{comparison.kind}",
        "Credit against credit",
        f"Each dot is one of the {comparison.things}, in units of each credit's own size.{said}",
        table,
        spec,
    )


# Parts.


def _spec(rows: list[dict[str, Any]], **parts: Any) -> Spec:
    return {
        "$schema": SCHEMA,
        "width": "container",
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": rows},
        **parts,
    }


def _high(rows: list[dict[str, Any]], field: str, each: int = ROW) -> int:
    """The height of a bar for every value of a field."""
    return each * len({row[field] for row in rows})


def _mark(kind: str, **parts: Any) -> Spec:
    return {"type": kind, "tooltip": {"content": "data"}, **parts}


def _flat() -> Spec:
    return {"labelAngle": 0, "labelOverlap": True, "labelSeparation": 4}


def _y(field: str) -> Spec:
    return {"field": field, "type": "nominal", "sort": None, "title": None}


def _lines(name: str) -> list[str]:
    """A long title on several lines, each short enough for the height of a figure."""
    return textwrap.wrap(name, 36)


def _value(
    field: str,
    title: str | list[str],
    *,
    axis: Spec | None = None,
    domain: list[float] | None = None,
) -> Spec:
    found: Spec = {"field": field, "type": "quantitative", "title": title}
    found["axis"] = {"tickCount": 5, **(axis or {})}
    if domain is not None:
        found["scale"] = {"domain": domain}
    return found


def _color(field: str, names: Sequence[str], colors: Sequence[str]) -> Spec:
    shown = [colors[number % len(colors)] for number in range(len(names))]
    return {
        "field": field,
        "type": "nominal",
        "sort": list(names),
        "scale": {"domain": list(names), "range": shown},
        # Beside a chart on a narrow screen there is room for one long name.
        "legend": {"columns": 1 if max(map(len, names)) > 13 else 3},
    }
