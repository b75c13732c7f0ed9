"""``ServerPolicy`` and servers that are slow, broken or hostile.

Whether it gets along with a good one is tested on vLLM's own, in ``test_policies_vllm.py``.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from ascribe.models.http_json import Limits, Server, ServerError
from ascribe.models.model_policy import Drawn, Prompt
from ascribe.models.server import NoTokenIds, ServerPolicy, drawn_from

KEY, SECRET = "ASCRIBE_TEST_KEY", "sk-do-not-tell"
Behave = Callable[[BaseHTTPRequestHandler], None]


class Bad:
    """A server that does to each request what the test says; the last rule stays."""

    def __init__(self) -> None:
        self.rules: list[Behave] = []
        self.asked: list[tuple[str, dict[str, str]]] = []
        bad = self

        class Handler(BaseHTTPRequestHandler):
            def handle_one(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                bad.asked.append((self.path, dict(self.headers)))
                rule = bad.rules.pop(0) if len(bad.rules) > 1 else bad.rules[0]
                try:
                    rule(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

            do_GET = do_POST = handle_one  # noqa: N815 (the names that http.server looks for)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def bad() -> Iterator[Bad]:
    server = Bad()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between tries are noted, not made."""
    pauses: list[float] = []
    monkeypatch.setattr("ascribe.models.http_json.time.sleep", pauses.append)
    return pauses


def says(value: Any, status: int = 200, **headers: str) -> Behave:
    content = value if isinstance(value, bytes) else json.dumps(value).encode()

    def behave(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, text in headers.items():
            handler.send_header(name.replace("_", "-"), text)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return behave


def hangs_up(handler: BaseHTTPRequestHandler) -> None:
    handler.connection.close()
    handler.close_connection = True


def dribbles(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b" ")
        threading.Event().wait(0.05)


def server(bad: Bad, **limits: Any) -> Server:
    return Server(bad.url, KEY, Limits(**{"seconds": 5.0, "retries": 2, **limits}))


def test_a_good_answer(bad: Bad) -> None:
    bad.rules = [says({"a": [1]})]
    assert server(bad).ask("/v1/models") == {"a": [1]}
    assert server(bad).ask("/v1/completions", {"x": 1}) == {"a": [1]}
    assert [path for path, _ in bad.asked] == ["/v1/models", "/v1/completions"]


@pytest.mark.parametrize("trouble", [says({}, 503), says({}, 429), says({}, 500), hangs_up])
def test_trouble_that_may_pass_is_tried_again(
    bad: Bad, no_pauses: list[float], trouble: Behave
) -> None:
    bad.rules = [trouble, trouble, says("good")]
    assert server(bad).ask("/x") == "good"
    assert no_pauses == [0.5, 1.0]


def test_trouble_that_stays_is_an_error(bad: Bad) -> None:
    bad.rules = [says({}, 503)]
    with pytest.raises(ServerError, match=r"/x answered 503: '\{\}' \(asked 3 times\)"):
        server(bad).ask("/x")
    assert len(bad.asked) == 3


def test_the_server_may_ask_for_a_longer_pause_but_not_for_any(
    bad: Bad, no_pauses: list[float]
) -> None:
    bad.rules = [says({}, 429, Retry_After="7"), says({}, 429, Retry_After="99999"), says(1)]
    assert server(bad).ask("/x") == 1
    assert no_pauses == [7.0, 30.0]


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refusal_is_not_tried_again(bad: Bad, status: int) -> None:
    bad.rules = [says({"error": "no \x1b[31m"}, status)]
    with pytest.raises(ServerError, match=f"answered {status}") as caught:
        server(bad).ask("/x")
    assert len(bad.asked) == 1
    assert "\x1b" not in str(caught.value)


def test_redirects_are_not_followed(bad: Bad) -> None:
    bad.rules = [says({}, 307, Location=f"{bad.url}/elsewhere")]
    with pytest.raises(ServerError, match="answered 307"):
        server(bad).ask("/x")
    assert [path for path, _ in bad.asked] == ["/x"]


def test_an_answer_may_not_be_too_large(bad: Bad) -> None:
    bad.rules = [says(b'"' + b"x" * 100_000 + b'"')]
    assert len(server(bad).ask("/x")) == 100_000
    with pytest.raises(ServerError, match="more than 50,000 bytes"):
        server(bad, bytes=50_000).ask("/x")


def test_an_answer_may_not_dribble_for_ever(bad: Bad) -> None:
    bad.rules = [dribbles]
    began = time.monotonic()
    with pytest.raises(ServerError, match=r"takes more than 0.3 s"):
        server(bad, seconds=0.3, retries=0).ask("/x")
    assert time.monotonic() - began < 3


def test_a_silent_server_is_an_error(bad: Bad) -> None:
    bad.rules = [lambda _: threading.Event().wait(1.0) and None]
    with pytest.raises(ServerError, match="TimeoutError"):
        server(bad, seconds=0.2, retries=0).ask("/x")


@pytest.mark.parametrize("content", [b"<html>", b"", b"\xff", b"[" * 100_000])
def test_an_answer_must_be_json(bad: Bad, content: bytes) -> None:
    bad.rules = [says(content)]
    with pytest.raises(ServerError, match="answered with no JSON"):
        server(bad).ask("/x")


def test_the_key_is_sent_and_never_told(bad: Bad, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)
    bad.rules = [says({"error": f"wrong key {SECRET}"}, 401)]
    asked = server(bad)
    with pytest.raises(ServerError, match=r"wrong key \.\.\.") as caught:
        asked.ask("/x")
    assert bad.asked[0][1]["Authorization"] == f"Bearer {SECRET}"
    assert SECRET not in f"{caught.value!r} {asked!r} {vars(asked)}"


def test_no_key_no_header(bad: Bad) -> None:
    bad.rules = [says({})]
    server(bad).ask("/x")
    assert "Authorization" not in bad.asked[0][1]


@pytest.mark.parametrize(
    "url", ["localhost:8000", "file:///etc/passwd", "http://", "http://me:pw@host", "http://h/?k=1"]
)
def test_addresses_that_will_not_do(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        Server(url, KEY, Limits())


def test_a_key_does_not_travel_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)
    with pytest.raises(ValueError, match=f"{KEY} is set and would travel in the clear"):
        Server("http://example.org", KEY, Limits())
    for url in ("https://example.org", "http://localhost:1", "http://[::1]:1", "http://127.0.0.1"):
        Server(url, KEY, Limits())


@pytest.mark.parametrize("limits", [{"seconds": 0.0}, {"retries": -1}, {"bytes": 0}])
def test_limits_that_cannot_be(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="let nothing through"):
        Limits(**limits)


# What a completion must look like.

PROMPT = Prompt((5, 6), seed=0, limit=3)


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
    assert drawn_from(completion(), PROMPT) == Drawn((7, 2), (-0.5, -1.0), ended=True)
    cut = completion(finish_reason="length", prompt_token_ids=None)
    assert not drawn_from(cut, PROMPT).ended


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"token_ids": None}, "no token ids, and text is never tokenised again"),
        ({"logprobs": None}, "no log-probabilities"),
        ({"logprobs": {"tokens": ["a", "b"]}}, "no log-probabilities"),
    ],
)
def test_a_server_without_token_ids_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(NoTokenIds, match=message):
        drawn_from(completion(**changes), PROMPT)


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
        drawn_from(completion(**changes), PROMPT)


@pytest.mark.parametrize("answer", [None, [], {}, {"choices": []}, {"choices": [None]}, "x", 3])
def test_an_answer_of_another_form(answer: Any) -> None:
    with pytest.raises(ServerError, match="another form"):
        drawn_from(answer, PROMPT)


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
    bad: Bad, models: Any, wanted: str | None, found: tuple[str, int]
) -> None:
    from ascribe.models.tokens import Chat

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
def test_no_such_model(bad: Bad, answer: Any, wanted: str | None) -> None:
    from ascribe.models.tokens import Chat

    bad.rules = [says(answer)]
    with pytest.raises(ServerError, match="the server's"):
        ServerPolicy(bad.url, Chat(NoTokenizer()), wanted)
