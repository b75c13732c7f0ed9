"""Tokens and log-probabilities from servers are checked against the vocabulary and float32."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra actor")

from ascribe_lab.models.http_client import HttpLimits, ServerError
from ascribe_lab.models.policy import Request, Sampling
from ascribe_lab.models.server import ServerPolicy
from ascribe_lab.models.tokens import Chat
from lab.tests.models.bad_server import BadServer, says
from tests.tiny_model import train_tokenizer

REQUEST = Request([{"role": "user", "content": "Where is the key?"}], seed=0)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return train_tokenizer(["Where is the key?"], 300)


@pytest.fixture
def bad() -> Iterator[BadServer]:
    server = BadServer()
    yield server
    server.close()


def sampled(bad: BadServer, tokenizer: Any, ids: str, logprobs: str) -> Any:
    """What the policy makes of token ids and log-probabilities in JSON."""
    tokens = f'"token_ids": {ids}, "logprobs": {{"token_logprobs": {logprobs}}}'
    body = f'{{"finish_reason": "stop", {tokens}}}'
    models = json.dumps({"data": [{"id": "tiny"}]}).encode()
    bad.rules = [says(models), says(f'{{"choices": [{body}]}}'.encode())]
    policy = ServerPolicy(bad.url, Chat(tokenizer), limits=HttpLimits(10.0, retries=0))
    try:
        (sample,) = policy([REQUEST], Sampling(max_tokens=4))
    finally:
        policy.close()
    return sample


def test_the_last_token_of_the_vocabulary_and_the_least_float32(
    bad: BadServer, tokenizer: Any
) -> None:
    last = max(tokenizer.get_vocab().values())
    sample = sampled(bad, tokenizer, f"[0, {last}]", "[-3.4028234e38, 0.0005]")
    assert sample.response_ids == (0, last)


@pytest.mark.parametrize("token", ["SIZE", "151643", "4294967296", "1e3", "1" + "0" * 4000, "-1"])
def test_a_token_outside_the_vocabulary_is_refused(
    bad: BadServer, tokenizer: Any, token: str
) -> None:
    token = token.replace("SIZE", str(1 + max(tokenizer.get_vocab().values())))
    with pytest.raises(ServerError, match="name the folder of the served model's own tokenizer"):
        sampled(bad, tokenizer, f"[0, {token}]", "[-1.0, -1.0]")


@pytest.mark.parametrize(
    "logprob", ["-1e39", "-1.7e308", "0.01", "1e30", "-1" + "0" * 4000, "true", '"-1"', "null"]
)
def test_a_log_probability_that_float32_cannot_hold_is_refused(
    bad: BadServer, tokenizer: Any, logprob: str
) -> None:
    with pytest.raises(ServerError, match=r"is not a number from -3\.4e\+38 to 0"):
        sampled(bad, tokenizer, "[0, 1]", f"[-1.0, {logprob}]")


@pytest.mark.parametrize("logprob", ["-1e999", "NaN", "-Infinity"])
def test_numbers_that_json_lacks_are_refused(bad: BadServer, tokenizer: Any, logprob: str) -> None:
    with pytest.raises(ServerError, match="not JSON"):
        sampled(bad, tokenizer, "[0, 1]", f"[-1.0, {logprob}]")
