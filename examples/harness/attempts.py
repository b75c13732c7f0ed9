"""Attempts at tasks behind a gateway: each is a session, and a checker scores it."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from urllib.request import Request, urlopen

ATTEMPTS = 4


def play(tasks: dict[str, str], attempt: Callable[[str, str], float], gateway: str) -> None:
    """Let ``attempt`` try each task four times; write ``gateway.jsonl`` and ``rewards.csv``.

    Args:
        tasks: the text of each task, by its name.
        attempt: takes a task's name and the address of the model, and returns a score.
        gateway: the address of rllm-model-gateway.
    """
    rewards = []
    for task, text in tasks.items():
        for number in range(ATTEMPTS):
            session = f"{task}:{number}"
            score = attempt(task, f"{gateway}/sessions/{session}/v1")
            rewards.append((session, score))
        scores = ", ".join(f"{score:g}" for _, score in rewards[-ATTEMPTS:])
        print(f"{text} {scores}", flush=True)
    with Path("rewards.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("session", "reward"), *rewards])
    ask(f"{gateway}/admin/flush", {})
    calls = ask(f"{gateway}/traces/query", {"session_ids": [session for session, _ in rewards]})
    with Path("gateway.jsonl").open("w") as file:
        for call in calls:  # requests and responses repeat what the other fields hold
            kept = {name: call[name] for name in call if not name.startswith("raw_")}
            file.write(json.dumps(kept) + "\n")


def ask(address: str, body: dict[str, list[str]]) -> list[dict[str, object]]:
    """Send a request to the gateway."""
    request = Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urlopen(request) as response:
        return json.load(response)
