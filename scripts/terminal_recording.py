"""Record the first minute with Ascribe on a terminal: docs/figures/terminal.svg.

    python scripts/terminal_recording.py

The commands run in a copy of the example, on a pseudo-terminal of 64 columns. The picture plays
what they print, line by line; where motion is not wanted, it shows all of it.
"""

import os
import pty
import shutil
import subprocess
import sys
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "figures" / "terminal.svg"
COMMANDS = ("ascribe report conversations.jsonl",)
COLUMNS, HIGH, WIDE = 64, 19, 7.85
PAUSE, LINE = 1.2, 0.12
"""Seconds before the output of a command, and for each of its lines."""
STYLE = """
rect { fill: #12161d }
text { font: 13px ui-monospace, Menlo, Consolas, monospace; fill: #e6e9ef; white-space: pre }
.typed { fill: #6fb1e8; font-weight: 600 } .prompt { fill: #f2985a }
@media (prefers-reduced-motion: no-preference) {
  g { opacity: 0; animation: show .01s linear forwards }
  @keyframes show { to { opacity: 1 } }
}
"""


def recorded(command: str, folder: str) -> list[Text]:
    """What a command prints on a terminal, in lines."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    reading, writing = pty.openpty()
    with subprocess.Popen(
        command.split(), cwd=folder, env=environment, stdout=writing, stderr=writing
    ):
        os.close(writing)
        parts = []
        while part := _read(reading):
            parts.append(part)
    os.close(reading)
    printed = b"".join(parts).decode().replace("\r\n", "\n").rpartition("\r")[2]
    console = Console(width=COLUMNS)
    return list(Text.from_ansi(printed.strip("\n")).wrap(console, COLUMNS))


def _read(reading: int) -> bytes:
    try:
        return os.read(reading, 65536)
    except OSError:  # how Linux says that the other end is closed
        return b""


def drawn(sessions: list[tuple[str, list[Text]]]) -> str:
    """The picture of commands and what they print."""
    parts, time, number = [], 0.3, 0
    for command, lines in sessions:
        typed = f'<tspan class="prompt">$</tspan> <tspan class="typed">{escape(command)}</tspan>'
        for place, line in enumerate([typed, *map(spans, lines)]):
            number += 1
            y = 12 + number * HIGH
            shown = f'<text x="16" y="{y}">{line}</text>'
            parts.append(f'<g style="animation-delay:{time:.2f}s">{shown}</g>')
            time += LINE if place else PAUSE
        number += 0.5
        time += PAUSE
    wide, high = round(COLUMNS * WIDE + 32), round(number * HIGH + 28)
    size = f'viewBox="0 0 {wide} {high}" width="{wide}" height="{high}"'
    label = "A terminal: " + ", then ".join(command for command, _ in sessions)
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" {size}>'
    paper = f'<rect width="{wide}" height="{high}" rx="8"/>'
    return "\n".join([head, f"<style>{STYLE}</style>", paper, *parts, "</svg>"]) + "\n"


def spans(line: Text) -> str:
    """A line with its colours and weights."""
    found = []
    for segment in line.render(Console(width=COLUMNS)):
        style, said = segment.style, escape(segment.text.rstrip("\n"))
        looks = []
        if style is not None and style.color is not None and not style.color.is_default:
            looks.append(f"fill:{style.color.get_truecolor(SVG_EXPORT_THEME).hex}")
        if style is not None and style.bold:
            looks.append("font-weight:600")
        if style is not None and style.dim:
            looks.append("opacity:.7")
        found.append(f'<tspan style="{";".join(looks)}">{said}</tspan>' if looks else said)
    return "".join(found)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        shutil.copy(ROOT / "examples" / "conversations.jsonl", folder)
        OUT.write_text(drawn([(each, recorded(each, folder)) for each in COMMANDS]), "utf-8")
