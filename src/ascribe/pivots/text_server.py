"""``TextServer``: a policy behind any OpenAI-compatible server, for texts that nobody trains on.

``ascribe.models.ServerPolicy`` demands token ids, which few servers give, because one
must train on the very ids that were sampled. Profiling and judging read the text alone, so here
``/v1/chat/completions`` is enough.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ascribe.agents.clean import replace_surrogates
from ascribe.groups.responses import name_and_arguments
from ascribe.models.http_client import HttpLimits, RequestRefusedError, ServerError
from ascribe.models.policy import Request, Sample, Sampling
from ascribe.models.server import OpenAIServer
from ascribe.pivots.calls import safe, written

REFUSED = "refused"
"""A finish beside those of ``FINISHES``: the server will not take the request, so the sample is
empty. The history is too long for it, for one."""


@dataclass(frozen=True)
class Metered(Sample):
    """A sample without token ids, and what the server counted."""

    prompt_tokens: int = 0
    response_tokens: int = 0
    refusal: str = ""
    """The server's words, if it refused."""


class Unfinished(ServerError):  # noqa: N818 (named for what happened)
    """A request of a batch failed; what others were answered is not lost."""

    def __init__(self, message: str, samples: Sequence[Sample | None]) -> None:
        super().__init__(message)
        self.samples = samples
        """One for each request; None for those that failed or were not sent any more."""


class TextServer:
    """Asks a server for chat completions, several at a time.

    Args:
        url: address of the server, such as ``http://localhost:8000``.
        model: the name under which the server has the model; None if it has only one.
        at_once: how many requests are sent at the same time.
        key_variable: environment variable with the key, if the server wants one.
        limits: of time, size and retries.

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
        limits: HttpLimits | None = None,
    ) -> None:
        self._server = OpenAIServer(url, at_once, key_variable, limits)
        # Some servers list no models, so one that is named is not looked up.
        self.model = self._server.find_model(None)[0] if model is None else model

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request, in the same order; empty ones where the server refuses.

        Raises:
            Unfinished: if a request failed; those that were sent by then are waited for.
        """
        failed: list[ServerError] = []

        def one(request: Request) -> Sample | None:
            if failed:
                return None
            try:
                return self._one(request, sampling)
            except RequestRefusedError as error:
                return Metered("", finish=REFUSED, refusal=str(error))
            except ServerError as error:
                failed.append(error)
                return None

        samples = self._server.map(one, requests)
        if failed:
            raise Unfinished(str(failed[0]), samples) from failed[0]
        return [sample for sample in samples if sample is not None]

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
        return sample_from(self._server.client.post("/v1/chat/completions", body))


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
    whole = "\n".join([*([text] if text else []), *map(_told, calls)])
    return Metered(
        replace_surrogates(whole),
        finish="length" if finish == "length" else "stop",
        prompt_tokens=_count(prompt),
        response_tokens=_count(response),
    )


def _told(call: Any) -> str:
    """A call as a model writes it. One that cannot be read is the model's wrong answer: as it is.

    What is written then cannot be read as a call either, for it is the very same value.
    """
    try:
        return written(*name_and_arguments(call))
    except (ValueError, RecursionError):
        pass
    try:
        raw = json.dumps(call, ensure_ascii=False)
    except RecursionError:
        raw = "nested too deeply"
    return "<tool_call>\n" + raw.replace("<", r"\u003c") + "\n</tool_call>"


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 31 else 0
