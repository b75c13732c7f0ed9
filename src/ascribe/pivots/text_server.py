"""``TextServer``: a policy behind any OpenAI-compatible server, for texts that nobody trains on.

``ascribe.rollout.policies.ServerPolicy`` demands token ids, which few servers give, because one
must train on the very ids that were sampled. Profiling and judging read the text alone, so here
``/v1/chat/completions`` is enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ascribe.agents.clean import mend
from ascribe.pivots.calls import NotACall, name_and_arguments, safe, written
from ascribe.rollout.policies.http_json import Limits, ServerError
from ascribe.rollout.policies.openai_server import OpenAIServer
from ascribe.rollout.policy import Request, Sample, Sampling


@dataclass(frozen=True)
class Metered(Sample):
    """A sample without token ids, and what the server counted."""

    prompt_tokens: int = 0
    response_tokens: int = 0


class TextServer:
    """Asks a server for chat completions, several at a time.

    Args:
        url: address of the server, such as ``http://localhost:8000``.
        model: the name under which the server has the model; None if it has only one.
        at_once: how many requests are sent at the same time.
        key_variable: environment variable with the key, if the server wants one.
        limits: of size, time and retries.

    Raises:
        ServerError: if the server does not answer, or has no such model.
        ValueError: for an address that will not do.
    """

    def __init__(
        self,
        url: str,
        model: str | None = None,
        *,
        at_once: int = 16,
        key_variable: str = "ASCRIBE_API_KEY",
        limits: Limits | None = None,
    ) -> None:
        self._server = OpenAIServer(url, at_once, key_variable, limits)
        # Some servers list no models, so one that is named is not looked up.
        self.model = self._server.model(None)[0] if model is None else model

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request, in the same order."""
        return self._server.each(lambda request: self._one(request, sampling), requests)

    def close(self) -> None:
        """Send nothing more."""
        self._server.close()

    def _one(self, request: Request, sampling: Sampling) -> Sample:
        body: dict[str, Any] = {
            "model": self.model,
            # The server runs the chat template on text: what stands in it must not look like code.
            "messages": [{**said, "content": safe(said["content"])} for said in request.messages],
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": request.seed,
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        return sample_from(self._server.ask("/v1/chat/completions", body))


def sample_from(answer: Any) -> Metered:
    """What a server wrote, out of its answer, if it has the right form.

    Raises:
        ServerError: if it has not.
    """
    try:
        choice = answer["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        text, calls = message.get("content") or "", message.get("tool_calls") or []
        usage = answer.get("usage") or {}
        prompt, response = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ServerError("the server's completion has another form") from error
    if not isinstance(text, str) or not isinstance(calls, list):
        raise ServerError("the server's completion has another form")
    try:
        told = [written(*name_and_arguments(call)) for call in calls]
    except NotACall as error:
        raise ServerError(f"the server's tool call is none: {error}") from error
    whole = "\n".join([*([text] if text else []), *told])
    return Metered(
        mend(whole),
        finish="length" if finish == "length" else "stop",
        prompt_tokens=_count(prompt),
        response_tokens=_count(response),
    )


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 31 else 0
