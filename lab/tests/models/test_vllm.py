"""``VllmPolicy`` and ``ServerPolicy`` on the real vLLM, with a tiny model.

vLLM computes with other kernels than transformers, here in single precision as well; the log-
probabilities agree to 1e-3. (In bfloat16, which has three digits, they would to about 0.1.)
"""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from ascribe_lab.models import HttpLimits, ServerPolicy, VllmPolicy, load_chat
from ascribe_lab.models.policy import Request, Sample, Sampling, SamplingPolicy

from .trained import check_form, differences, requests, retokenised_differently

pytestmark = [
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("vllm") is None, reason="needs vLLM: scripts/make_env.sh FOLDER verl-cpu"
    ),
    # vLLM's own warnings are vLLM's affair.
    pytest.mark.filterwarnings("ignore"),
]

SHORT = Sampling(max_tokens=12)
TOLERANCE = 1e-3
START_SECONDS = 300


@pytest.fixture(scope="module")
def in_process(tiny_folder: Path) -> Iterator[VllmPolicy]:
    """It reads fewer prompts at once than are asked."""
    policy = VllmPolicy(
        tiny_folder, dtype="float32", context=256, max_num_seqs=16, max_num_batched_tokens=256
    )
    yield policy
    policy.close()


@pytest.fixture(scope="module")
def server(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of vLLM's own server, on the loopback interface, in a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("vllm") / "log"
    options = ["--dtype", "float32", "--max-model-len", "256", "--max-num-seqs", "16"]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager"]
    address = ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny"]
    settings = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "--model", str(tiny_folder), *options, *address],
            env={**os.environ, **settings, "HF_HUB_OFFLINE": "1"},
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait(process, f"http://127.0.0.1:{port}/health", log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def served(server: str, tiny_folder: Path) -> Iterator[ServerPolicy]:
    policy = ServerPolicy(server, load_chat(tiny_folder), "tiny", limits=HttpLimits(timeout=120))
    yield policy
    policy.close()


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(1)
    raise AssertionError("vLLM's server did not start:\n" + log.read_text()[-3000:])


@pytest.fixture(params=["in_process", "served"])
def policy(request: pytest.FixtureRequest) -> SamplingPolicy:
    return request.getfixturevalue(request.param)


def ids(samples: list[Sample]) -> list[tuple[int, ...]]:
    return [sample.response_ids for sample in samples]


@pytest.mark.parametrize(
    "sampling",
    [
        SHORT,
        Sampling(max_tokens=12, temperature=0.5, top_p=0.9),
        Sampling(max_tokens=12, temperature=0),
    ],
    ids=["plain", "cold", "greedy"],
)
def test_the_kept_logprobs_are_the_models(
    policy: SamplingPolicy, tiny: Any, tokenizer: Any, sampling: Sampling
) -> None:
    samples = policy(requests(), sampling)
    check_form(samples, tokenizer, sampling)
    assert max(differences(tiny, samples)) < TOLERANCE
    assert retokenised_differently(samples, tokenizer) > 0


def test_the_same_seed_gives_the_same_sample(policy: SamplingPolicy) -> None:
    together = ids(policy(requests(), SHORT))
    assert ids(policy(requests(), SHORT)) == together
    assert ids([policy([request], SHORT)[0] for request in requests()]) == together
    assert len(set(together)) == len(together)


def test_both_ways_to_vllm_give_the_same_samples(
    in_process: VllmPolicy, served: ServerPolicy
) -> None:
    assert ids(in_process(requests(), SHORT)) == ids(served(requests(), SHORT))


def test_greedy_is_what_transformers_writes(
    policy: SamplingPolicy, tiny: Any, tokenizer: Any
) -> None:
    from ascribe_lab.models import TransformersPolicy

    greedy = Sampling(max_tokens=12, temperature=0)
    wanted = TransformersPolicy(tiny, tokenizer)(requests(4), greedy)
    assert ids(policy(requests(4), greedy)) == ids(wanted)


def test_the_end_of_turn_is_kept(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (free,) = policy(requests(1), SHORT)
    end = free.response_ids[4]
    monkeypatch.setattr(policy.chat, "ends", frozenset({end}))
    (sample,) = policy(requests(1), SHORT)
    first = free.response_ids.index(end)
    assert sample.response_ids == free.response_ids[: first + 1]
    assert sample.text == policy.chat.tokenizer.decode(sample.response_ids[:-1])
    assert (free.finish, sample.finish) == ("length", "stop")


def test_a_stop_text_is_kept(policy: Any) -> None:
    decode = policy.chat.tokenizer.decode
    free = policy(requests(), SHORT)
    row, stop = next(
        (row, text)
        for row, sample in enumerate(free)
        for text in [decode(sample.response_ids[4:5])]
        if text.isascii() and len(text) > 1
    )
    sample = policy(requests(), Sampling(max_tokens=12, stop=(stop,)))[row]
    first = next(n for n in range(1, 13) if stop in decode(free[row].response_ids[:n]))
    assert sample.response_ids == free[row].response_ids[:first]
    assert sample.text == decode(sample.response_ids)
    assert sample.finish == "stop"


def test_the_context_is_a_limit(policy: Any) -> None:
    assert policy.chat.context == 256
    request = Request([{"role": "user", "content": "key " * 300}], 0)
    fits = Request([{"role": "user", "content": "key " * 210}], 0)
    samples = policy([request, fits], Sampling(max_tokens=100))
    assert samples[0] == Sample("", finish="prompt_too_long")
    assert samples[1].finish == "length"
    assert len(samples[1].prompt_ids) + len(samples[1].response_ids) == 256


def test_more_prompts_than_are_read_at_once(in_process: VllmPolicy) -> None:
    """VLLM ends with an error on the CPU if it reads a prompt in parts and draws by a seed."""
    many = [Request([{"role": "user", "content": f"{n} now" * 12}], n) for n in range(12)]
    samples = in_process(many, SHORT)
    assert sum(len(sample.prompt_ids) for sample in samples) > 512
    assert all(sample.response_ids for sample in samples)


def test_the_server_refuses_what_it_does_not_know(server: str, served: ServerPolicy) -> None:
    from ascribe_lab.models import ServerError

    with pytest.raises(ServerError, match="name one of the server's models: 'tiny'"):
        ServerPolicy(server, served.chat, "huge")
