"""A report reads the metrics that ``ascribe train`` writes."""

import os
from pathlib import Path

import pytest

from ascribe.engines import training_recipe
from ascribe.engines.metrics import HELD_OUT, NAME
from ascribe.estimators import BiGPO, GiGPO, Recipe
from ascribe.reports.runs import COLUMNS, read_run
from tests.conftest import write_jsonl
from tests.engines.explained import LOGGED

pytest.importorskip("yaml", reason="needs the extra trl or verl")


LINES = [
    {"iteration": number, "ascribe/success": number / 10, "ascribe/return": 1.5}
    | {"loss": None, "unknown": 1}
    for number in range(1, 4)
]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "config.yaml").write_text("evaluation: {threshold: 0.5}")
    write_jsonl(tmp_path / NAME, LINES)
    return tmp_path


def test_the_numbers_are_those_of_the_file(run: Path) -> None:
    metrics = read_run(run)
    assert metrics is not None
    assert metrics.rows == [
        {"iteration": number, "success": number / 10, "return": 1.5, "loss": None}
        for number in (1, 2, 3)
    ]


def test_how_held_out_tasks_went(run: Path) -> None:
    later = [{"iteration": 4, HELD_OUT: 0.25}, {"iteration": 5, HELD_OUT: 0.75}]
    later.append({"iteration": 6, "ascribe/success": 0.5})  # not played in every iteration
    write_jsonl(run / NAME, LINES + later)
    metrics = read_run(run)
    assert metrics is not None
    assert metrics.summary is not None
    assert "75.0% at best (val@max, iteration 5)" in metrics.summary
    assert "50.0% first reached in iteration 5" in metrics.summary
    assert metrics.rows[-1] == {"iteration": 6, "success": 0.5, "held_out": None} | dict.fromkeys(
        ("return", "loss")
    )


def test_a_run_without_metrics_has_none(tmp_path: Path) -> None:
    assert read_run(tmp_path) is None


@pytest.mark.parametrize("line", ["[]", "3", '{"iteration": "x"}', "{}"])
def test_other_files_are_refused(tmp_path: Path, line: str) -> None:
    (tmp_path / NAME).write_text(f"{line}\n")
    with pytest.raises(ValueError, match=r"line 1 of .* has no iteration number"):
        read_run(tmp_path)


def test_names_are_those_that_the_engines_log() -> None:
    for name in COLUMNS:
        if name.startswith("ascribe/"):
            stem = "rms/TERM" if "/rms/" in name else name.removeprefix("ascribe/")
            assert stem in LOGGED


def test_a_run_with_verl_is_read_alike(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    own = {"ascribe/success": 0.25, "actor/grad_norm": 1.0}
    lines = [{"iteration": number, "actor/pg_loss": 0.5 / number, **own} for number in (1, 2)]
    write_jsonl(tmp_path / NAME, lines)
    read = read_run(tmp_path)
    assert read is not None
    assert read.rows == [
        {"iteration": number, "success": 0.25, "loss": 0.5 / number, "grad_norm": 1.0}
        for number in (1, 2)
    ]


def test_a_pipe_in_place_of_the_metrics_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(ValueError, match="not a regular file"):
        read_run(tmp_path)


SETTING = "setting: {radius: 0.2, layer: 3}"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ("", training_recipe()),
        ("recipe: {name: gigpo, parameters: {gamma: 0.9}}", GiGPO(gamma=0.9)),
        ("recipe: {name: bigpo, preset: ngram}", BiGPO.preset("ngram")),
        ("recipe: {name: bigpo}\nfingerprints: {radius: 0.3}", BiGPO(radius=0.3)),
        ("recipe: {name: bigpo}\nfingerprints: {calibration: FILE}", BiGPO(radius=0.2)),
        (
            "recipe: {name: bigpo}\nfingerprints: {radius: 0.3, calibration: FILE}",
            BiGPO(radius=0.3),
        ),
    ],
)
def test_the_recipe_is_the_run_s_own(run: Path, config: str, expected: Recipe) -> None:
    (run / "calibration.yaml").write_text(SETTING)
    (run / "config.yaml").write_text(config.replace("FILE", str(run / "calibration.yaml")))
    metrics = read_run(run)
    assert metrics is not None
    assert metrics.config.recipe() == expected
