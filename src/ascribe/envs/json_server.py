"""JSON over HTTP, the serving side: routes from paths to functions of a JSON object."""

import json
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


class BadRequestError(ValueError):
    """A request that cannot be answered; its message goes to the client with status 400."""


class JsonServer(ThreadingHTTPServer):
    """Answers POST requests. There are no passwords, so by default it is reachable locally only.

    As a context manager it serves in a thread.

    Args:
        routes: for each path the function from the request's object to the response's.
        host: the address to listen on.
        port: 0 takes a free one; ``address`` tells which.
        limit: the largest request in bytes.
    """

    daemon_threads = True

    def __init__(
        self, routes: Mapping[str, Callable[[Json], Json]], host: str, port: int, limit: int
    ) -> None:
        self.routes, self.limit = routes, limit
        super().__init__((host, port), _Handler)

    @property
    def address(self) -> str:
        """The server's URL."""
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}"

    def serve_forever(self, poll_interval: float = 0.05) -> None:
        """Serve until ``shutdown`` is called or the process is interrupted."""
        try:
            super().serve_forever(poll_interval)
        finally:
            self.server_close()

    def __enter__(self) -> "JsonServer":
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    timeout = 60
    """A client that goes silent is dropped after so many seconds."""

    def do_POST(self) -> None:
        status, response = self._respond()
        body = json.dumps(response).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _respond(self) -> tuple[HTTPStatus, Json]:
        server = self.server
        assert isinstance(server, JsonServer)
        route, length = server.routes.get(self.path), self.headers.get("Content-Length", "")
        if route is None:
            return HTTPStatus.NOT_FOUND, {"error": f"POST to {', '.join(server.routes)}"}
        if self.headers.get_content_type() != "application/json":
            # A page in a browser cannot send this type to another site without asking first.
            return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, {"error": "send application/json"}
        if not length.isascii() or not length.isdigit() or len(length) > 12:
            return HTTPStatus.LENGTH_REQUIRED, {"error": "the request has no length"}
        if int(length) > server.limit:
            error = f"the request is larger than {server.limit:,} bytes"
            return HTTPStatus.REQUEST_ENTITY_TOO_LARGE, {"error": error}
        try:
            return HTTPStatus.OK, route(_parsed(self.rfile.read(int(length))))
        except BadRequestError as error:
            return HTTPStatus.BAD_REQUEST, {"error": str(error)}

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Print nothing: requests hold what models wrote."""


def _parsed(body: bytes) -> Json:
    """The object in a request; infinity and NaN, which JSON lacks, are refused."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        request = json.loads(body, parse_constant=refuse)
    except (ValueError, RecursionError):
        raise BadRequestError("the body is not JSON") from None
    if not isinstance(request, dict):
        raise BadRequestError("the body is not a JSON object")
    return request
