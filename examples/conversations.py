"""Writes ``examples/conversations.jsonl``: conversations with tool calls and a final reward.

A scripted agent looks for a setting on a server: it lists folders and reads files, more or less at
random, and then answers. One conversation per line in OpenAI's form, with a task and a reward.

    python examples/conversations.py examples/conversations.jsonl
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

FILES = {
    "/": ["etc", "srv", "var"],
    "/etc": ["app.conf", "hosts"],
    "/srv": ["readme.txt", "db"],
    "/srv/db": ["db.conf"],
    "/var": ["log.txt"],
    "/etc/app.conf": "port = 8080\nuser = www",
    "/etc/hosts": "127.0.0.1 localhost\n10.0.0.7 db",
    "/srv/readme.txt": "Settings are in /etc/app.conf and /srv/db/db.conf.",
    "/srv/db/db.conf": "port = 5432\nname = shop",
    "/var/log.txt": "started on port 8081, then moved to 8080",
}
TASKS = {
    "app port": ("Which port does the app listen on?", "8080"),
    "app user": ("Which user runs the app?", "www"),
    "database port": ("Which port does the database listen on?", "5432"),
    "database name": ("What is the database called?", "shop"),
    "database host": ("Which address does the database have?", "10.0.0.7"),
}
SYSTEM = "You find settings on a server. Look around with the tools, then answer in one word."


def call(number: int, path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A tool call and its result."""
    content = FILES[path]
    name = "list" if isinstance(content, list) else "read"
    function = {"name": name, "arguments": json.dumps({"path": path})}
    calls = [{"id": f"call_{number}", "type": "function", "function": function}]
    text = "  ".join(content) if isinstance(content, list) else content
    return (
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": text},
    )


def conversation(task: str, rng: random.Random) -> dict[str, Any]:
    """One attempt: from the root, into folders and files until a file looks right."""
    question, right = TASKS[task]
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    path, answer = "/", "unknown"
    for number in range(8):
        messages += call(number, path)
        content = FILES[path]
        if isinstance(content, list):
            path = f"{path.rstrip('/')}/{rng.choice(content)}"
            continue
        words = [word for word in content.replace("=", " ").split() if word.strip(",.").isalnum()]
        if right in content.split() and rng.random() < 0.8:
            answer = right
            break
        if rng.random() < 0.3:
            answer = rng.choice(words).strip(",.")
            break
        path = rng.choice(["/", "/etc", "/srv"])
    messages.append({"role": "assistant", "content": answer})
    return {"task": task, "messages": messages, "reward": float(answer == right)}


def main() -> None:
    """Write 24 attempts at every task."""
    rng = random.Random(0)
    rows = [conversation(task, rng) for task in TASKS for _ in range(24)]
    Path(sys.argv[1]).write_text("".join(json.dumps(row) + "\n" for row in rows))


if __name__ == "__main__":
    main()
