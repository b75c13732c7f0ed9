"""No command of the laboratory overwrites the file that it reads."""

import json
from pathlib import Path

import pytest

from tests.attack.test_inputs_overwritten import run


def test_pivots_keep_their_inputs(tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    message = [{"role": "user", "content": "go"}, {"role": "assistant", "content": "gone"}]
    traces.write_text(json.dumps({"messages": message}) + "\n")
    before = traces.read_bytes()
    assert run("pivots", "extract", traces, "--out", traces)[0] == 2
    assert traces.read_bytes() == before
    turns = tmp_path / "turns.jsonl"
    code, output = run("pivots", "extract", traces, "--out", turns)
    assert code == 0, output
    before = turns.read_bytes()
    code, output = run(
        "pivots", "profile", turns, "--model", "http://127.0.0.1:1", "--answers", turns
    )
    assert code == 2
    assert "names the file of candidates" in output
    verifier = '{"any": ["tool_call"]}'
    assert run("pivots", "select", turns, "--verifier", verifier, "--out", turns)[0] == 2
    assert turns.read_bytes() == before
    turns.write_bytes(b"".join(before.splitlines(keepends=True)[:2]))  # cut short
    code, output = run("pivots", "report", turns, "--verifier", "tool_call")
    assert code == 2
    assert "no end mark" in " ".join(output.split())


def test_a_run_keeps_the_config_that_it_is_started_by(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs PyYAML")
    config = tmp_path / "config.yaml"
    text = "# mine\nmodel: {path: smollm2}\nenvironment: {name: sokoban}\noutput: {folder: %s}\n"
    config.write_text(text % tmp_path)
    code, output = run("train", config, "--dry-run")
    assert code == 2
    assert "would overwrite" in " ".join(output.split())
