"""Write the files of ``tests/data/sessions``: the attempts of ``make_samples.py`` as model calls.

    python tests/sessions/make_traces.py tests/data/sessions

All are in the documented shape.
"""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.sessions.make_samples import ATTEMPTS, Message, prompt, turns

START = 1_700_000_000


def calls(attempt: int) -> Iterator[tuple[list[Message], Message]]:
    """What each call of an attempt was shown, and its response."""
    shown = prompt()
    for response, result in turns(attempt):
        yield list(shown), response
        shown += [response, *([result] if result else [])]


def write_lines(path: Path, rows: list[Any]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_gateway(folder: Path) -> None:
    """As rllm-model-gateway logs them: attempts alternate, and the reward is the session's."""
    rows = [
        {
            "trace_id": f"{attempt}-{turn}",
            "session_id": f"port:{attempt}",
            "model": "m",
            "messages": shown,
            "prompt_token_ids": [1, 2],
            "response_message": response,
            "completion_token_ids": [3],
            "logprobs": [-0.5],
            "finish_reason": "stop",
            "timestamp": START + turn * 10.0 + attempt,
            "metadata": {"reward": ATTEMPTS[attempt][2]},
        }
        for attempt in range(len(ATTEMPTS))
        for turn, (shown, response) in enumerate(calls(attempt))
    ]
    write_lines(folder / "gateway.jsonl", sorted(rows, key=lambda row: row["timestamp"]))


FILES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "gateway.jsonl": ("gateway", write_gateway),
}
"""The format of each file, and what writes it."""


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for _, write in FILES.values():
        write(folder)


if __name__ == "__main__":
    main()
