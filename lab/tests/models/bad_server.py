"""A server that does to each request what a test says."""

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behave = Callable[[BaseHTTPRequestHandler], None]


class BadServer:
    """A server that does to each request what the test says; the last rule stays."""

    def __init__(self) -> None:
        self.rules: list[Behave] = []
        self.asked: list[tuple[str, dict[str, str]]] = []
        bad = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                bad.asked.append((self.path, dict(self.headers)))
                rule = bad.rules.pop(0) if len(bad.rules) > 1 else bad.rules[0]
                try:
                    rule(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_GET = do_POST = handle_one  # noqa: N815 (the names that http.server looks for)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def says(value: Any, status: int = 200, **headers: str) -> Behave:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()

    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, text in headers.items():
            handler.send_header(name.replace("_", "-"), text)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return behave


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()
    handler.close_connection = True
