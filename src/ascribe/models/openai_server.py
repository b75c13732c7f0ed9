"""``OpenAIServer``: a server that speaks OpenAI's protocol, asked several things at a time."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from ascribe.models.http_json import Limits, Server, ServerError

Asked = TypeVar("Asked")
Answered = TypeVar("Answered")


class OpenAIServer:
    """One address.

    Args:
        url: address of the server, such as ``http://localhost:8000``.
        at_once: how many requests are sent at the same time.
        key_variable: environment variable with the key, if the server wants one.
        limits: of size, time and retries.

    Raises:
        ValueError: for an address that will not do.
    """

    def __init__(self, url: str, at_once: int, key_variable: str, limits: Limits | None) -> None:
        if at_once < 1:
            raise ValueError(f"at_once must be at least 1, not {at_once}")
        server = Server(url.rstrip("/").removesuffix("/v1"), key_variable, limits or Limits())
        self.ask = server.ask
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="ascribe-server")

    def each(self, work: Callable[[Asked], Answered], asked: Iterable[Asked]) -> list[Answered]:
        """What ``work`` gives for each, in the same order; if one fails, what waits is not sent."""
        futures = [self._threads.submit(work, one) for one in asked]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def model(self, wanted: str | None) -> tuple[str, dict[str, Any]]:
        """The name of a model and what the server says of it; None wants the only one.

        Raises:
            ServerError: if the server does not answer, or has no such model.
        """
        answer = self.ask("/v1/models")
        try:
            cards = {str(card["id"]): dict(card) for card in answer["data"]}
        except (TypeError, KeyError, ValueError) as error:
            raise ServerError("the server's list of models has another form") from error
        name = wanted if wanted is not None else next(iter(cards), None)
        if name not in cards or (wanted is None and len(cards) != 1):
            names = ", ".join(ascii(known) for known in sorted(cards)[:20])
            raise ServerError(f"name one of the server's models: {names}")
        return name, cards[name]

    def close(self) -> None:
        """Send nothing more."""
        self._threads.shutdown(cancel_futures=True)
