"""JSON over HTTP, the serving side: routes from paths to functions of a JSON object."""

import json
import sys
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from time import monotonic
from typing import Any
from urllib.parse import urlsplit

from ascribe.steps.strict_json import loads
from ascribe_lab.models.http_client import DeadlineSocket

Json = dict[str, Any]


class BadRequestError(ValueError):
    """A request that cannot be answered; its message goes to the client with the status."""

    def __init__(self, message: str, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(message)
        self.status = status


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
    request_queue_size = 128

    def __init__(
        self, routes: Mapping[str, Callable[[Json], Json]], host: str, port: int, limit: int
    ) -> None:
        self.routes, self.limit, self.host = routes, limit, host
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

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error of a request, unless the client hung up."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def __enter__(self) -> "JsonServer":
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    timeout = 30.0
    """Seconds for a whole request, and for sending the response: a client that sends a byte now and
    then is dropped as well."""

    def setup(self) -> None:
        super().setup()
        self.rfile = DeadlineSocket(self.connection, monotonic() + self.timeout).makefile("rb")

    def do_POST(self) -> None:
        try:
            status, response = HTTPStatus.OK, self._respond()
        except BadRequestError as error:
            status, response = error.status, {"error": str(error)}
        body = json.dumps(response).encode()
        self.connection.settimeout(self.timeout)
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _respond(self) -> Json:
        server = self.server
        assert isinstance(server, JsonServer)
        route, length = server.routes.get(self.path), self.headers.get("Content-Length", "")
        # A page of a site whose name now leads to this address would send the site's name.
        if not _is_address_of(server.host, self.headers.get_all("Host", [])):
            message = f"the header Host must name an IP address, localhost or {server.host}"
            raise BadRequestError(message, HTTPStatus.MISDIRECTED_REQUEST)
        if route is None:
            raise BadRequestError(f"POST to {', '.join(server.routes)}", HTTPStatus.NOT_FOUND)
        # A page in a browser cannot send this type to another site without asking first.
        if self.headers.get_content_type() != "application/json":
            raise BadRequestError("send application/json", HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
        if not length.isascii() or not length.isdigit() or len(length) > 12:
            raise BadRequestError("the request has no length", HTTPStatus.LENGTH_REQUIRED)
        if int(length) > server.limit:
            message = f"the request is larger than {server.limit:,} bytes"
            raise BadRequestError(message, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        return route(_parsed(self.rfile.read(int(length))))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the base class's name)
        """Print nothing: requests hold what models wrote."""


def _is_address_of(own: str, hosts: list[str]) -> bool:
    """Whether a request names its server once, by an IP address, ``localhost`` or its own name."""
    try:
        name = urlsplit(f"//{hosts[0]}").hostname if len(hosts) == 1 else None
        return name is not None and (name in ("localhost", own.lower()) or bool(ip_address(name)))
    except ValueError:
        return False


def _parsed(body: bytes) -> Json:
    """The object in a request."""
    try:
        request = loads(body)
    except ValueError:
        raise BadRequestError("the body is not JSON") from None
    if not isinstance(request, dict):
        raise BadRequestError("the body is not a JSON object")
    return request
