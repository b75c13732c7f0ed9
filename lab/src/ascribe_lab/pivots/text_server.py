"""``TextServer``: a policy behind any OpenAI-compatible server, for text that nobody trains on.

``models.ServerPolicy`` needs token ids, which few servers return, because training needs
the very ids that were sampled. Profiling and judging read only text, so ``/v1/chat/completions`` is
enough.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ascribe.groups.responses import name_and_arguments
from ascribe.steps.problems import replace_surrogates
from ascribe_lab.agents.clean import safe
from ascribe_lab.models.http_client import RequestRefusedError, ServerError
from ascribe_lab.models.policy import Request, Sample, Sampling
from ascribe_lab.models.server import OpenAIServer
from ascribe_lab.pivots.chat import tag_call, write_call

REFUSED = "refused"
"""A value of ``finish`` beside ``FINISHES``: the server refused the request for good, for instance
because the history is too long. The sample is empty."""


@dataclass(frozen=True)
class TextSample(Sample):
    """A sample without token ids, and the server's token counts."""

    prompt_tokens: int = 0
    response_tokens: int = 0
    refusal: str = ""
    """The server's message, if it refused."""


class IncompleteBatchError(ServerError):
    """A request of a batch failed; the other samples are kept."""

    def __init__(self, message: str, samples: Sequence[Sample | None]) -> None:
        super().__init__(message)
        self.samples = samples
        """One for each request; None for those that failed or were not sent any more."""


class TextServer(OpenAIServer):
    """Requests chat completions from a server, several at a time."""

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request, in the same order; empty ones where the server refuses.

        Raises:
            IncompleteBatchError: if a request failed; requests in flight are waited for.
        """
        errors: list[ServerError] = []

        def sample(request: Request) -> TextSample | None:
            if errors:
                return None
            try:
                return self._sample(request, sampling)
            except RequestRefusedError as error:
                return TextSample("", finish=REFUSED, refusal=str(error))
            except ServerError as error:
                errors.append(error)
                return None

        samples = self.map(sample, requests)
        if errors:
            raise IncompleteBatchError(str(errors[0]), samples) from errors[0]
        return [one for one in samples if one is not None]

    def _sample(self, request: Request, sampling: Sampling) -> TextSample:
        body: dict[str, Any] = {
            "model": self.model,
            # The server runs the chat template on text, so the text must hold no chat tokens.
            "messages": [{**one, "content": safe(one["content"])} for one in request.messages],
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": request.seed,
        }
        if sampling.stop:
            body["stop"] = list(sampling.stop)
        return read_chat_completion(self.client.post("/v1/chat/completions", body))


def read_chat_completion(completion: Any) -> TextSample:
    """The sample of a server's chat completion; ``ServerError`` if it has another form."""
    try:
        choice = completion["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        text, calls = message.get("content") or "", message.get("tool_calls") or []
        usage = completion.get("usage") or {}
        prompt, response = usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0)
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ServerError("the server's completion has another form") from error
    if not isinstance(text, str) or not isinstance(calls, list):
        raise ServerError("the server's completion has another form")
    return TextSample(
        replace_surrogates("\n".join([*([text] if text else []), *map(_written, calls)])),
        finish="length" if finish == "length" else "stop",
        prompt_tokens=_count(prompt),
        response_tokens=_count(response),
    )


def _written(call: Any) -> str:
    """A call as a model writes it. A malformed one is written as it is, and stays malformed."""
    with suppress(ValueError, RecursionError):
        return write_call(*name_and_arguments(call))
    with suppress(RecursionError):
        return tag_call(json.dumps(call, ensure_ascii=False))
    return tag_call("nested too deeply")


def _count(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 31 else 0
