"""Point 11: a command that only looks at a config runs nothing that the config names.

Before, ``train --dry-run`` imported and called whatever ``environment.name`` said. Also here: what
a config passes on is quoted, and a wrong key is a message.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ascribe.cli import app
from ascribe_lab.train.verl.run import command

pytest.importorskip("yaml", reason="needs the extra trl")


def dry_run(
    tmp_path: Path, environment: dict[str, Any], *words: str, engine: str = "trl"
) -> Result:
    (tmp_path / "base").mkdir(exist_ok=True)
    (tmp_path / "base" / "model.safetensors").touch()
    document = {
        "model": {"path": str(tmp_path / "base")},
        "environment": environment,
        "output": {"folder": str(tmp_path / "out")},
        "rollout": {"max_turns": 3},
    }
    file = tmp_path / "run.yaml"
    file.write_text(json.dumps(document))
    return CliRunner().invoke(app, ["train", str(file), "--dry-run", "--engine", engine, *words])


@pytest.mark.parametrize("engine", ["trl", "verl"])
@pytest.mark.parametrize("pool", ["processes", "serial"])
def test_a_dry_run_calls_nothing(tmp_path: Path, engine: str, pool: str) -> None:
    made = tmp_path / "made"
    options = {"args": ["touch", str(made)]}
    environment = {"name": "subprocess:call", "options": options, "pool": pool}
    done = dry_run(tmp_path, environment, engine=engine)
    assert done.exit_code == 0, done.output
    assert not made.exists()


def test_a_dry_run_imports_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tmp_path / "made"
    (tmp_path / "evil_environment.py").write_text(f"open({str(made)!r}, 'w')")
    monkeypatch.syspath_prepend(tmp_path)
    done = dry_run(tmp_path, {"name": "evil_environment:Thing", "pool": "serial"})
    assert done.exit_code == 0, done.output
    assert not made.exists()
    assert "evil_environment" not in sys.modules


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"name": "tetris"}, "environment: there is no environment 'tetris'"),
        ({"name": "os.system('id'):x"}, "environment: there is no environment"),
        (
            {"name": "sokoban", "options": {"boxen": 1}},
            "sokoban has no option 'boxen' hint: did you mean boxes? it takes: size, boxes",
        ),
    ],
)
def test_a_dry_run_still_finds_what_is_wrong(
    tmp_path: Path, environment: dict[str, Any], message: str
) -> None:
    done = dry_run(tmp_path, environment)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--set", "recipe.parameters.preset=roll"), "recipe: preset is no parameter"),
        (("--set", "recipe.parameters.name=grpo"), "recipe: sbc has no parameter 'name'"),
    ],
)
def test_a_name_of_ours_among_the_parameters_is_a_message(
    tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    done = dry_run(tmp_path, {"name": "sokoban"}, *words)
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


@pytest.mark.parametrize("setting", ["preset=roll", "name=grpo"])
def test_the_same_for_a_recipe_on_the_command_line(tmp_path: Path, setting: str) -> None:
    row = {"group": "a", "trajectory": "b", "step": 0, "state": "s", "action": "a", "reward": 1.0}
    file = tmp_path / "r.jsonl"
    file.write_text(f"{json.dumps(row)}\n")
    words = ["--out", str(tmp_path / "c.jsonl"), "--set", setting, "--recipe", "gigpo"]
    done = CliRunner().invoke(app, ["credit", str(file), *words])
    assert done.exit_code == 2
    assert "--preset" in done.output or "has no parameter 'name'" in done.output


@pytest.mark.parametrize("setting", ["name=x", "self=x"])
def test_the_same_for_an_option_of_an_environment(tmp_path: Path, setting: str) -> None:
    arguments = ["--env", "ezpoints", "--model", "random", "--set", setting, "--pool", "serial"]
    out = ["--out", str(tmp_path / "r.jsonl")]
    done = CliRunner().invoke(app, ["rollout", *arguments, *out])
    assert done.exit_code == 2
    assert "make()" not in done.output


@pytest.mark.parametrize(
    "text", ["null", "true", "12", "1e-6", "$x", "my run", "#a", "!a", "", "@a"]
)
def test_text_stays_text_on_verls_command_line(text: str) -> None:
    """Unquoted, Hydra reads the first four as other types."""
    assert command({"key": text})[3:] == [f"key='{text}'"]
