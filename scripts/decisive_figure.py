"""Draw who finds the step that lost a session of a real agent: docs/figures/decisive.svg.

    python scripts/decisive_figure.py

The figures are those of ``benchmarks/results/decisive.jsonl``. A bar is the mean of four logs with
its 95 % interval, a dot is one log. The picture is 400 pixels wide, so that it can be read on a
telephone, and it is light or dark as its reader prefers.
"""

import json
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "docs" / "figures" / "decisive.svg"
RESULTS = ROOT / "benchmarks" / "results" / "decisive.jsonl"
MEAN = "mean of 4 logs"
LOGS = ("tau_bench", "tau2_airline", "tau_bench_retail", "tau_bench_checked")
SHOWN = {
    "events": "events (Ascribe)",
    "last call": "blame the last call",
    "consensus": "blame the rarest call",
    "any call": "any call, at random",
    "sbc": "sbc, by states",
    "gigpo": "gigpo, by states",
}
WIDTH, HIGH, TOP, LEFT, RIGHT = 400, 34, 62, 150, 380
STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1c2330 }
.soft { fill: #4f5a6b; font-size: 12px } .end { text-anchor: end }
.bar { fill: #aeb8c6 } .ours { fill: #2878b5 }
.interval { stroke: #1c2330; stroke-width: 1.5 }
.dot { fill: none; stroke: #1c2330; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6e9ef } .soft { fill: #a9b3c3 } .bar { fill: #5b6577 } .ours { fill: #6fb1e8 }
  .interval, .dot { stroke: #e6e9ef }
}
"""


def drawn(values: dict[tuple[str, str], float]) -> str:
    """The picture, from values by case and metric."""
    sessions = int(sum(values[log, "sessions"] for log in LOGS))
    parts = [
        text(16, 20, "Which step lost the session?", "", 'font-weight="600"'),
        text(16, 40, f"{sessions} lost sessions of real agents: how often it is found", "soft"),
    ]
    for number, name in enumerate(SHOWN):
        parts += row(name, values, TOP + number * HIGH)
    high = TOP + len(SHOWN) * HIGH + 8
    size = f'viewBox="0 0 {WIDTH} {high}" width="{WIDTH}" height="{high}"'
    label = "How often each way finds the step that lost a session, in four logs of real agents"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{label}" {size}>'
    return "\n".join([head, f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


def row(name: str, values: dict[tuple[str, str], float], top: float) -> list[str]:
    """One way to find the step: its name, its bar with an interval, and a dot for each log."""
    case = f"{MEAN}, {name}"
    share, low, high = (values[case, f"top1{end}"] for end in ("", "_low", "_high"))
    kind = "ours" if name == "events" else "bar"
    middle, width = top + 10, place(share) - LEFT
    parts = [
        text(LEFT - 8, top + 14, SHOWN[name], "end"),
        f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{width:.1f}" height="20"/>',
        f'<path class="interval" d="M{place(low):.1f} {middle}H{place(high):.1f}"/>',
    ]
    for log in LOGS:
        at = place(values[f"{log}, {name}", "top1"])
        parts.append(f'<circle class="dot" cx="{at:.1f}" cy="{middle}" r="3.5"/>')
    last = max(values[f"{log}, {name}", "top1"] for log in LOGS)
    at, side = place(max(last, high)) + 8, ""
    if at > RIGHT - 20:
        at, side = RIGHT + 12, "end"
    return [*parts, text(at, top + 14, f"{share:.0%}", side)]


def place(share: float) -> float:
    """Where a share is."""
    return LEFT + share * (RIGHT - LEFT - 30)


def text(x: float, y: float, words: str, kind: str, more: str = "") -> str:
    """A line of text."""
    return f'<text class="{kind}" x="{x}" y="{y}" {more}>{escape(words)}</text>'


if __name__ == "__main__":
    _, *lines = map(json.loads, RESULTS.read_text(encoding="utf-8").splitlines())
    OUT.write_text(drawn({(each["case"], each["metric"]): each["value"] for each in lines}))
