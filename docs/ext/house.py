"""The drawing of the floors, from the layers of import-linter in ``pyproject.toml``."""

import tomllib
from html import escape
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
QUESTIONS = {
    "ascribe": (
        "What is in the table, and can it be trusted?",
        "Which decisions may be compared?",
        "What did a decision earn?",
        "Which decisions mattered? How does a table of any size get through?",
        "How does a trainer use it, and what does it look like?",
        "Parse, call, print.",
    ),
    "ascribe_lab": (
        "What plays, what does it see and say, and where?",
        "How are many episodes played at once?",
        "Which turns matter, and is the estimator right?",
        "How is a policy trained by a config?",
        "Parse, call, print.",
    ),
}
"""What each floor of a package answers, from the ground up."""
WIDTH, GAP, BOX, ACROSS = 480, 8, 26, 4
STYLE = "max-width:100%;height:auto;font:13px sans-serif;fill:var(--color-foreground-primary,#222)"


def floors(package: str) -> list[list[str]]:
    """The modules of each floor of a package, from the ground up."""
    contracts = tomllib.loads(PROJECT.read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    layers = next(
        each["layers"]
        for each in contracts
        if each["type"] == "layers" and each["layers"][0].startswith(f"{package}.")
    )
    return [
        [name.strip().removeprefix(f"{package}.") for name in layer.split(":")]
        for layer in reversed(layers)
    ]


def drawing() -> str:
    """Both houses."""
    names = {"ascribe": "the library", "ascribe_lab": "the laboratory"}
    return "\n".join(
        f"<p><strong><code>{package}</code></strong>, {name}</p>\n{_house(package)}"
        for package, name in names.items()
    )


def _house(package: str) -> str:
    """Inline SVG in the colours of the theme, so that it is right in light and dark."""
    parts: list[str] = []
    top = 46
    for packages, question in reversed(list(zip(floors(package), QUESTIONS[package], strict=True))):
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
    label = f"The floors of {package}, with the modules on each"
    size = f'viewBox="0 0 {WIDTH} {top}" width="720" style="{STYLE}"'
    return "\n".join([f'<svg role="img" aria-label="{label}" {size}>', *parts, "</svg>"])


def _box(x: int, y: int, wide: int, high: int, fill: str) -> str:
    border = "var(--color-foreground-border,#878787)"
    place = f'x="{x}" y="{y}" width="{wide}" height="{high}" rx="4"'
    return f'<rect {place} style="fill:{fill};stroke:{border}"/>'
