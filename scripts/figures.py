"""Shared by the scripts that draw figures: the curves of studies, colours, and saving."""

import json
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
BLUE, RED = "#0072b2", "#d55e00"
"""Colours that colour-blind readers can distinguish."""

Line = dict[str, Any]


def read(study: str, name: str) -> list[Line]:
    """The lines of a file in the results of a study."""
    path = ROOT / "experiments" / study / "results" / name
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure; the same script draws the same SVG every time."""
    mpl.rcParams |= {"svg.hashsalt": "ascribe", "font.size": 10}
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, name: str) -> None:
    """Write ``docs/figures/NAME.svg``."""
    figure.savefig(ROOT / "docs" / "figures" / f"{name}.svg", metadata={"Date": None})
