"""A loopback server that speaks OpenAI's chat completions, and counts what it is asked."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Reply:
    """More than a text: what a server can say besides."""

    text: str = ""
    status: int = 200
    finish: str = "stop"
    calls: Sequence[Any] = ()


Answer = Callable[[dict[str, Any]], str | Reply]


def by_seed(body: dict[str, Any]) -> str:
    """An answer that follows from the prompt and the seed, as a model's would."""
    asked = json.dumps([body["messages"], body["seed"]])
    return f"<action>go {int(sha256(asked.encode()).hexdigest(), 16) % 3}</action>"


class Listening(ThreadingHTTPServer):
    """More may wait than the five of the default, where the sixth waits for a second."""

    request_queue_size = 128
    daemon_threads = True


class ChatServer:
    """Answers every request after a while; ``asked`` has the body of each, in order."""

    def __init__(self, answer: Answer = by_seed, seconds: float = 0.0) -> None:
        self.asked: list[dict[str, Any]] = []
        mine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.say({"data": [{"id": "tiny"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with mine.lock:
                    mine.asked.append(body)
                time.sleep(seconds)
                said = answer(body)
                reply = Reply(said) if isinstance(said, str) else said
                if reply.status != 200:
                    self.say({"error": {"message": reply.text}}, reply.status)
                    return
                message = {"role": "assistant", "content": reply.text, "tool_calls": reply.calls}
                choice = {"index": 0, "message": message, "finish_reason": reply.finish}
                self.say(
                    {
                        "choices": [choice],
                        "usage": {"prompt_tokens": 11, "completion_tokens": 5},
                    }
                )

            def say(self, value: Any, status: int = 200) -> None:
                content = json.dumps(value).encode()
                try:
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    self.wfile.write(content)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        self.lock = threading.Lock()
        self.server = Listening(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    @property
    def counts(self) -> Counter[str]:
        """How often each completion was asked for."""
        with self.lock:
            return Counter(json.dumps([body["messages"], body["seed"]]) for body in self.asked)

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@contextmanager
def chat_server(answer: Answer = by_seed, seconds: float = 0.0) -> Iterator[ChatServer]:
    """A server that is closed at the end."""
    server = ChatServer(answer, seconds)
    try:
        yield server
    finally:
        server.close()
