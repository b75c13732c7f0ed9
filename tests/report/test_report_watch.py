"""``ascribe watch`` reads what ``ascribe train`` writes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ascribe.cli import app
from ascribe.engines.metrics import HELD_OUT, LOGGED, NAME, MetricsFile
from ascribe.report.watch import BARS, WATCHED, Series, read_run

runner = CliRunner()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # so that its name is short
    folder = Path("run")
    folder.mkdir()
    metrics = MetricsFile(folder)
    for number in range(1, 4):
        numbers = {"ascribe/success": number / 10, "ascribe/return": 1.5, "seconds": 72.3 * number}
        metrics.add(number, numbers | {"loss": float("nan"), "unknown": 1})
    return folder


def test_the_numbers_are_those_of_the_file(run: Path) -> None:
    found = read_run(run)
    assert found is not None
    assert (found.iterations, found.seconds) == ((1, 2, 3), pytest.approx(216.9))
    success, returned, loss = found.series
    assert success.values == (0.1, 0.2, 0.3)
    assert success.change == pytest.approx(0.1)
    assert success.sparkline() == BARS[0] + BARS[4] + BARS[7]
    assert returned.sparkline() == 3 * BARS[0]
    assert (loss.last, loss.change, loss.sparkline()) == (None, None, "   ")


def test_how_held_out_tasks_went(run: Path) -> None:
    metrics = MetricsFile(run, 3)
    metrics.add(4, {HELD_OUT: 0.25})
    metrics.add(5, {HELD_OUT: 0.75})
    done = runner.invoke(app, ["watch", str(run), "--once"])
    assert "held-out tasks won" in done.stdout
    said = " ".join(done.stdout.split())
    assert "75.0% at best (val@max, iteration 5)" in said
    assert "50.0% first reached in iteration 5" in said
    metrics.add(6, {"ascribe/success": 0.5})  # they are not played in every iteration
    found = read_run(run)
    assert found is not None
    held_out = found.series[1]
    assert (held_out.last, held_out.change) == (0.75, 0.5)
    assert found.rows()[-1] == {"iteration": 6, "success": 0.5, "held_out": None} | dict.fromkeys(
        ("return", "loss")
    )


def test_a_run_without_metrics_has_none(tmp_path: Path) -> None:
    assert read_run(tmp_path) is None


def test_a_long_run_is_cut_from_the_left() -> None:
    series = Series("x", "x", "x", False, tuple(map(float, range(100))))
    assert len(series.sparkline()) == 40
    assert series.sparkline()[-1] == BARS[-1]


@pytest.mark.parametrize("line", ["[]", "3", '{"iteration": "x"}', "{}"])
def test_other_files_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / NAME).write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"line 1 of .* has no iteration number"):
        read_run(tmp_path)


def test_names_are_those_that_the_engines_log() -> None:
    for name in WATCHED:
        if name.startswith("ascribe/"):
            stem = "rms/TERM" if "/rms/" in name else name.removeprefix("ascribe/")
            assert stem in LOGGED


def test_a_run_with_verl_is_watched_alike(tmp_path: Path) -> None:
    metrics = MetricsFile(tmp_path)
    for number in (1, 2):
        own = {"actor/pg_loss": 0.5 / number, "actor/grad_norm": 1.0, "timing_s/step": 30.0}
        metrics.add(number, {"ascribe/success": 0.25, **own})
    found = read_run(tmp_path)
    assert found is not None
    assert found.seconds == 60.0
    assert [each.label for each in found.series] == ["success", "loss", "norm of the gradient"]
    assert found.series[1].values == (0.5, 0.25)


def test_seconds_that_no_number_holds_are_unknown(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(
        "".join(f'{{"iteration": {n}, "timing_s/step": 1e308}}\n' for n in (1, 2))
    )
    done = runner.invoke(app, ["watch", str(tmp_path), "--once"])
    assert (done.exit_code, done.exception) == (0, None)
    assert "iteration" in done.stdout
    assert "after" not in done.stdout


def test_a_pipe_in_place_of_the_metrics_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)
    command = [sys.executable, "-m", "ascribe", "watch", str(tmp_path), "--once"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "not a regular file" in " ".join(done.stderr.split())


def test_once(run: Path) -> None:
    done = runner.invoke(app, ["watch", str(run), "--once"])
    assert done.exit_code == 0
    assert "iteration 3, after 3:37 min" in done.stdout
    assert "30.0%" in done.stdout


def test_json(run: Path) -> None:
    found = json.loads(runner.invoke(app, ["watch", str(run), "--json"]).stdout)
    assert found["iterations"] == [1, 2, 3]
    assert found["series"][0]["values"] == [0.1, 0.2, 0.3]


def test_a_folder_that_is_not_there() -> None:
    done = runner.invoke(app, ["watch", "no/such/folder", "--once"])
    assert done.exit_code == 2
    assert "no such folder" in done.stderr


def test_it_looks_again_until_it_is_stopped(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        MetricsFile(run, done=3).add(4, {"ascribe/success": 0.9})
        if len(looks) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    done = runner.invoke(app, ["watch", str(run), "--every", "0.2"])
    assert done.exit_code == 0
    assert looks == [0.2, 0.2]
    assert "iteration 4" in done.stdout
