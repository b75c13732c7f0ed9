"""A server on loopback that answers for the model of ``make_samples.py``, in three forms.

The name of the model, ``attempt-2``, says whose turns it takes; the number of messages of the
assistant says which. What it does not know it keeps, as a server that collects traces would.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from zlib import crc32

from tests.sessions.make_samples import Message, turns


class Server(ThreadingHTTPServer):
    """The server; ``url`` is its address, ``received`` what it was sent and did not answer."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.received: list[tuple[str, str, Message]] = []


class Handler(BaseHTTPRequestHandler):
    """Answers requests with scripted responses."""

    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits 40 ms between its head and its body

    def do_GET(self) -> None:
        self.answer({"status": "ok"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/chat/completions"):
            self.answer(completion(body))
        elif self.path.endswith("/messages"):
            self.answer(anthropic_message(body))
        else:
            self.server.received.append((self.command, self.path, body))
            self.answer({})

    def do_PATCH(self) -> None:
        self.do_POST()

    def answer(self, value: Message) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


def response(body: Message) -> Message:
    """The next message of the assistant."""
    number = sum(each["role"] == "assistant" for each in body["messages"])
    return turns(int(body["model"].removeprefix("attempt-")))[number][0]


def completion(body: Message) -> Message:
    """In the form of OpenAI's chat completions, with token ids as vLLM returns them."""
    message = response(body)
    choice: Message = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
    }
    answer: Message = {"id": "chatcmpl-1", "object": "chat.completion", "created": 0}
    answer |= {"model": body["model"], "choices": [choice]}
    prompt, written = tokens(body["messages"]), tokens([message])
    counts = {"prompt_tokens": len(prompt), "completion_tokens": len(written)}
    answer["usage"] = counts | {"total_tokens": sum(counts.values())}
    if body.get("return_token_ids"):
        answer["prompt_token_ids"], choice["token_ids"] = prompt, written
    if body.get("logprobs"):
        choice["logprobs"] = {"content": [{"token": "", "logprob": -0.5} for _ in written]}
    return answer


def tokens(messages: list[Message]) -> list[int]:
    """A token for each word of the messages, in their order."""
    ids = []
    for each in messages:
        calls = [call["function"] for call in each.get("tool_calls") or []]
        words = [each["role"], each.get("content") or ""]
        words += [f"{call['name']} {call['arguments']}" for call in calls]
        ids += [crc32(word.encode()) % 1000 for word in " ".join(words).split()]
    return ids


def anthropic_message(body: Message) -> Message:
    """In the form of Anthropic's messages."""
    message = response(body)
    content: list[Message] = []
    if message["content"]:
        content.append({"type": "text", "text": message["content"], "citations": None})
    for call in message.get("tool_calls", []):
        arguments = json.loads(call["function"]["arguments"])
        block = {"type": "tool_use", "id": call["id"], "name": call["function"]["name"]}
        content.append(block | {"input": arguments})
    stop = "tool_use" if "tool_calls" in message else "end_turn"
    usage = {"input_tokens": 1, "output_tokens": 1}
    fields = {"stop_reason": stop, "stop_sequence": None, "usage": usage, "content": content}
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"]} | fields


@contextmanager
def serving() -> Iterator[Server]:
    """Serve until the block ends."""
    with Server() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()
