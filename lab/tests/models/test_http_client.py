"""``HttpClient`` and servers that are slow, broken or hostile."""

import threading
from typing import Any

import pytest

from ascribe_lab.models.http_client import HttpClient, HttpLimits, ServerError
from lab.tests.models.bad_server import BadServer, Behave, hangs_up, says

KEY, SECRET = "ASCRIBE_TEST_KEY", "sk-do-not-tell"


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between attempts are noted, not made."""
    pauses: list[float] = []
    monkeypatch.setattr("ascribe_lab.models.http_client.time.sleep", pauses.append)
    return pauses


def client(bad: BadServer, **limits: Any) -> HttpClient:
    return HttpClient(bad.url, HttpLimits(**{"timeout": 5.0, "retries": 2, **limits}), KEY)


def test_a_good_answer(bad: BadServer) -> None:
    bad.rules = [says({"a": [1]})]
    assert client(bad).get("/v1/models") == {"a": [1]}
    assert client(bad).post("/v1/completions", {"x": 1}) == {"a": [1]}
    assert [path for path, _ in bad.asked] == ["/v1/models", "/v1/completions"]


@pytest.mark.parametrize("trouble", [says({}, 503), says({}, 429), says({}, 500), hangs_up])
def test_trouble_that_may_pass_is_tried_again(
    bad: BadServer, no_pauses: list[float], trouble: Behave
) -> None:
    bad.rules = [trouble, trouble, says("good")]
    assert client(bad).get("/x") == "good"
    assert no_pauses == [0.5, 1.0]


def test_trouble_that_stays_is_an_error(bad: BadServer) -> None:
    bad.rules = [says({}, 503)]
    with pytest.raises(ServerError, match=r"/x answered 503: '\{\}' \(3 attempts\)"):
        client(bad).get("/x")
    assert len(bad.asked) == 3


def test_the_server_may_ask_for_a_longer_pause_but_not_for_any(
    bad: BadServer, no_pauses: list[float]
) -> None:
    bad.rules = [says({}, 429, Retry_After="7"), says({}, 429, Retry_After="99999"), says(1)]
    assert client(bad).get("/x") == 1
    assert no_pauses == [7.0, 30.0]


@pytest.mark.parametrize("status", [400, 401, 404])
def test_a_refusal_is_not_tried_again(bad: BadServer, status: int) -> None:
    bad.rules = [says({"error": "no \x1b[31m"}, status)]
    with pytest.raises(ServerError, match=f"answered {status}") as caught:
        client(bad).get("/x")
    assert len(bad.asked) == 1
    assert "\x1b" not in str(caught.value)


def test_redirects_are_not_followed(bad: BadServer) -> None:
    bad.rules = [says({}, 307, Location=f"{bad.url}/elsewhere")]
    with pytest.raises(ServerError, match="answered 307"):
        client(bad).get("/x")
    assert [path for path, _ in bad.asked] == ["/x"]


def test_an_answer_may_not_be_too_large(bad: BadServer) -> None:
    bad.rules = [says(b'"' + b"x" * 100_000 + b'"')]
    assert len(client(bad).get("/x")) == 100_000
    with pytest.raises(ServerError, match="more than 50,000 bytes"):
        client(bad, max_bytes=50_000).get("/x")


@pytest.mark.parametrize("again", [True, False])
def test_whether_timeouts_are_retried(bad: BadServer, again: bool) -> None:
    bad.rules = [lambda _: threading.Event().wait(1.0) and None]
    with pytest.raises(ServerError, match=r"no response within 0\.2 s"):
        client(bad, timeout=0.2, retries=1, retry_timeouts=again).get("/x")
    assert len(bad.asked) == 1 + again


@pytest.mark.parametrize("content", [b"<html>", b"", b"\xff", b"[" * 100_000, b"[NaN]"])
def test_an_answer_must_be_json(bad: BadServer, content: bytes) -> None:
    bad.rules = [says(content)]
    with pytest.raises(ServerError, match="that is not JSON"):
        client(bad).get("/x")


def test_the_key_is_sent_and_never_told(bad: BadServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)
    bad.rules = [says({"error": f"wrong key {SECRET}"}, 401)]
    asked = client(bad)
    with pytest.raises(ServerError, match=r"wrong key \.\.\.") as caught:
        asked.get("/x")
    assert bad.asked[0][1]["Authorization"] == f"Bearer {SECRET}"
    assert SECRET not in f"{caught.value!r} {asked!r} {vars(asked)}"


def test_no_key_no_header(bad: BadServer) -> None:
    bad.rules = [says({})]
    client(bad).get("/x")
    assert "Authorization" not in bad.asked[0][1]


@pytest.mark.parametrize(
    "url", ["localhost:8000", "file:///etc/passwd", "http://", "http://me:pw@host", "http://h/?k=1"]
)
def test_addresses_that_will_not_do(url: str) -> None:
    with pytest.raises(ValueError, match="address"):
        HttpClient(url, key_variable=KEY)


def test_a_key_does_not_travel_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY, SECRET)
    with pytest.raises(ValueError, match=f"{KEY} is set and would be sent unencrypted"):
        HttpClient("http://example.org", key_variable=KEY)
    for url in ("https://example.org", "http://localhost:1", "http://[::1]:1", "http://127.0.0.1"):
        HttpClient(url, key_variable=KEY)


@pytest.mark.parametrize("port", ["abc", "99999"])
def test_an_address_with_a_wrong_port_is_refused_at_once(port: str) -> None:
    with pytest.raises(ValueError, match="has no valid port"):
        HttpClient(f"http://localhost:{port}")


@pytest.mark.parametrize("key", ["hidden\n", "hidden\u20ac"])
def test_a_key_that_no_header_may_hold_is_refused_without_being_shown(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv(KEY, key)
    with pytest.raises(ValueError, match=f"{KEY} holds a line break") as caught:
        HttpClient("https://example.org", key_variable=KEY)
    assert "hidden" not in str(caught.value)


def test_a_query_goes_along_where_there_is_no_key(bad: BadServer) -> None:
    bad.rules = [says(1)]
    assert HttpClient(f"{bad.url}/a?b=c").post("", {}) == 1
    assert bad.asked[0][0] == "/a?b=c"


@pytest.mark.parametrize("limits", [{"timeout": 0.0}, {"retries": -1}, {"max_bytes": 0}])
def test_limits_that_cannot_be(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no request could succeed"):
        HttpLimits(**limits)
