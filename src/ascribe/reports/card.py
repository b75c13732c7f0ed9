"""The answers as one picture of 1,200 by 675 for chat, slides and notebooks: an SVG of our own."""

from collections.abc import Iterator
from html import escape
from textwrap import wrap
from typing import Any

from ascribe.reports.text import visible

Plain = dict[str, Any]

WIDTH, HEIGHT, MARGIN = 1200, 675, 48
INK, SOFT, LINE, PAPER = "#1c2330", "#5b6577", "#d5dae3", "#ffffff"
WON, LOST = "#2878b5", "#c0553f"
MOST_VERSIONS, MOST_FINDINGS = 5, 3
ROW = 34
"""Height of a version."""
LETTER = 0.54
"""Width of a letter, in sizes of its font."""


def card(answers: Plain) -> str:
    """The sentence, the versions and three findings as SVG; every text is escaped."""
    happened, separates, changed = (answers[n] for n in ("happened", "separates", "changed"))
    sentence = happened["sentence"] if changed is None else changed["sentence"]
    label = escape(visible(f"{sentence} {separates['sentence']}"), quote=True)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}" '
        'font-family="DejaVu Sans, Helvetica, Arial, sans-serif">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{PAPER}"/>',
    ]
    top, lines = _paragraph(sentence, MARGIN, 60, 24, most=4, font_weight="bold")
    parts += [*lines, *_versions(happened, top)]
    top += ROW * min(len(happened["versions"]), MOST_VERSIONS) + 12
    ends = f'x1="{MARGIN}" y1="{top}" x2="{WIDTH - MARGIN}" y2="{top}"'
    parts.append(f'<line {ends} stroke="{LINE}"/>')
    head = separates["sentence"]
    top, lines = _paragraph(head, MARGIN, top + 34, 20, most=2, font_weight="bold")
    parts += lines
    for row in separates["rows"][:MOST_FINDINGS]:
        color = SOFT if not row["certain"] else WON if row["difference"] > 0 else LOST
        parts.append(f'<circle cx="{MARGIN + 8}" cy="{top + 4}" r="6" fill="{color}"/>')
        said = f"{row['sentence']} {row['sure']}"
        top, lines = _paragraph(said, MARGIN + 26, top + 10, 17, most=2)
        parts += lines
        top += 6
    more = len(happened["versions"]) - MOST_VERSIONS
    made = f"The {MOST_VERSIONS - 2} highest versions and the 2 lowest are shown. " * (more > 0)
    made += "Made by Ascribe. Shares with 95 % intervals, differences with 90 % intervals."
    parts += _paragraph(made, MARGIN, HEIGHT - 28, 14, most=1, fill=SOFT)[1]
    return "\n".join([*parts, "</svg>"])


def _paragraph(
    text: str, left: int, top: int, size: int, *, most: int, **look: str
) -> tuple[int, list[str]]:
    """Lines of text, cut to so many; also where the next one begins."""
    wide = 1.06 if look.get("font_weight") == "bold" else 1
    letters = int((WIDTH - MARGIN - left) / (size * LETTER * wide))
    shown = visible(text).replace(" %", "\u00a0%")
    lines = wrap(shown, letters, max_lines=most, placeholder=" …")
    step = round(1.35 * size)
    made = [_text(line, left, top + row * step, size, **look) for row, line in enumerate(lines)]
    return top + step * len(lines), made


def _text(text: str, left: float, top: float, size: int, **look: str) -> str:
    look = {"fill": INK, **look}
    named = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in look.items())
    place = f'x="{left:g}" y="{top:g}" font-size="{size}"'
    return f"<text {place}{named}>{escape(text, quote=True)}</text>"


def _versions(happened: Plain, top: int) -> Iterator[str]:
    """A bar for each version with its share and interval; the first and the last of too many."""
    rows = happened["versions"]
    if len(rows) > MOST_VERSIONS:
        ranked = sorted(rows, key=lambda row: -row["share"])
        rows = [*ranked[: MOST_VERSIONS - 2], *ranked[-2:]]
    earned = happened["outcome"] == "earned"
    scale = max([1.0, *(abs(row["high"]) for row in rows)])
    left, width = 470, 560
    for place, row in enumerate(rows):
        y = top + ROW * place
        low, high, share = (
            width * max(0.0, row[name] / scale) for name in ("low", "high", "share")
        )
        name = row["name"] if len(row["name"]) <= 38 else f"{row['name'][:37]}…"
        value = f"{row['share']:.3g}" if earned else f"{100 * row['share']:.0f} %"
        yield _text(visible(name), MARGIN, y + 19, 18)
        yield f'<rect x="{left}" y="{y}" width="{width}" height="24" fill="{LINE}"/>'
        yield f'<rect x="{left}" y="{y}" width="{share:.1f}" height="24" fill="{WON}"/>'
        yield (
            f'<line x1="{left + low:.1f}" y1="{y + 12}" x2="{left + high:.1f}" y2="{y + 12}" '
            f'stroke="{INK}" stroke-width="3"/>'
        )
        yield _text(value, left + width + 16, y + 19, 18, font_weight="bold")
