"""The drawing of the floors, from the layers of import-linter in ``pyproject.toml``."""

import tomllib
from html import escape
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
QUESTIONS = (
    "What is in the table, and can it be trusted?",
    "Which decisions may be compared?",
    "What did a decision earn?",
    "Where do the steps come from, and is the estimator right?",
    "How does a table of any size get through?",
    "How does a trainer use it, and what does it look like?",
    "Parse, call, print.",
)
"""What each floor answers, from the ground up."""
WIDTH, GAP, BOX, ACROSS = 480, 8, 26, 4
STYLE = "max-width:100%;height:auto;font:13px sans-serif;fill:var(--color-foreground-primary,#222)"


def floors() -> list[list[str]]:
    """The packages of each floor, from the ground up."""
    contracts = tomllib.loads(PROJECT.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(each["layers"] for each in contracts if each["type"] == "layers")
    return [
        [name.strip().removeprefix("ascribe.") for name in layer.split(":")]
        for layer in reversed(layers)
    ]


def drawing() -> str:
    """Inline SVG in the colours of the theme, so that it is right in light and dark."""
    parts: list[str] = []
    top = 46
    for packages, question in reversed(list(zip(floors(), QUESTIONS, strict=True))):
        rows = -(-len(packages) // ACROSS)
        high = 22 + rows * (BOX + GAP)
        parts.append(_box(1, top, WIDTH - 2, high, "var(--color-background-secondary,#f8f9fb)"))
        parts.append(f'<text x="12" y="{top + 16}">{escape(question)}</text>')
        for number, name in enumerate(packages):
            wide = (WIDTH - 2 * 12 + GAP) // min(len(packages), ACROSS) - GAP
            x = 12 + number % ACROSS * (wide + GAP)
            y = top + 22 + number // ACROSS * (BOX + GAP)
            parts.append(_box(x, y, wide, BOX, "var(--color-background-primary,#fff)"))
            middle = f'x="{x + wide // 2}" y="{y + 17}" text-anchor="middle"'
            parts.append(f'<text {middle} font-family="monospace">{name}</text>')
        top += high + GAP
    roof = f"1,40 {WIDTH // 2},4 {WIDTH - 1},40"
    border = "var(--color-foreground-border,#878787)"
    parts.append(f'<polygon points="{roof}" fill="none" stroke="{border}"/>')
    label = "The floors of Ascribe, with the packages on each"
    size = f'viewBox="0 0 {WIDTH} {top}" width="720" style="{STYLE}"'
    return "\n".join([f'<svg role="img" aria-label="{label}" {size}>', *parts, "</svg>"])


def _box(x: int, y: int, wide: int, high: int, fill: str) -> str:
    border = "var(--color-foreground-border,#878787)"
    place = f'x="{x}" y="{y}" width="{wide}" height="{high}" rx="4"'
    return f'<rect {place} style="fill:{fill};stroke:{border}"/>'
