"""Bad values in files that Ascribe keeps for itself: a message, never a traceback."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ascribe.cli import app
from ascribe.engines.metrics import NAME

LINES: dict[str, bytes] = {
    "not JSON": b"{",
    "not an object": b"[1]",
    "no iteration": b"{}",
    "text": b'{"iteration": "1"}',
    "a truth": b'{"iteration": true}',
    "NaN": b'{"iteration": 1, "loss": NaN}',
    "endless": b'{"iteration": 1, "loss": 1e999}',
    "5,000 digits": b'{"iteration": 1, "loss": ' + b"9" * 5000 + b"}",
    "a late iteration": b'{"iteration": ' + b"9" * 400 + b"}",
    "deep": b"[" * 100_000,
    "not UTF-8": b'{"iteration": 1, "loss": "\xff"}',
    "a key twice": b'{"iteration": 1, "iteration": 2}',
    "the largest numbers": b'{"iteration": 1, "loss": -1.7e308}\n{"iteration": 2, "loss": 1.7e308}',
    "400 digits": b'{"iteration": 1, "loss": ' + b"9" * 400 + b"}",
    "lists": b'{"iteration": 1, "loss": [1], "seconds": {}}',
}


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, " ".join(result.output.split())


@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_report_on_a_run(tmp_path: Path, lines: bytes) -> None:
    pytest.importorskip("vl_convert", reason="needs the extra report")
    (tmp_path / NAME).write_bytes(b'{"iteration": 0, "loss": 1.0}\n' + lines + b"\n")
    (tmp_path / "config.yaml").write_text("recipe: {name: grpo}")
    code, output = run("report", tmp_path, "--out", tmp_path / "report.html")
    assert code == 0 or "line 2 of" in output


CONFIGS = {
    "not YAML": "recipe: [",
    "text": "recipe",
    "a section of text": "recipe: grpo",
    "a number for a name": "recipe: {name: 3}",
    "a list for a preset": "recipe: {name: bipace_q, preset: [ngram]}",
    "an unknown recipe": "recipe: {name: none}",
    "an unknown parameter": "recipe: {name: grpo, parameters: {radius: 0.1}}",
    "text for parameters": "recipe: {parameters: gamma}",
    "text for a radius": "recipe: {name: bipace_q}\nfingerprints: {radius: wide}",
    "a list for a radius": "recipe: {name: bipace_q}\nfingerprints: {radius: [1]}",
    "no such calibration": "fingerprints: {calibration: none.yaml}",
    "text for a threshold": "evaluation: {threshold: half}",
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_report_on_a_run_with_a_bad_config(tmp_path: Path, config: str) -> None:
    pytest.importorskip("yaml", reason="needs the extra trl or verl")
    (tmp_path / NAME).write_bytes(b'{"iteration": 0, "loss": 1.0}\n')
    (tmp_path / "config.yaml").write_text(config)
    assert run("report", tmp_path, "--out", tmp_path / "report.html")[0] == 2


TEAM = [
    {"group": "g", "trajectory": f"t{t}", "step": s, "state": "x", "action": "y"}
    | {"reward": float(t == s), "agent": "ab"[s], "without": 0.5}
    for t in range(3)
    for s in range(2)
]
HISTORIES: list[Any] = [
    None,
    1,
    [],
    {},
    "text",
    {"streams": 1, "mean": 1, "variance": 1, "samples": 1},
    {"streams": ["a", "b"], "mean": [1, None], "variance": [0, 0], "samples": 1},
    {"streams": ["a", "b"], "mean": [1, "x"], "variance": [0, 0], "samples": 1},
    {"streams": ["a", "b"], "mean": [1, 10**400], "variance": [0, 0], "samples": 1},
    {"streams": ["a", "b"], "mean": [1, 2], "variance": [0, -1], "samples": 1},
    {"streams": ["a", "b"], "mean": [1, 2], "variance": [0, 0], "samples": {}},
    {"streams": ["c"], "mean": [1], "variance": [0], "samples": 1},
]


@pytest.mark.parametrize("text", [*map(json.dumps, HISTORIES), "{", "NaN", "[" * 100_000, "1e999"])
def test_history(tmp_path: Path, text: str) -> None:
    rollouts, history = tmp_path / "a.jsonl", tmp_path / "history.json"
    rollouts.write_text("".join(json.dumps(row) + "\n" for row in TEAM))
    history.write_text(text)
    out = tmp_path / "b.parquet"
    code, output = run("credit", rollouts, "--recipe", "ccpo", "--history", history, "--out", out)
    if text != "null":  # as if there were none
        assert (code, out.exists(), history.read_text()) == (2, False, text), output
