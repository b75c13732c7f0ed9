"""TRL with corrections: what is trained on is what ``ibpo`` says, corrections included."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

pytest.importorskip("trl", reason="needs the extra trl")

from ascribe.cli import app
from ascribe.steps.files import read
from ascribe_lab.train.corrections import Corrections
from lab.tests.train import trl_games as toys
from lab.tests.train.test_trl_trainer import expected, recorded, same
from lab.tests.train.trl_run import run

pytestmark = [pytest.mark.engine, toys.QUIET]


def assert_credited(file: Path) -> Any:
    """``ascribe credit`` on the file gives the advantages that were trained with; the table."""
    out = file.with_name(f"credit_{file.name}")
    words = ["credit", str(file), "--recipe", "ibpo", "--out", str(out)]
    said = CliRunner().invoke(app, words, catch_exceptions=False)
    assert said.exit_code == 0, said.output
    again = read(out)
    want = np.array(again.credit.column("advantage").fill_null(0.0).to_pylist())
    trained = np.array(again.carried.column("trained_advantage").to_pylist())
    np.testing.assert_allclose(trained, want, rtol=0, atol=1e-6)
    return again.table


@pytest.mark.parametrize("layout", ["step", "trajectory"])
def test_it_trains_on_answers_and_corrections(layout: Any, tmp_path: Path) -> None:
    """GSPO: sequence ratios, and two updates so that they are not 1."""
    sequence = {"importance_sampling_level": "sequence", "loss_type": "grpo"}
    trainer = toys.trainer(
        tmp_path,
        setup=toys.hall(horizon=1),
        recipe="ibpo",
        corrections=Corrections(count=2),
        layout=layout,
        dump_dir=tmp_path,
        args={"max_steps": 4, "gradient_accumulation_steps": 1, "steps_per_generation": 2}
        | sequence,
    )
    given = recorded(trainer)
    trainer.train()
    files = sorted(tmp_path.glob("rollouts_*.parquet"))
    assert len(files) == 2
    told: list[dict[str, Any]] = []
    for file in files:
        table = assert_credited(file)
        corrects = np.array(table.corrects.texts())
        right = table.reward >= 1
        names = np.array(table.trajectory.texts())
        wrong = names[(corrects == None) & ~right]  # noqa: E711 (elementwise)
        assert sorted(corrects[corrects != None]) == sorted([*wrong, *wrong])  # noqa: E711
        told += expected(file, layout)
    same(given, told)
    prompts = [row["prompt"] for row in told]
    assert max(map(len, prompts)) > 2 * min(map(len, prompts)), "attempts were shown"
    name = "ascribe/credit/corrections_right"
    assert len(toys.logged(trainer, name)) == 2
    assert toys.logged(trainer, "ascribe/episodes") == [8, 8]


def test_a_context_without_room_for_corrections_is_no_end(tmp_path: Path) -> None:
    trainer = toys.trainer(
        tmp_path,
        setup=toys.hall(horizon=1),
        recipe="ibpo",
        corrections=Corrections(),
        dump_dir=tmp_path,
        context=150,
    )
    trainer.train()
    (file,) = tmp_path.glob("rollouts_*.parquet")
    table = assert_credited(file)
    assert toys.logged(trainer, "ascribe/failed")[0] > 0
    assert toys.logged(trainer, "ascribe/credit/corrections") == [0]
    assert table.corrects.codes.max() == -1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"recipe": "ibpo"}, "ibpo needs corrections"),
        ({"recipe": "grpo", "corrections": Corrections()}, "grpo does not learn"),
        ({"recipe": "ibpo", "corrections": Corrections(), "max_turns": 2}, "one decision"),
    ],
)
def test_what_does_not_go_together_is_refused(
    given: dict[str, Any], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        toys.trainer(tmp_path, setup=toys.hall(), **({"max_turns": 1} | given))


@pytest.mark.slow
def test_two_processes_correct_what_one_does(tmp_path: Path) -> None:
    """Twelve episodes in three groups: the middle group is played by both processes."""
    files = []
    args = {"max_steps": 2, "optim": "sgd", "learning_rate": 0.1}
    for processes, size in ((1, 6), (2, 3)):
        folder = tmp_path / str(processes)
        wide = {"args": args | {"per_device_train_batch_size": size}}
        run(folder, processes, recipe="ibpo", corrections=2, **wide)
        files.append([read(file) for file in sorted((folder / "rollouts").glob("*.parquet"))])
    for one, two in zip(*files, strict=True):
        kept = [
            sorted(
                (name, mends, str(told["response_ids"]), round(told["trained_advantage"], 6))
                for name, mends, told in zip(
                    part.table.trajectory.texts(),
                    [text or "" for text in part.table.corrects.texts()],
                    part.carried.to_pylist(),
                    strict=True,
                )
            )
            for part in (one, two)
        ]
        assert kept[0] == kept[1]
        assert any(mends for _, mends, _, _ in kept[0])
