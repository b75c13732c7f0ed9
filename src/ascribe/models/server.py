"""``ServerPolicy``: a model behind a server that speaks OpenAI's completions, with token ids.

Prompts are sent as token ids, and responses must come back as token ids: a server that gives only
text is refused, for text that is tokenised again can give other ids. vLLM's server gives them
(``return_token_ids``).
"""

import math
from collections.abc import Sequence
from copy import copy
from typing import Any

from ascribe.models.http_json import Limits, ServerError
from ascribe.models.model_policy import Drawn, ModelPolicy, Prompt
from ascribe.models.openai_server import OpenAIServer
from ascribe.models.policy import Sampling
from ascribe.models.tokens import Chat, smaller


class NoTokenIds(ServerError):  # noqa: N818 (named for what is wrong)
    """The server does not say which tokens it drew, or with which log-probabilities."""


class ServerPolicy(ModelPolicy):
    """Asks a server, many requests at a time.

    Args:
        url: address of the server, such as ``http://localhost:8000``.
        chat: the tokenizer of the server's model, from ``load_chat(folder)``.
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
        chat: Chat,
        model: str | None = None,
        *,
        at_once: int = 64,
        key_variable: str = "ASCRIBE_API_KEY",
        limits: Limits | None = None,
    ) -> None:
        super().__init__(copy(chat))
        self._server = OpenAIServer(url, at_once, key_variable, limits)
        self.model, card = self._server.model(model)
        longest = card.get("max_model_len")
        if isinstance(longest, int) and longest > 0:
            self.chat.context = smaller(chat.context, longest)

    def close(self) -> None:
        """Send nothing more."""
        self._server.close()

    def _draw(self, prompts: Sequence[Prompt], sampling: Sampling) -> list[Drawn]:
        return self._server.each(lambda prompt: self._one(prompt, sampling), prompts)

    def _one(self, prompt: Prompt, sampling: Sampling) -> Drawn:
        answer = self._server.ask("/v1/completions", self._body(prompt, sampling))
        return drawn_from(answer, prompt)

    def _body(self, prompt: Prompt, sampling: Sampling) -> dict[str, Any]:
        return {
            "model": self.model,
            "prompt": list(prompt.ids),
            "max_tokens": prompt.limit,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": prompt.seed,
            "stop": list(sampling.stop),
            "stop_token_ids": sorted(self.chat.ends),
            "include_stop_str_in_output": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "logprobs": 0,
            "return_token_ids": True,
            # Left out, these would be what the model's folder says on the server.
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }


def drawn_from(answer: Any, prompt: Prompt) -> Drawn:
    """What a server wrote, out of its answer, if it has the right form.

    Raises:
        NoTokenIds: if it holds no token ids or no log-probabilities.
        ServerError: if what it holds cannot be.
    """
    try:
        choice = answer["choices"][0]
        finish, ids = choice["finish_reason"], choice.get("token_ids")
        read = choice.get("prompt_token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ServerError("the server's completion has another form") from error
    if ids is None:
        raise NoTokenIds(
            "the server gives text but no token ids, and text is never tokenised again; "
            "use a server that knows return_token_ids, such as vLLM's"
        )
    if logprobs is None:
        raise NoTokenIds("the server gives no log-probabilities of the tokens that it drew")
    if read is not None and read != list(prompt.ids):
        raise ServerError("the server read another prompt than it was sent")
    if not _are_ids(ids) or not 0 < len(ids) <= prompt.limit:
        raise ServerError(f"the server's token ids are not 1 to {prompt.limit} whole numbers")
    if not _are_logprobs(logprobs) or len(logprobs) != len(ids):
        raise ServerError("the server's log-probabilities are not one number for each token")
    if finish not in ("stop", "length"):
        raise ServerError(f"the server ended a response for another reason: {ascii(finish)[:50]}")
    return Drawn(tuple(ids), tuple(map(float, logprobs)), ended=finish == "stop")


def _are_ids(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _are_logprobs(values: Any) -> bool:
    return isinstance(values, list) and all(
        type(value) in {int, float} and math.isfinite(value) and value <= 1e-3 for value in values
    )
