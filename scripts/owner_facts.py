"""Check what reports tell the owner of an agent against the raw files, read without Ascribe.

    python scripts/owner_facts.py [LOG...]

For each of seven logs, or those named, three things that its page says are counted again in the
files by plain Python, and both are printed. The exit code is 1 if one differs.
``ASCRIBE_TEST_DATA`` names the test data; without it, only the example is checked.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
REAL = Path(os.environ.get("ASCRIBE_TEST_DATA", "none"), "real")
EXAMPLE = "examples/conversations.jsonl"
TELECOM = "tau2_telecom/telecom_gpt41"
Raw = dict[str, Any]
"""A session: ``task``, ``version``, ``won``, ``steps``, ``calls`` (name, arguments, result)."""


def chat(messages: list[Any]) -> Raw:
    """The steps and calls of a session; a call that is written as text counts, too."""
    calls, steps = [], [at for at, each in enumerate(messages) if each["role"] == "assistant"]
    found = {str(m.get("tool_call_id") or m.get("id")): m for m in messages if m["role"] == "tool"}
    for at in steps:
        after = str(messages[at + 1]["content"]) if at + 1 < len(messages) else ""
        made = [(c.get("function") or c, c.get("id")) for c in messages[at].get("tool_calls") or []]
        if after.startswith("API output: "):
            made += [(json.loads(messages[at]["content"].rpartition("Action:")[2]), None)]
        for call, name in made:
            given, result = call["arguments"], after
            if len(made) > 1:  # else the next message is the result; some logs reuse ids
                result = found[str(name)]["content"]
            with suppress(ValueError, TypeError):
                given = json.loads(given)
            calls.append((call["name"], given, str(result).removeprefix("API output: ")))
    greeted = messages[:1] and messages[0]["role"] == "assistant"  # by the harness, in tau2
    return {"steps": len(steps) - bool(greeted), "calls": calls}


def sessions(log: str) -> Iterator[Raw]:
    """The sessions of a log."""
    files = [ROOT / log] if log == EXAMPLE else sorted((REAL / log).glob("*.json*"))
    for file in files or [REAL / f"{log}{end}.json" for end in ("", "_sft")]:
        text, version = (
            file.read_text(encoding="utf-8"),
            {"version": file.stem.partition("_range")[0]},
        )
        values = [*map(json.loads, text.splitlines())] if file.suffix == ".jsonl" else None
        values = json.loads(text) if values is None else values
        if log == "intercode_sql":
            for each in values.values():
                turns = [each["turn_history"][name] for name in ("actions", "observations")]
                pairs = zip_longest(*turns, fillvalue="")
                calls = [(" ".join(action.split()), {}, str(shown)) for action, shown in pairs]
                own = {"task": str(each["task_id"]), "won": each["summary"]["max_reward"]}
                yield own | version | {"steps": len(calls), "calls": calls}
            continue
        for each in values["simulations"] if isinstance(values, dict) else values:
            state, reward = each.get("state", each), each.get("reward_info")
            won = state["success"] if "success" in state else each.get("reward", reward)
            won = won.get("reward", 0.0) if isinstance(won, dict) else won
            task = each.get("task_id", each.get("task"))
            task = task["task_id"] if isinstance(task, dict) else task
            names = ("messages", "traj", "history")
            said = next(state[name] for name in names if name in state)
            own = {"task": str(task), "won": won or 0.0} | version
            yield own | chat([m for m in said if m.get("requestor") != "user"])


def wrong(result: str) -> bool:
    """Whether a result of these logs reports an error."""
    return result.startswith(("Error", "Unknown action"))


def did(tool: str, **given: Any) -> Callable[[Raw], bool]:
    """Whether a session made such a call, and it was not refused."""
    return lambda each: any(
        name == tool and (not given or given == of) and not wrong(result)
        for name, of, result in each["calls"]
    )


def repeats(each: Raw) -> bool:
    """Whether a session sent a SELECT again that had not failed, and did not fail then."""
    done = [
        a
        for n, (a, _, result) in enumerate(each["calls"], 1)
        if n == each["steps"] or not wrong(result)
    ]
    queries = [(verb.lower(), rest) for verb, _, rest in (text.partition(" ") for text in done)]
    return any(q[0] == "select" and q in queries[:at] for at, q in enumerate(queries))


def after_root(each: Raw) -> list[Any]:
    """What an attempt at "app user" called after it had listed the root."""
    at = [n for n, call in enumerate(each["calls"]) if call[2] == "etc  srv  var"]
    return each["calls"][at[0] + 1 :][:1] if each["task"] == "app user" and at else []


def sides(raw: list[Raw], has: Callable[[Raw], Any]) -> list[tuple[int, str]]:
    """How many sessions did something and how many did not, and what each won or earned."""
    own = [[e["won"] for e in raw if e["steps"] and bool(has(e)) is side] for side in (True, False)]
    return [(len(won), f"{sum(won) / len(won):.3f}") for won in own]


def told(page: Any, words: str) -> list[tuple[int, str]]:
    """The same by a finding of the page that has these words."""
    row = next(each for each in page["separates"]["rows"] if words in each["sentence"])
    return [(row[s]["sessions"], f"{row[s]['share']:.3f}") for s in ("with", "without")]


def by_task(raw: list[Raw]) -> dict[str, list[Raw]]:
    """The sessions of each task."""
    tasks = defaultdict(list)
    for each in raw:
        tasks[each["task"]].append(each)
    return tasks


def never(page: Any) -> list[str]:
    """The tasks that the page says no attempt won; tau2 writes its domain before them."""
    rows = [each["task"] for each in page["happened"]["grid"]["tasks"] if not each["share"]]
    return sorted(name.removeprefix("airline/") for name in rows)


def never_won(raw: list[Raw]) -> list[str]:
    """Those of the file."""
    return sorted(task for task, own in by_task(raw).items() if not any(e["won"] for e in own))


def lone(page: Any) -> list[str]:
    """The version that alone won a task, for each such task of the page's grid."""
    grid = page["happened"]["grid"]
    won = [[n for n, cell in enumerate(row["cells"]) if cell and cell[0]] for row in grid["tasks"]]
    return sorted(grid["versions"][at[0]] for at in won if len(at) == 1)


def lone_winners(raw: list[Raw]) -> list[str]:
    """Those of the file."""
    won = [{e["version"] for e in own if e["won"]} for own in by_task(raw).values()]
    return sorted(each.pop() for each in won if len(each) == 1)


def refusals(tool: str) -> tuple[str, Any, Any]:
    """How often a tool was called, and how often that went wrong."""

    def count(raw: list[Raw]) -> tuple[int, int]:
        made = [result for e in raw for name, _, result in e["calls"] if name == tool]
        return sum(map(wrong, made)), len(made)

    tools: Any = lambda page: {e["tool"]: (e["errors"], e["calls"]) for e in page["tools"]}  # noqa: E731
    return f"calls of {tool} that went wrong", lambda page: tools(page)[tool], count


def lengths(version: str) -> tuple[str, Any, Any]:
    """How many responses an attempt of a version took."""

    def mean(rows: Any, name: str) -> str:
        own = [each for each in rows if each[name].endswith(version)]
        return f"{sum(e['steps'] for e in own) / sum(e.get('sessions', 1) for e in own):.2f}"

    words = f"steps of an attempt of {version}"
    return (
        words,
        lambda p: mean(p["happened"]["versions"], "name"),
        lambda raw: mean(raw, "version"),
    )


def hardest(page: Any) -> Any:
    """The task of one version that was won least, and how often."""
    row = min(page["happened"]["grid"]["tasks"], key=lambda each: each["share"])
    return row["task"], *row["cells"][0]


def hardest_task(raw: list[Raw]) -> Any:
    """That of the file."""
    task, own = min(by_task(raw).items(), key=lambda e: sum(s["won"] for s in e[1]) / len(e[1]))
    return task, sum(each["won"] for each in own), len(own)


def changes(raw: list[Raw]) -> list[int]:
    """Tasks that got worse, that got better, and the others; the old version comes first."""
    apart = [new["won"] - old["won"] for old, new in by_task(raw).values()]
    return [sum(a < 0 for a in apart), sum(a > 0 for a in apart), apart.count(0)]


def finding(words: str, has: Callable[[Raw], Any]) -> tuple[str, Any, Any]:
    """What sessions won that did something, and the others."""
    return f"with and without {words}", lambda p: told(p, words), lambda raw: sides(raw, has)


NEVER = ("tasks that were never won", never, never_won)
FACTS: dict[str, list[tuple[str, Any, Any]]] = {
    EXAMPLE: [
        finding("read(path=/srv/readme.txt)", did("read", path="/srv/readme.txt")),
        (
            "after the root, /etc or another folder",
            lambda page: told(page, 'list(path="/etc")'),
            lambda raw: sides(
                [*filter(after_root, raw)], lambda e: after_root(e)[0][1] == {"path": "/etc"}
            ),
        ),
        ("the hardest task", hardest, hardest_task),
    ],
    "tau_bench": [
        finding("search_direct_flight", did("search_direct_flight")),
        NEVER,
        refusals("update_reservation_flights"),
    ],
    "tau_bench_retail": [
        refusals("find_user_id_by_email"),
        NEVER,
        ("the only version that won a task", lone, lone_winners),
    ],
    "tau2_airline": [
        finding("`cancel_reservation`", did("cancel_reservation")),
        NEVER,
        refusals("book_reservation"),
    ],
    "intercode_sql": [
        finding("the same call of `select` again", repeats),
        (
            "tasks that every version solved",
            lambda page: {e["name"]: e["tasks"] for e in page["happened"]["grid"]["blocks"]}[
                "always the most"
            ],
            lambda raw: sum(all(e["won"] == 1 for e in own) for own in by_task(raw).values()),
        ),
        lengths("ic_sql_react_10_turns"),
    ],
    "mint_alfworld": [
        NEVER,
        ("the only version that won a task", lone, lone_winners),
        lengths("claude-instant-1"),
    ],
    TELECOM: [
        (
            "tasks worse, better and the same",
            lambda p: [
                len(p["changed"]["lost"]),
                len(p["changed"]["gained"]),
                p["changed"]["same"],
            ],
            changes,
        ),
        (
            "tasks that neither version won",
            lambda p: len(never(p)),
            lambda raw: len(never_won(raw)),
        ),
        lengths("telecom_gpt41_sft"),
    ],
}


def page_of(log: str) -> Any:
    """The answers of a report, and the tools that its page lists."""
    files = [str(ROOT / log if log == EXAMPLE else REAL / log)]
    files = [f"{files[0]}_sft.json", "--against", f"{files[0]}.json"] if log == TELECOM else files
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "report.html")
        command = [sys.executable, "-m", "ascribe", "report", *files, "--out", str(out), "--json"]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", check=True)
        data = re.search(r'id="data">(.*?)</script>', out.read_text(encoding="utf-8"), re.DOTALL)
    assert data
    return json.loads(done.stdout)["answers"] | {"tools": json.loads(data[1])["browser"]["tools"]}


def main() -> int:
    """Compare, and print both."""
    failed = False
    for log, facts in FACTS.items():
        if log not in (sys.argv[1:] or FACTS) or (log != EXAMPLE and not REAL.exists()):
            continue
        page, raw = page_of(log), [*sessions(log)]
        print(log)
        for words, of_page, of_file in facts:
            shown, counted = of_page(page), of_file(raw)
            failed |= shown != counted
            print(f"  {'DIFFERS: ' * (shown != counted)}{words}: page {shown}, file {counted}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
