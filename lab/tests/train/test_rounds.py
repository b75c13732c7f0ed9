"""Rounds: pivots are profiled, selected and trained on, and then from the beginning."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from ascribe.cli import app
from ascribe_lab.json_journal import open_journal
from ascribe_lab.pivots import ProfileTask, read_turns, write_turns
from ascribe_lab.pivots.profile import Profiled, ProfileResponse
from ascribe_lab.train import rounds as module
from ascribe_lab.train.config import Config, ConfigError
from ascribe_lab.train.load import load_config
from ascribe_lab.train.rounds import Round, Rounds, train_in_rounds
from lab.tests.pivots.made import a_turn

pytest.importorskip("yaml", reason="needs the extra trl")

EXAMPLE = Path(__file__).parents[3] / "examples" / "train" / "pivots_textcraft.yaml"
WORDS = ("one", "two", "three", "four", "five", "six")


@pytest.fixture
def changes(tmp_path: Path) -> dict[str, Any]:
    """What makes the example a run on six turns; its model is an empty file of weights."""
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "model.safetensors").touch()
    write_turns(tmp_path / "candidates.jsonl", [a_turn(f"say {word}", word) for word in WORDS])
    return {
        "model.path": str(tmp_path / "base"),
        "environment.options.file": str(tmp_path / "candidates.jsonl"),
        "environment.options.verifier": "normalised",
        "environment.pool": "serial",
        "output.folder": str(tmp_path / "run"),
        "update.iterations": 5,
    }


class Engine:
    """Stands for profiling and training, and writes down what it was asked for.

    In round N the model answers rightly, every second time, the turns from number N on; those
    before them always.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.profiled: list[str] = []
        self.trained: list[tuple[int, tuple[str, ...]]] = []
        self.fail = ""
        monkeypatch.setattr(module, "profile_in_worker", self.profile)
        monkeypatch.setattr(module, "train", self.train)

    def profile(self, order: ProfileTask, **_: Any) -> Profiled:
        self.profiled.append(Path(order.model).name)
        if self.fail == "profile":
            raise KeyboardInterrupt
        number = int(order.reference.model.removeprefix("round "))
        asked = []
        for one in read_turns(order.candidates).candidates:
            hard = WORDS.index(one.messages[0]["content"]) >= number
            for k in range(order.k):
                text = "nothing" if hard and k % 2 else one.action
                who = (order.reference.model, order.reference.label)
                asked.append(ProfileResponse(one.id, k, 0, *who, text, "stop", 1, 1))
        with open_journal(order.journal) as append:
            append([answer.__dict__ for answer in asked])
        return Profiled(len(asked), 0, len(asked), 0, 0, 0.0)

    def train(self, config: Config, engine: str, *, resume: bool) -> None:
        assert (engine, resume) == ("trl", True)
        if self.fail == "train":
            raise KeyboardInterrupt
        options = config.environment.options
        turns = read_turns(options["file"]).candidates
        said = tuple(one.messages[0]["content"] for one in turns)
        self.trained.append((config.update.iterations, said))
        Path(config.output.folder, "model").mkdir(exist_ok=True)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    return Engine(monkeypatch)


def run(changes: dict[str, Any], rounds: Rounds, **options: Any) -> list[Round]:
    return train_in_rounds(load_config(EXAMPLE, changes).config, "trl", rounds, **options)


def test_every_round_trains_on_the_pivots_of_the_model_as_it_is(
    changes: dict[str, Any], engine: Engine
) -> None:
    done = run(changes, Rounds(2, k=4))
    assert [one.iterations for one in done] == [2, 4, 5]
    assert engine.trained == [(2, WORDS), (4, WORDS[1:]), (5, WORDS[2:])]
    assert engine.profiled == ["base", "model", "model"]
    assert [one.kept for one in done] == [6, 5, 4]
    assert [one.left_out for one in done] == [{}, {"all_right": 1}, {"all_right": 2}]
    assert [one.answers for one in done] == [24, 24, 24]
    assert done[1].mean == pytest.approx((1 + 5 * 0.5) / 6)


def test_a_round_that_is_done_is_not_done_again(changes: dict[str, Any], engine: Engine) -> None:
    engine.fail = "train"
    with pytest.raises(KeyboardInterrupt):
        run(changes, Rounds(2, k=4))
    with pytest.raises(ValueError, match="holds rounds: resume"):
        run(changes, Rounds(2, k=4))
    with pytest.raises(ValueError, match="the rounds to resume had other settings"):
        run(changes, Rounds(3, k=4), resume=True)
    engine.fail = ""
    short = changes | {"update.iterations": 3}
    first = run(short, Rounds(2, k=4), resume=True)
    before = len(engine.profiled), len(engine.trained)
    assert run(short, Rounds(2, k=4), resume=True) == first
    assert (len(engine.profiled), len(engine.trained)) == before
    # More iterations: what is done stays, and what comes after it is new.
    assert run(changes, Rounds(2, k=4), resume=True)[:1] == first[:1]


def test_a_sample_is_drawn_anew(changes: dict[str, Any], engine: Engine) -> None:
    done = run(changes | {"update.iterations": 6}, Rounds(1, k=2, sample=3))
    assert {one.candidates for one in done} == {3}
    drawn = [
        tuple(one.id for one in read_turns(file).candidates)
        for file in sorted(Path(changes["output.folder"]).glob("rounds/*/candidates.jsonl"))
    ]
    assert len(set(drawn)) > 2
    assert len(engine.profiled) == 6


def test_it_ends_when_no_turn_is_a_pivot(changes: dict[str, Any], engine: Engine) -> None:
    done = run(changes | {"update.iterations": 9}, Rounds(1, k=4))
    assert [one.kept for one in done] == [6, 5, 4, 3, 2, 1, 0]
    assert done[-1].iterations == done[-2].iterations == 6
    assert len(engine.trained) == 6


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"environment.name": "sokoban", "environment.options": {}}, "environment.name"),
        ({"update.schedule": "linear"}, "update.schedule"),
        ({"output.save_every": 0}, "output.save_every"),
        ({"model.lora.rank": 4}, "model.lora"),
    ],
)
def test_what_cannot_be_done_in_rounds(
    changes: dict[str, Any], changed: dict[str, Any], said: str
) -> None:
    given = {name: value for name, value in changes.items() if name not in changed}
    if "environment.options" in changed:
        given = {n: v for n, v in given.items() if not n.startswith("environment.options.")}
    with pytest.raises(ConfigError, match=said):
        run(given | changed, Rounds(1))


def test_numbers_that_cannot_be() -> None:
    for wrong in ({"every": 0}, {"every": 1, "k": 1}, {"every": 1, "sample": 0}):
        with pytest.raises(ValueError, match="greater than or equal to"):
            Rounds(**wrong)


# The command.


def command(changes: dict[str, Any], *words: str) -> Result:
    pairs = [f"{name}={json.dumps(value)}" for name, value in changes.items()]
    given = [word for pair in pairs for word in ("--set", pair)]
    line = ["pivots", "train", str(EXAMPLE), *given, *words]
    return CliRunner().invoke(app, line, env={"COLUMNS": "200"})


@pytest.mark.parametrize("engine", ["trl", "verl"])
@pytest.mark.parametrize("words", [(), ("--every", "2", "--sample", "3")])
def test_the_example_is_a_run_on_both_engines(
    engine: str, words: tuple[str, ...], changes: dict[str, Any]
) -> None:
    found = command(changes, "--engine", engine, "--dry-run", "--json", *words)
    assert found.exit_code == 0, found.output
    said = json.loads(found.stdout)
    assert said["recipe.name"] == {"value": "grpo", "set_by": "file"}
    assert said["update.kl"] == {"value": 0.01, "set_by": "file"}
    assert not Path(changes["output.folder"]).exists()


def test_the_verifier_of_the_example_plays_textcraft(changes: dict[str, Any]) -> None:
    pytest.importorskip("minecraft_data", reason="needs the extra textcraft")
    del changes["environment.options.verifier"]
    found = command(changes, "--dry-run")
    assert found.exit_code == 0, found.output


def test_the_command_says_what_each_round_did(changes: dict[str, Any], engine: Engine) -> None:
    found = command(changes, "--every", "2", "-k", "4")
    assert found.exit_code == 0, found.output
    assert "Round 1: mean reward 0.583, kept 5 of 6 turns (1 all_right); 4" in found.stderr
    assert "Wrote" in found.stderr
    assert len(engine.trained) == 3


def test_no_pivots_at_the_start_is_exit_code_one(
    changes: dict[str, Any], engine: Engine, tmp_path: Path
) -> None:
    write_turns(tmp_path / "none.jsonl", [a_turn("say one", "one")])
    only = changes | {"environment.options.file": str(tmp_path / "none.jsonl")}
    strict = command(only | {"environment.options.verifier": "exact"}, "--every", "1", "-k", "2",
                     "--threshold", "0.5")  # fmt: skip
    assert strict.exit_code == 1
    assert "no turn is a pivot" in strict.stderr
    assert not engine.trained


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--set", "environment.name=sokoban"), "environment.name: must be pivots"),
        (("--every", "2", "--set", "update.schedule=cosine"), "update.schedule: must be constant"),
        (("--engine", "magic"), "no engine 'magic'"),
    ],
)
def test_wrong_calls(changes: dict[str, Any], words: tuple[str, ...], said: str) -> None:
    found = command(changes, "--dry-run", *words)
    assert found.exit_code == 2
    assert said in " ".join(found.stderr.split())
