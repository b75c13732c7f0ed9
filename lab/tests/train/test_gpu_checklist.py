"""The check-list for GPUs, as far as it goes without one: its checks tell right from wrong."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ascribe import StepTable, assign, recipe
from ascribe_lab.train.load import load_config
from ascribe_lab.train.metrics_file import MetricsFile
from ascribe_lab.train.verl.arguments import verl_overrides
from tests.engines import trl_toys

pytest.importorskip("torch")
pytest.importorskip("transformers")
sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "gpu"))

import check


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    trl_toys.tiny().save_pretrained(folder)
    return folder


@pytest.fixture
def run(tmp_path: Path, model: Path) -> Path:
    """A run as ``ascribe train`` leaves it: metrics, and a dump with what the model samples."""
    metrics = MetricsFile(_folder(tmp_path / "run"))
    for step in (1, 2):
        metrics.add(step, {"actor/pg_loss": 0.1, "actor/grad_norm": 1.0, check.APART: 0.001})
    rows = [
        {"group": "g", "trajectory": f"g/{member}", "step": step, "state": "s", "action": action}
        | {"reward": float(member == step), "prompt_ids": [5, 6, 7], "response_ids": [8, 9 + step]}
        for member in (0, 1)
        for step, action in enumerate("ab")
    ]
    ids = [row["prompt_ids"] + row["response_ids"] for row in rows]  # type: ignore[operator]
    logprobs = check.scorer(str(model), "cpu")(ids, [3] * len(rows))
    table = StepTable.from_dicts([{n: row[n] for n in check.COLUMNS} for row in rows])
    advantage = assign(table, recipe("gigpo")).credit.advantage
    for row, value, own in zip(rows, advantage, logprobs, strict=True):
        row |= {"trained_advantage": value, "logprobs": own}
    dump = _folder(tmp_path / "run" / "rollouts") / "rollouts_00000.parquet"
    pq.write_table(pa.Table.from_pylist(rows), dump)
    return tmp_path


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def results(findings: list[check.Finding]) -> dict[str, bool | None]:
    return {one.check: one.passed for one in findings}


def change(run: Path, column: str, value: Any) -> None:
    dump = run / "run" / "rollouts" / "rollouts_00000.parquet"
    rows = pq.read_table(dump).to_pylist()
    rows[0][column] = value
    pq.write_table(pa.Table.from_pylist(rows), dump)


def test_a_run_that_is_right_passes(run: Path, model: Path) -> None:
    found = check.check_run("x", run, 2, "gigpo", check.scorer(str(model), "cpu"))
    names = ("steps", "finite", "advantages", "servers", "log-probs")
    assert results(found) == dict.fromkeys(names, True)
    assert check.table(found).splitlines()[1].split()[:3] == ["x", "steps", "passed"]


def test_what_is_wrong_is_found(run: Path, model: Path) -> None:
    score = check.scorer(str(model), "cpu")
    assert not results(check.check_run("x", run, 5, "gigpo"))["steps"]
    change(run, "trained_advantage", 9.0)
    assert not results(check.check_run("x", run, 2, "gigpo"))["advantages"]
    change(run, "logprobs", [-30.0, -30.0])
    assert not results(check.check_run("x", run, 2, "gigpo", score))["log-probs"]
    MetricsFile(run / "run", 1).add(2, {"actor/pg_loss": float("inf"), check.APART: 0.5})
    found = results(check.check_run("x", run, 2, "gigpo"))
    assert not found["servers"]
    assert found["finite"], "what is not finite is written as null, and the gradient is missing"


def test_what_a_cpu_recorded_is_found_again(run: Path, model: Path, tmp_path: Path) -> None:
    dump, to = run / "run" / "rollouts" / "rollouts_00000.parquet", tmp_path / "recorded.json"
    check.record(dump, dump, str(model), "gigpo", to)
    assert all(one.passed for one in check.check_recorded(to, "cpu"))
    made = json.loads(to.read_text())
    made["sequences"][0]["logprobs"][0] -= 5
    made["advantages"][0] += 1
    to.write_text(json.dumps(made))
    assert [one.passed for one in check.check_recorded(to, "cpu")] == [False, False]


def test_the_committed_recording_has_credit() -> None:
    made = json.loads(check.RECORDED.read_text())
    credit = assign(StepTable.from_dicts(made["steps"]), recipe(made["recipe"])).credit
    np.testing.assert_allclose(credit.advantage, made["advantages"], atol=1e-6)
    assert np.ptp(credit.advantage) > 0
    for one in made["sequences"]:
        assert len(one["ids"]) - one["start"] == len(one["logprobs"]) > 0


@pytest.mark.parametrize("name", [name for name in check.CASES if name != "stock"])
def test_every_case_is_a_config_that_verl_takes(name: str, tmp_path: Path) -> None:
    import yaml

    path = tmp_path / "run.yaml"
    made = check.document(check.CASES[name], "Qwen/Q", 5, tmp_path / "run", small=False)
    path.write_text(yaml.safe_dump(made))
    overrides = verl_overrides(load_config(path).config, path, tmp_path, cpu=False)
    assert overrides["trainer.total_training_steps"] == 5


def test_cases_for_more_gpus_than_there_are_are_not_run(tmp_path: Path) -> None:
    options = argparse.Namespace(
        out=tmp_path, only=["tensor_parallel", "async"], platform="cuda", recorded=tmp_path / "no"
    )
    found = check.check_all(options, gpus=1)
    assert [one.passed for one in found] == [None, None]
    assert "it needs 2" in found[0].figure


def test_a_run_that_ends_with_an_error_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(name: str, model: str, steps: int, folder: Path, *, cpu: bool) -> int:
        del name, model, steps, cpu
        folder.mkdir()
        (folder / "log.txt").write_text("a\nout of memory")
        return 3

    monkeypatch.setattr(check, "run_case", fails)
    options = argparse.Namespace(
        out=tmp_path, only=["lora"], platform="cpu", recorded=tmp_path / "no", model="m", steps=5
    )
    (found,) = check.check_all(options, gpus=2)
    assert found.passed is False
    assert found.figure == "code 3: out of memory"
