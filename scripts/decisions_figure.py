"""Draw the surest decisions of ``examples/conversations.jsonl``: docs/figures/decisions.svg.

    python scripts/decisions_figure.py

Each line is a choice between two ways to go on; the dots are the shares of attempts that
succeeded. The picture is 400 pixels wide, so that it can be read on a telephone, and it is light or
dark as its reader prefers.
"""

import json
import subprocess
import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "figures" / "decisions.svg"
SHOWN, WIDTH, HIGH, TOP = 3, 400, 84, 34
LEFT, RIGHT = 16, 372
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2330 }
.code { font: 12px ui-monospace, Menlo, Consolas, monospace }
.soft { fill: #4f5a6b } .end { text-anchor: end }
.line { stroke: #d5dae3; stroke-width: 2 } .between { stroke: #9aa5b5; stroke-width: 4 }
.better { fill: #2878b5 } .worse { fill: #e07b2c }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ef } .soft { fill: #a9b3c3 } .line { stroke: #3c4452 }
  .better { fill: #6fb1e8 } .worse { fill: #f2985a }
}
"""


def drawn(decisions: list[dict]) -> str:
    """The picture."""
    parts = [
        text(LEFT, 20, "Which choice won more attempts?", "", 'font-weight="600"'),
        *(line for number, each in enumerate(decisions) for line in row(each, TOP + number * HIGH)),
    ]
    high = TOP + len(decisions) * HIGH
    size = f'viewBox="0 0 {WIDTH} {high}" width="{WIDTH}" height="{high}"'
    label = "For each decision, the share of attempts that succeeded after either choice"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" {size}>'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


def row(decision: dict, top: float) -> list[str]:
    """One decision: where, both choices with their shares, and how sure it is."""
    better, worse = decision["better"], decision["worse"]
    where = f"{decision['task']}, after {decision['state'].partition(': ')[2]!r}".replace("'", "")
    sure = "certain" if decision["certain"] else "not certain"
    low, high = (place(side["won"]) for side in (worse, better))
    middle = top + 34
    parts = [text(LEFT, top + 14, " ".join(where.replace("\\n", " ").split()), "soft")]
    parts.append(text(RIGHT + 12, top + 14, sure, "soft end"))
    parts.append(f'<path class="line" d="M{place(0)} {middle}H{place(1)}"/>')
    parts.append(f'<path class="between" d="M{low} {middle}H{high}"/>')
    parts.append(f'<circle class="worse" cx="{low}" cy="{middle}" r="7"/>')
    parts.append(f'<circle class="better" cx="{high}" cy="{middle}" r="7"/>')
    parts.append(text(LEFT, middle + 24, said(worse), "code"))
    parts.append(text(RIGHT + 12, middle + 24, said(better), "code end"))
    return parts


def said(side: dict) -> str:
    """A choice and the share of attempts that it won."""
    return f"{side['action'].strip('`')} {side['won']:.0%}".replace('path="', "").replace('")', ")")


def place(share: float) -> float:
    """Where a share is."""
    return round(LEFT + 8 + share * (RIGHT - LEFT - 8), 1)


def text(x: float, y: float, words: str, kind: str, more: str = "") -> str:
    """A line of text."""
    return f'<text class="{kind}" x="{x}" y="{y}" {more}>{escape(words)}</text>'


if __name__ == "__main__":
    command = [sys.executable, "-m", "ascribe", "decisions", "examples/conversations.jsonl"]
    done = subprocess.run([*command, "--json"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    OUT.write_text(drawn(json.loads(done.stdout)["decisions"][:SHOWN]), encoding="utf-8")
