"""Models behind servers with OpenAI's API.

Training needs the sampled token ids, so ``ServerPolicy`` sends prompts and receives responses as
token ids. It refuses a server that returns only text, because tokenising text again can give other
ids. vLLM's server returns them (``return_token_ids``).
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from typing import Any, TypeVar

from ascribe.steps.errors import InputError
from ascribe_lab.models.http_client import HttpClient, HttpLimits, ServerError
from ascribe_lab.models.policy import Completion, ModelPolicy, Sampling, TokenPrompt
from ascribe_lab.models.tokens import Chat, smaller

FLOAT32_MAX = 3.4028234663852886e38
"""Trainers compute in float32, where a larger number is infinite."""
ABOVE_ZERO = 1e-3
"""Rounding, above all in bfloat16, may lift a log-probability above 0 by so much."""

Input = TypeVar("Input")
Output = TypeVar("Output")


class MissingTokenIdsError(ServerError):
    """The server does not return the token ids it sampled, or their log-probabilities."""


class OpenAIServer:
    """A server with OpenAI's API, with several requests at a time.

    Args:
        url: address of the server, such as ``http://localhost:8000``, with or without ``/v1``.
        model: the name under which the server has the model; None if it has only one. Some servers
            list no models, so a name is not looked up.
        at_once: how many requests are sent at the same time.
        key_variable: environment variable with the key, if the server wants one.
        limits: of time, size and retries.

    Raises:
        ServerError: without a name, if the server does not respond or has several models.
        ValueError: for an unusable address.
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
        if at_once < 1:
            raise InputError(f"at_once must be at least 1, not {at_once}")
        self.client = HttpClient(url.rstrip("/").removesuffix("/v1"), limits, key_variable)
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="ascribe-server")
        self.card: dict[str, Any] | None = None
        """The server's description of the model, if it was looked up."""
        if model is None:
            model, self.card = self.find_model(None)
        self.model = model

    def map(self, function: Callable[[Input], Output], inputs: Iterable[Input]) -> list[Output]:
        """The results in the order of the inputs; if one fails, waiting requests are not sent."""
        futures = [self._threads.submit(function, value) for value in inputs]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()

    def find_model(self, name: str | None) -> tuple[str, dict[str, Any]]:
        """The name of a model and the server's description of it; None: its only model.

        Raises:
            ServerError: if the server does not respond, or has no such model.
        """
        response = self.client.get("/v1/models")
        try:
            cards = {str(card["id"]): dict(card) for card in response["data"]}
        except (TypeError, KeyError, ValueError) as error:
            raise ServerError("the server's list of models has another form") from error
        model_name = name if name is not None else next(iter(cards), None)
        if model_name not in cards or (name is None and len(cards) != 1):
            names = ", ".join(ascii(model) for model in sorted(cards)[:20])
            raise ServerError(f"name one of the server's models: {names}")
        return model_name, cards[model_name]

    def close(self) -> None:
        """Send no further requests."""
        self._threads.shutdown(cancel_futures=True)


class ServerPolicy(ModelPolicy):
    """Samples from a server, many requests at a time.

    Args:
        url: address of the server, such as ``http://localhost:8000``.
        chat: the tokenizer of the server's model, from ``load_chat(folder)``.
        model: the name under which the server has the model; None if it has only one.
        options: further ones of ``OpenAIServer``.

    Raises:
        ServerError: if the server does not respond, or has no such model.
        ValueError: for an unusable address.
    """

    def __init__(self, url: str, chat: Chat, model: str | None = None, **options: Any) -> None:
        super().__init__(copy(chat))
        self._server = OpenAIServer(url, model, **{"at_once": 64, **options})
        self.model = self._server.model
        card = self._server.card or self._server.find_model(model)[1]
        context = card.get("max_model_len")
        if isinstance(context, int) and context > 0:
            self.chat.context = smaller(chat.context, context)

    def close(self) -> None:
        """Send no further requests."""
        self._server.close()

    def _complete(self, prompts: Sequence[TokenPrompt], sampling: Sampling) -> list[Completion]:
        def sample(prompt: TokenPrompt) -> Completion:
            response = self._server.client.post("/v1/completions", self._body(prompt, sampling))
            return read_completion(response, prompt, self.chat.vocabulary)

        return self._server.map(sample, prompts)

    def _body(self, prompt: TokenPrompt, sampling: Sampling) -> dict[str, Any]:
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
            # The server's defaults for these come from the model's folder.
            "top_k": 0,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
        }


def read_completion(response: Any, prompt: TokenPrompt, vocabulary: int) -> Completion:
    """The sampled tokens in a server's response, checked.

    Args:
        response: the server's JSON.
        prompt: what was sent.
        vocabulary: token ids are below this.

    Raises:
        MissingTokenIdsError: if it holds no token ids or no log-probabilities.
        ServerError: if its form or its values are wrong.
    """
    try:
        choice = response["choices"][0]
        finish, ids = choice["finish_reason"], choice.get("token_ids")
        prompt_ids = choice.get("prompt_token_ids")
        logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ServerError("the server's completion has another form") from error
    if ids is None:
        raise MissingTokenIdsError(
            "the server returns text but no token ids, and text is never tokenised again",
            hint="use a server that supports return_token_ids, such as vLLM's",
        )
    if logprobs is None:
        raise MissingTokenIdsError("the server returns no log-probabilities of sampled tokens")
    if prompt_ids is not None and prompt_ids != list(prompt.ids):
        raise ServerError("the server read another prompt than it was sent")
    if not isinstance(ids, list) or not 0 < len(ids) <= prompt.limit:
        raise ServerError(f"the server's token ids are no list of 1 to {prompt.limit}")
    for token in ids:
        if type(token) is not int or not 0 <= token < vocabulary:
            raise ServerError(
                f"the server sampled the token {ascii(token)[:50]}, but the tokenizer's ids end at "
                f"{vocabulary - 1}: name the folder of the served model's own tokenizer"
            )
    if not isinstance(logprobs, list) or len(logprobs) != len(ids):
        raise ServerError("the server's log-probabilities are not one for each token")
    for value in logprobs:
        if type(value) not in {int, float} or not -FLOAT32_MAX <= value <= ABOVE_ZERO:
            raise ServerError(
                f"the server's log-probability {ascii(value)[:50]} is not a number from "
                f"-{FLOAT32_MAX:.3g} to 0"
            )
    if finish not in ("stop", "length"):
        raise ServerError(f"the server ended a response for another reason: {ascii(finish)[:50]}")
    return Completion(tuple(ids), tuple(map(float, logprobs)), ended=finish == "stop")
