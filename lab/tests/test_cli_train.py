"""The commands ``train`` and ``warmup``."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ascribe.cli.plain import App
from ascribe.engines import crediting
from ascribe.engines.metrics import read_metrics
from ascribe_lab.cli.train import train
from ascribe_lab.cli.warmup import warmup

CORRIDOR = "lab.tests.envs.toys:Corridor"

app = App()
app.command()(train)
app.command()(warmup)


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def one_line(text: str) -> str:
    return " ".join(text.split())


def test_a_missing_config_is_told_without_pyyaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    code, said = run("train", tmp_path / "nope.yaml")
    assert code == 2
    assert "No such file" in one_line(said)
    assert "PyYAML" not in said


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A config that is fine, but for the model: an empty file of weights."""
    pytest.importorskip("yaml", reason="needs the extra trl")
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "model.safetensors").touch()
    found = tmp_path / "run.yaml"
    found.write_text(
        f"model: {{path: {tmp_path / 'base'}}}\n"
        f"environment: {{name: '{CORRIDOR}', pool: serial, style: plain}}\n"
        f"output: {{folder: {tmp_path / 'out'}}}\n"
    )
    return found


def test_a_dry_run_prints_every_value_and_who_set_it(file: Path) -> None:
    code, said = run("train", file, "--set", "update.seed=7", "--dry-run", "--json")
    assert code == 0, said
    found = json.loads(said)
    assert found["update.seed"] == {"value": 7, "set_by": "command line"}
    assert found["environment.name"] == {"value": CORRIDOR, "set_by": "file"}
    assert found["update.kl"] == {"value": 0.01, "set_by": "default"}
    assert not (file.parent / "out").exists()


def test_the_table_says_whose_a_default_is(file: Path) -> None:
    code, said = run("train", file, "--set", "update.seed=7", "--dry-run")
    assert code == 0, said
    assert "GiGPO" in said
    assert "command line" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--set", "update.sede=1"), "update.sede: unknown key"),
        (("--set", "update.seed"), "--set takes name=value"),
        (("--set", "model.path=nowhere"), "model.path: there is no folder nowhere"),
        (("--set", "environment.name=tetris"), "environment: there is no environment"),
        (("--set", "recipe.name=magic"), "recipe: there is no recipe 'magic'"),
        (
            ("--set", "model.lora.rank=8", "--set", "rollout.dtype=bfloat16"),
            "rollout.dtype: a model with adapters samples with its own weights",
        ),
        (("--engine", "magic"), "no engine 'magic' hint: there are: trl"),
    ],
)
def test_a_wrong_call_says_what_is_wrong(file: Path, arguments: tuple[str, ...], said: str) -> None:
    code, output = run("train", file, "--dry-run", *arguments)
    assert code == 2
    assert said in one_line(output)


def test_a_recipe_without_a_layer_compares_texts(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As ``ascribe credit`` does on a file without fingerprints."""
    crediting.say_once.cache_clear()
    code, output = run("train", file, "--dry-run", "--set", "recipe.name=sbc")
    assert code == 0, output
    assert caplog.messages == [
        "sbc compares states by their exact text: fingerprints.layer names the layer whose hidden "
        "states it can compare instead (ascribe calibrate finds one)"
    ]


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs the extra trl")
    code, output = run("train", tmp_path / "none.yaml")
    assert code == 2
    assert "No such file" in one_line(output)


def test_control_characters_in_a_file_do_not_reach_the_terminal(file: Path) -> None:
    file.write_text('"\\e[31m": 1\n')
    code, output = run("train", file)
    assert code == 2
    assert "\x1b[31m" not in output


def test_a_folder_with_a_run_is_taken_up_or_left_alone(file: Path) -> None:
    out = file.parent / "out"
    out.mkdir()
    (out / "config.yaml").write_text(file.read_text() + "update: {seed: 3}\n")
    (out / "metrics.jsonl").touch()
    code, output = run("train", file)
    assert code == 2
    assert "holds a run: resume it, or name another" in one_line(output)
    code, output = run("train", file, "--resume")
    assert code == 2
    assert "update.seed: was 3 in the run to resume" in one_line(output)


def test_a_run_that_did_not_begin_leaves_its_folder_free(tmp_path: Path) -> None:
    from ascribe_lab.train.launch import _take_folder
    from lab.tests.train.test_config import config

    first, other = (config(output__folder=str(tmp_path), update__seed=seed) for seed in (1, 2))
    for resume in (False, True):
        _take_folder(first, resume=resume)
        _take_folder(other, resume=resume)
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(ValueError, match="holds a run"):
        _take_folder(other, resume=False)


def test_iterations_may_change_where_the_learning_rate_is_constant(tmp_path: Path) -> None:
    from ascribe_lab.train.launch import _take_folder
    from lab.tests.train.test_config import config

    (tmp_path / "metrics.jsonl").touch()
    for schedule, may in (("constant", True), ("cosine", False)):
        given = {"output__folder": str(tmp_path), "update__schedule": schedule}
        (tmp_path / "config.yaml").unlink(missing_ok=True)
        _take_folder(config(**given, update__iterations=5), resume=True)
        longer = config(**given, update__iterations=9)
        if may:
            _take_folder(longer, resume=True)
        else:
            with pytest.raises(ValueError, match=r"update\.iterations: was 5"):
                _take_folder(longer, resume=True)


def test_a_warm_up_that_cannot_be(tmp_path: Path) -> None:
    options = ("--env", CORRIDOR, "--model", "smollm2", "--out", tmp_path / "new")
    for arguments, said in (
        (("--policy", "oracle"), "teacher: must be 'expert' or 'random'"),
        (("--noise", "1.5"), "noise: must be less than 1"),
        (("--learning-rate", "0"), "learning_rate: must be greater than 0"),
        (("--style", "loud"), "there is no style 'loud'"),
        (("--pool", "threads"), "no pool 'threads' hint: there are: serial, processes"),
    ):
        code, output = run("warmup", *options, *arguments)
        assert code == 2, output
        assert said in one_line(output)
    assert not (tmp_path / "new").exists()


# With models.


@pytest.fixture
def tiny_folder(tmp_path: Path) -> Path:
    for package in ("torch", "transformers"):
        pytest.importorskip(package, reason="needs the extra actor")
    from ascribe_lab.models.loading import save_model
    from tests.tiny_model import random_llama, train_tokenizer

    tokenizer = train_tokenizer(
        ["You are at 3. go to 7. left right task step action think"] * 4, 320
    )
    model = random_llama(len(tokenizer))
    model.config.max_position_embeddings = 2048  # its tokens are hardly more than bytes
    return save_model(model, tokenizer, tmp_path / "tiny")


@pytest.mark.engine
def test_a_warm_up_writes_a_model_and_says_how_it_went(tiny_folder: Path) -> None:
    pytest.importorskip("trl", reason="needs the extra trl")
    out = tiny_folder.parent / "warm"
    code, said = run(
        "warmup", "--env", CORRIDOR, "--model", tiny_folder, "--out", out, "--pool", "serial",
        "--episodes", 5, "--noise", 0.1, "--steps", 3, "--batch", 2, "--learning-rate", 1e-3,
        "--json",
    )  # fmt: skip
    assert code == 0, said
    found = json.loads(said[said.index("{") :])
    assert len(found["losses"]) == 3
    assert list(out.glob("*.safetensors"))


TRAINING = {
    "rollout": {"groups": 2, "size": 4, "max_turns": 2, "max_tokens": 4},
    "update": {"iterations": 2, "rows_per_pass": 4, "minibatches": 2, "learning_rate": 1e-3},
    "engine": {"trl": {"use_cpu": True, "gradient_checkpointing": False}},
}


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_a_run_of_trl_learns_writes_and_is_taken_up_again(tiny_folder: Path) -> None:
    yaml = pytest.importorskip("yaml", reason="needs the extra trl")
    pytest.importorskip("trl", reason="needs the extra trl")
    from ascribe_lab.models.loading import load_causal_lm

    out = tiny_folder.parent / "out"
    document: dict[str, Any] = TRAINING | {
        "model": {"path": str(tiny_folder)},
        "environment": {"name": CORRIDOR, "pool": "serial", "style": "plain"},
        "output": {"folder": str(out), "save_every": 1, "rollouts": True},
        "evaluation": {"tasks": [5, 6, 7], "size": 2, "options": {"horizon": 2}, "threshold": 1.0},
    }
    file = tiny_folder.parent / "run.yaml"
    file.write_text(yaml.safe_dump(document))
    code, said = run("train", file)
    assert code == 0, said
    lines = read_metrics(out)
    assert [line["iteration"] for line in lines] == [0, 1, 2]
    assert {"seconds", "loss", "ascribe/success"} <= lines[1].keys()
    assert [line["eval/ascribe/episodes"] for line in lines] == [6, 6, 6]
    won = [line["eval/ascribe/success"] for line in lines]
    assert f"Held-out tasks won: {won[0]:.1%} in iteration 0" in one_line(said)
    state = json.loads((out / "checkpoint-4" / "trainer_state.json").read_text())
    assert state["best_metric"] == max(won[1:])
    best = load_causal_lm(state["best_model_checkpoint"])[0].state_dict()
    written = load_causal_lm(out / "model")[0].state_dict()
    assert all(written[name].equal(weight) for name, weight in best.items())
    assert len(list((out / "rollouts").glob("*.parquet"))) == 2
    code, said = run("train", file, "--resume", "--set", "update.iterations=3")
    assert code == 0, said
    again = read_metrics(out)
    assert again[:3] == lines
    assert [line["iteration"] for line in again] == [0, 1, 2, 3]
    assert "eval/ascribe/success" in again[3]
    other = tiny_folder.parent / "other"
    changes = ("model.lora.rank=2", f"output.folder={other}", "update.iterations=1")
    code, said = run("train", file, *(word for each in changes for word in ("--set", each)))
    assert code == 0, said
    assert (other / "model" / "adapter_config.json").exists()
    code, said = run("train", file, "--set", f"output.folder={other}2", "--set", "engine.trl.los=1")
    assert code == 2
    assert "engine.trl.los: GRPOConfig has no such field" in one_line(said)
