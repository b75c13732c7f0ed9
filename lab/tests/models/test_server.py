"""``ServerPolicy`` and servers whose completions or models are not what they should be.

Whether it gets along with a good server is tested on vLLM's own, in ``test_vllm.py``.
"""

from typing import Any

import pytest

from ascribe_lab.models.http_client import ServerError
from ascribe_lab.models.policy import Completion, TokenPrompt
from ascribe_lab.models.server import MissingTokenIdsError, ServerPolicy, read_completion
from ascribe_lab.models.tokens import Chat
from lab.tests.models.bad_server import BadServer, says

# What a completion must look like.

PROMPT = TokenPrompt((5, 6), seed=0, limit=3)


def completion(**changes: Any) -> dict[str, Any]:
    choice = {
        "finish_reason": "stop",
        "text": "ignored",
        "prompt_token_ids": [5, 6],
        "token_ids": [7, 2],
        "logprobs": {"token_logprobs": [-0.5, -1]},
    }
    return {"choices": [{**choice, **changes}]}


def test_a_completion() -> None:
    assert read_completion(completion(), PROMPT, 8) == Completion((7, 2), (-0.5, -1.0), ended=True)
    cut = completion(finish_reason="length", prompt_token_ids=None)
    assert not read_completion(cut, PROMPT, 8).ended


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_ids": None}, "no token ids, and text is never tokenised again"),
        ({"logprobs": None}, "no log-probabilities"),
        ({"logprobs": {"tokens": ["a", "b"]}}, "no log-probabilities"),
    ],
)
def test_a_server_without_token_ids_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(MissingTokenIdsError, match=message):
        read_completion(completion(**changes), PROMPT, 8)


@pytest.mark.parametrize(
    "changes",
    [
        {"prompt_token_ids": [1, 5, 6]},
        {"token_ids": []},
        {"token_ids": [1, 2, 3, 4]},
        {"token_ids": [7, -1]},
        {"token_ids": [7, True]},
        {"token_ids": "72"},
        {"logprobs": {"token_logprobs": [-0.5]}},
        {"logprobs": {"token_logprobs": [-0.5, None]}},
        {"logprobs": {"token_logprobs": [-0.5, float("nan")]}},
        {"logprobs": {"token_logprobs": [-0.5, 3.0]}},
        {"logprobs": [1]},
        {"finish_reason": "abort"},
        {"finish_reason": ["stop"]},
    ],
    ids=str,
)
def test_a_completion_that_cannot_be(changes: dict[str, Any]) -> None:
    with pytest.raises(ServerError, match="the server"):
        read_completion(completion(**changes), PROMPT, 8)


@pytest.mark.parametrize("answer", [None, [], {}, {"choices": []}, {"choices": [None]}, "x", 3])
def test_an_answer_of_another_form(answer: Any) -> None:
    with pytest.raises(ServerError, match="another form"):
        read_completion(answer, PROMPT, 8)


# Which model.


class NoTokenizer:
    """Enough of a tokenizer to ask a server for its models."""

    def __init__(self) -> None:
        self.eos_token_id, self.added_tokens_decoder = 2, {}


@pytest.mark.parametrize(
    ("models", "wanted", "found"),
    [
        ([{"id": "a", "max_model_len": 64}], None, ("a", 64)),
        ([{"id": "a"}, {"id": "b", "max_model_len": 512}], "b", ("b", 100)),
        ([{"id": "a", "max_model_len": "many"}], "a", ("a", 100)),
    ],
)
def test_the_model_and_its_context(
    bad: BadServer, models: Any, wanted: str | None, found: tuple[str, int]
) -> None:
    bad.rules = [says({"data": models})]
    chat = Chat(NoTokenizer(), context=100)
    policy = ServerPolicy(f"{bad.url}/v1/", chat, wanted)
    policy.close()
    assert (policy.model, policy.chat.context) == found
    assert chat.context == 100
    assert bad.asked[0][0] == "/v1/models"


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        ({"data": [{"id": "a"}, {"id": "b"}]}, None),
        ({"data": [{"id": "a"}]}, "c"),
        ({"data": []}, None),
        ({"data": [3]}, None),
        (["a"], None),
    ],
)
def test_no_such_model(bad: BadServer, answer: Any, wanted: str | None) -> None:
    bad.rules = [says(answer)]
    with pytest.raises(ServerError, match="the server's"):
        ServerPolicy(bad.url, Chat(NoTokenizer()), wanted)
