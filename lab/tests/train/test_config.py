"""Configs: what is read, what is refused and in which words, and what the pages say of the keys."""

import inspect
import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from ascribe.engines.metrics import read_metrics
from ascribe.estimators import DEFAULT, recipe
from ascribe.reports.runs import read_run
from ascribe_lab.rollout import FailurePolicy
from ascribe_lab.train.config import (
    Config,
    ConfigError,
    EnvironmentSection,
    FailureSection,
    LoraSection,
    ModelSection,
    OutputSection,
    RecipeSection,
    RolloutSection,
    UpdateSection,
    known_keys,
    leaves,
    section_of,
)
from ascribe_lab.train.launch import check_config, train, verify
from ascribe_lab.train.load import load_config
from ascribe_lab.train.metrics_file import MetricsFile
from ascribe_lab.train.resolve import resolve, start_folder, write_config
from ascribe_lab.train.trl.arguments import SET_BY, grpo_arguments
from ascribe_lab.train.verl.arguments import verl_overrides

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "examples" / "train").glob("*.yaml"))
SMALLEST = {
    "model.path": "smollm2",
    "environment.name": "lab.tests.envs.toys:Corridor",
    "output.folder": "out",
}


def config(**changes: Any) -> Config:
    """The smallest config, with dotted keys changed (written with two underscores)."""
    dotted = {name.replace("__", "."): value for name, value in changes.items()}
    return load_config(None, SMALLEST | dotted).config


@pytest.fixture
def yaml() -> Any:
    return pytest.importorskip("yaml", reason="needs the extra trl")


def written(folder: Path, text: str) -> Path:
    file = folder / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def problems(*arguments: Any) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(*arguments)
    return list(caught.value.problems)


# Reading.


def test_a_file_and_changes_make_a_config_and_each_value_has_its_origin(
    tmp_path: Path, yaml: Any
) -> None:
    file = written(
        tmp_path,
        "model: {path: here}\n"
        "environment: {name: textcraft, options: {depth: 1, split: train}}\n"
        "output: {folder: out}\n"
        "update:\n  learning_rate: 1e-5\n  seed: 1\n",
    )
    changes = {"update.seed": 7, "environment.options.depth": 2, "rollout.failures.retries": 0}
    loaded = load_config(file, changes)
    assert loaded.config.update == UpdateSection(learning_rate=1e-5, seed=7)
    assert loaded.config.environment.options == {"depth": 2, "split": "train"}
    assert loaded.config.rollout.failures == FailureSection(retries=0)
    said = {".".join(keys): origin for keys, origin in loaded.origins.items()}
    assert {name: said[name] for name in said if said[name] != "default"} == {
        "model.path": "file",
        "environment.name": "file",
        "environment.options.depth": "command line",
        "environment.options.split": "file",
        "rollout.failures.retries": "command line",
        "update.learning_rate": "file",
        "update.seed": "command line",
        "output.folder": "file",
    }
    assert set(loaded.origins) == {keys for keys, _ in leaves(loaded.config)}


@pytest.mark.parametrize("text", ["1e-6", "1.0e-6", "+1E-6", "0.000001", "1_0e-7"])
def test_numbers_are_read_as_everybody_writes_them(tmp_path: Path, text: str, yaml: Any) -> None:
    file = written(tmp_path, f"update: {{learning_rate: {text}}}")
    assert load_config(file, SMALLEST).config.update.learning_rate == pytest.approx(1e-6)


def test_a_whole_number_will_do_for_a_number_and_nothing_else_will() -> None:
    assert config(update__kl=0).update.kl == 0.0
    assert type(config(update__kl=0).update.kl) is float
    for wrong in ("0.1", True, None, [0.1], float("nan"), float("inf")):
        assert problems(None, SMALLEST | {"update.kl": wrong})[0].startswith("update.kl: must be a")


def test_sections_may_be_empty_and_lora_is_one_that_may_be_null(tmp_path: Path, yaml: Any) -> None:
    file = written(tmp_path, "update:\nrollout:\n")
    assert load_config(file, SMALLEST).config == config()
    assert config().model.lora is None
    assert config(model__lora={}).model.lora == LoraSection()
    assert config(model__lora__rank=4).model.lora == LoraSection(rank=4)


def test_a_change_of_a_whole_mapping_replaces_it(tmp_path: Path, yaml: Any) -> None:
    file = written(tmp_path, "environment: {name: textcraft, options: {depth: 1}}")
    changes = {"environment.options": {"split": "eval"}, "model.path": "m", "output.folder": "o"}
    loaded = load_config(file, changes)
    assert loaded.config.environment.options == {"split": "eval"}
    assert loaded.origins["environment", "options", "split"] == "command line"


def test_under_a_free_mapping_the_rest_of_a_path_is_one_name() -> None:
    made = config(**{"engine.verl.actor.optim.lr": 1e-5})
    assert made.engine.verl == {"actor.optim.lr": 1e-5}


# Refusing.


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"update.sede": 1}, "update.sede: unknown key; did you mean seed? update has"),
        ({"optimiser.seed": 1}, "optimiser: unknown key; a config has: model,"),
        ({"update.seed.more": 1}, "update.seed: must be a valid integer; it is {'more': 1}"),
        ({"update.seed": "one"}, "update.seed: must be a valid integer; it is 'one'"),
        ({"update.seed": 1.0}, "update.seed: must be a valid integer; it is 1.0"),
        ({"update.seed": True}, "update.seed: must be a valid integer; it is True"),
        ({"update.seed": -1}, "update.seed: must be greater than or equal to 0; it is -1"),
        (
            {"update.layout": "token"},
            "update.layout: must be 'step' or 'trajectory'; it is 'token'",
        ),
        ({"update.learning_rate": 0}, "update.learning_rate: must be greater than 0; it is 0"),
        ({"update": 3}, "update: must be a dictionary"),
        (
            {"rollout.size": 1},
            "rollout.size: sbc compares the rollouts of a task, and with one of each",
        ),
        (
            {"recipe.name": "returns", "recipe.parameters.memory": 0.8},
            "rollout.tasks: must be given, since",
        ),
        ({"rollout.top_p": 0}, "rollout.top_p: must be greater than 0; it is 0"),
        (
            {"rollout.stop": "</action>"},
            "rollout.stop: must be a valid tuple; it is '",
        ),
        ({"rollout.tasks": []}, "rollout.tasks: Tuple should have at least 1 item"),
        ({"rollout.tasks": [1, "2"]}, "rollout.tasks.1: must be a valid integer; it is '2'"),
        (
            {"rollout.max_turns": 0},
            "rollout.max_turns: must be greater than or equal to 1; it is 0",
        ),
        (
            {"rollout.failures.retries": -1},
            "rollout.failures.retries: must be greater than or equal to 0; it is -1",
        ),
        (
            {"rollout.corrections": -1},
            "rollout.corrections: must be greater than or equal to 0; it is -1",
        ),
        ({"rollout.corrections": 1}, "rollout.corrections: sbc does not learn from corrections"),
        (
            {"rollout.references": -1},
            "rollout.references: must be greater than or equal to 0; it is -1",
        ),
        ({"recipe.name": "ibpo"}, "rollout.corrections: ibpo needs corrections of wrong responses"),
        (
            {"recipe.name": "ibpo", "rollout.corrections": 1, "rollout.max_turns": 2},
            "rollout.corrections: only episodes of one decision can be corrected",
        ),
        (
            {"recipe.name": "gipgo"},
            "recipe: there is no recipe 'gipgo'; did you mean gigpo?",
        ),
        ({"recipe.preset": "mine"}, "recipe: sbc has no preset 'mine'"),
        ({"recipe.parameters": {"gama": 1.0}}, "recipe: sbc has no parameter 'gama'"),
        ({"recipe.parameters": {"gamma": 2.0}}, "recipe: sbc: gamma is 2.0, but must lie"),
        (
            {"environment.options": {"a": {1, 2}}},
            "environment.options.a: input was not a valid JSON value",
        ),
        (
            {"environment.options": {1: 2}},
            "environment.options.1.[key]: must be a valid string",
        ),
        (
            {"environment.pool": "threads"},
            "environment.pool: must be 'serial' or 'processes'",
        ),
        ({"rollout.max_turns": "many"}, "rollout.max_turns: must be a valid integer; it is 'many'"),
        (
            {"model.lora": 3},
            "model.lora: must be a dictionary",
        ),
        ({"model.attention": "fast"}, "model.attention: must be 'sdpa', 'eager' or "),
        ({"recipe.parameters": {"preset": "roll"}}, "recipe: preset is no parameter: set recipe"),
        ({"recipe.parameters": {"name": "grpo"}}, "recipe: sbc has no parameter 'name'; it has"),
        ({"model.lora.rank": 0}, "model.lora.rank: must be greater than or equal to 1; it is 0"),
        ({"output.log_to": ["screen"]}, "output.log_to.0: must be 'tensorboard', "),
        ({"output.rollouts": 1}, "output.rollouts: must be a valid boolean; it is 1"),
    ],
)
def test_what_is_wrong_is_told_with_its_path_and_what_is_allowed(
    changes: dict[str, Any], said: str
) -> None:
    found = problems(None, SMALLEST | changes)
    assert len(found) == 1
    assert found[0].startswith(said)


def test_missing_keys_are_told_with_their_meaning() -> None:
    assert problems() == [
        "model.path: is missing (folder of the model (safetensors), its id on a hub, or smollm2)",
        "environment.name: is missing "
        "(name of an environment (see ascribe env list), or package.module:factory)",
        "output.folder: is missing "
        "(folder for metrics.jsonl, config.yaml, the checkpoints and the trained model)",
    ]


def test_everything_wrong_is_told_at_once(tmp_path: Path, yaml: Any) -> None:
    file = written(tmp_path, "update: {seed: x, epochs: 0}\nrollout: {size: many}\n")
    starts = [line.partition(":")[0] for line in problems(file, SMALLEST)]
    assert starts == ["rollout.size", "update.epochs", "update.seed"]
    file = written(tmp_path, "update: {seed: 1, epochs: 0}\nrollout: {size: many}\n")
    starts = [line.partition(":")[0] for line in problems(file, SMALLEST)]
    assert starts == ["rollout.size", "update.epochs"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("update: {seed: 1, seed: 2}", "the key 'seed' is there twice"),
        ("a: 1\na: 2", "the key 'a' is there twice"),
        ("update: [", "is not a YAML file"),
        ("a: !!python/object/apply:os.system [ls]", "is not a YAML file"),
        ("- 1", "must hold keys and values, not [1]"),
        ("[" * 5000, "is not a YAML file"),
    ],
)
def test_a_file_that_is_no_config(tmp_path: Path, text: str, said: str, yaml: Any) -> None:
    found = problems(written(tmp_path, text))
    assert len(found) == 1
    assert said in found[0]


def test_keys_that_are_not_text_are_unknown_keys(tmp_path: Path, yaml: Any) -> None:
    file = written(tmp_path, "1: 2\nyes: 3\nupdate: {4: 5}")
    found = problems(file, SMALLEST)
    assert found[0].startswith("update.4: unknown key; update has: iterations,")
    assert found[1].startswith("1: unknown key; a config has: model, environment,")


def test_a_file_that_is_not_text(tmp_path: Path, yaml: Any) -> None:
    file = tmp_path / "config.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    assert "is not UTF-8" in problems(file)[0]


def test_a_mapping_that_holds_itself_is_refused(tmp_path: Path, yaml: Any) -> None:
    file = written(tmp_path, "environment: {options: &a {again: *a}}")
    assert "a value holds itself" in problems(file, SMALLEST)[0]


def test_a_file_that_is_not_there(tmp_path: Path, yaml: Any) -> None:
    with pytest.raises(OSError, match="nowhere"):
        load_config(tmp_path / "nowhere.yaml")


# Writing.


def test_a_written_config_is_read_again_as_it_was(tmp_path: Path, yaml: Any) -> None:
    made = config(
        model__lora__targets=["q_proj"],
        rollout__tasks=[1, 2],
        rollout__stop=["</action>"],
        environment__options={"horizon": 9},
        update__learning_rate=1e-6,
    )
    file = tmp_path / "config.yaml"
    write_config(made, file)
    again = load_config(file)
    assert again.config == made
    assert set(again.origins.values()) == {"file"}


# What the keys come to.


def test_sections_become_what_rollouts_take() -> None:
    made = config(environment__workers=3, rollout__failures__smallest_group=2)
    setup = made.environment.setup()
    assert (setup.environment, setup.workers, setup.style) == (
        "lab.tests.envs.toys:Corridor",
        3,
        "paper",
    )
    assert made.rollout.failures.policy() == FailurePolicy(2, 2)
    assert FailureSection().policy() == FailurePolicy()


def test_defaults_are_those_of_the_gigpo_paper() -> None:
    rollout, update = RolloutSection(), UpdateSection()
    assert (rollout.groups, rollout.size, rollout.temperature, rollout.max_tokens) == (
        16,
        8,
        1,
        512,
    )
    assert (update.learning_rate, update.kl, update.clip_low, update.clip_high) == (
        1e-6,
        0.01,
        0.2,
        0.2,
    )


def test_fingerprints_reach_the_recipe() -> None:
    made = config(recipe__name="bipace_q", fingerprints__layer=-12, fingerprints__radius=0.05)
    chosen = resolve(made)
    assert chosen.layer == -12
    assert chosen.recipe.radius == 0.05  # type: ignore[attr-defined]
    twice = {"recipe.name": "bipace_q", "recipe.parameters.radius": 0.1, "fingerprints.radius": 0.1}
    with pytest.raises(ValueError, match=r"fingerprints.radius: is given, and recipe.parameters"):
        resolve(load_config(None, SMALLEST | twice).config)


SETTING = """setting:
  model: m
  blocks: 30
  layer: 22
  pooling: {pooling}
  radius: 0.003
  text_column: prompt
  chat: false
  most_tokens: 1024
  dtype: float32
"""


def test_a_calibration_gives_what_the_config_leaves_open(tmp_path: Path, yaml: Any) -> None:
    file = tmp_path / "calibration.yaml"
    file.write_text(SETTING.format(pooling="last"))
    made = config(recipe__name="bipace_q", fingerprints__calibration=str(file))
    assert resolve(made).layer == 22
    assert resolve(made).recipe.radius == 0.003  # type: ignore[attr-defined]
    other = replace(made, fingerprints=replace(made.fingerprints, layer=3))
    assert resolve(other).layer == 3
    file.write_text(SETTING.format(pooling="mean"))
    with pytest.raises(ValueError, match=r"fingerprints.calibration: .* says pooling mean"):
        resolve(made)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model__path": "nowhere"}, "model.path: there is no folder nowhere"),
        ({"model__path": "src"}, "model.path: src holds no *.safetensors"),
        ({"environment__name": "tetris"}, "environment: there is no environment 'tetris'"),
        ({"environment__name": "no.such:Thing"}, "environment: cannot import no.such:Thing"),
        ({"environment__options": {"depth": 1}}, "environment: "),
        ({"update__rows_per_pass": 3}, "update.rows_per_pass: rows_per_pass × minibatches must"),
        ({"rollout__tasks": [8]}, "rollout.tasks: there are 8 tasks, counted from 0"),
        (
            {"recipe__name": "ibpo", "rollout__corrections": 1},
            "rollout.corrections: only episodes of one decision can be corrected",
        ),
    ],
)
def test_what_is_not_there_is_told_by_the_key_that_names_it(
    changes: dict[str, Any], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (tmp_path / "model.safetensors").touch()
    with pytest.raises(ValueError, match=re.escape(said)):
        verify(config(**({"model__path": str(tmp_path)} | changes)))


def test_an_unknown_engine(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no engine 'magic'; there are: trl"):
        train(config(), "magic")


# TRL's arguments.


def test_trl_counts_in_its_own_way() -> None:
    made = config(
        rollout__groups=4,
        rollout__size=8,
        update__iterations=10,
        update__minibatches=2,
        update__epochs=3,
        update__rows_per_pass=4,
        output__save_every=5,
    )
    found = grpo_arguments(made, processes=2)
    assert found["generation_batch_size"] == 32
    parts = 32 // (2 * 4)  # of the rows of an iteration
    assert found["gradient_accumulation_steps"] == parts // 2
    assert found["max_steps"] == 10 * 2 * 3
    assert found["logging_steps"] == 6
    assert found["save_steps"] == 30
    assert found["num_iterations"] == 3


def test_episodes_that_cannot_be_split_evenly_are_refused() -> None:
    made = config(rollout__groups=3, rollout__size=4, update__rows_per_pass=8)
    with pytest.raises(ValueError, match=r"must divide the 12 episodes .* and 8 does not"):
        grpo_arguments(made)
    grpo_arguments(replace(made, update=replace(made.update, rows_per_pass=2, minibatches=3)))
    with pytest.raises(ValueError, match=r"× 5 processes must divide"):
        grpo_arguments(replace(made, update=replace(made.update, rows_per_pass=2)), processes=5)


def test_overrides_pass_through_unless_a_key_says_the_same() -> None:
    assert grpo_arguments(config(engine__trl={"loss_type": "sapo"}))["loss_type"] == "sapo"
    with pytest.raises(ValueError, match=r"engine.trl.loss_type: is set by update.loss"):
        grpo_arguments(config(engine__trl={"loss_type": "grpo"}))
    with pytest.raises(ValueError, match=r"engine.trl.beta: is set by update.kl"):
        grpo_arguments(config(engine__trl={"beta": 0.1}))


@pytest.mark.parametrize(
    ("loss", "trl", "verl"),
    [
        ("row", "grpo", "seq-mean-token-mean"),
        ("token", "dapo", "token-mean"),
        ("sum", "dr_grpo", "seq-mean-token-sum-norm"),
    ],
)
def test_both_engines_take_the_mean_of_the_same(loss: str, trl: str, verl: str) -> None:
    """GiGPO, Eq. 9: the mean over actions, which is the default."""
    made = config(update__loss=loss)
    assert config().update.loss == "row"
    assert grpo_arguments(made)["loss_type"] == trl
    overrides = verl_overrides(made, Path("run.yaml"), Path("model"), cpu=True)
    actor = "actor_rollout_ref.actor"
    assert overrides[f"{actor}.loss_agg_mode"] == verl
    assert overrides[f"{actor}.loss_scale_factor"] == (512 if loss == "sum" else None)


def test_held_out_tasks_may_be_sampled_at_another_temperature() -> None:
    """GiGPO, E.1: 1.0 in training, 0.4 in validation."""
    name = "actor_rollout_ref.rollout.val_kwargs"
    for given, wanted in (({}, (1.0, True)), ({"evaluation__temperature": 0.0}, (0.0, False))):
        made = verl_overrides(config(**given), Path("run.yaml"), Path("model"), cpu=True)
        assert (made[f"{name}.temperature"], made[f"{name}.do_sample"]) == wanted


def test_gspo_is_a_key_of_ours() -> None:
    made = config(update__ratio="sequence")
    assert grpo_arguments(made)["importance_sampling_level"] == "sequence"
    name = "actor_rollout_ref.actor.policy_loss.loss_mode"
    assert verl_overrides(made, Path("run.yaml"), Path("model"), cpu=True)[name] == "gspo"
    with pytest.raises(ConfigError, match=r"update.loss: must be row"):
        config(update__ratio="sequence", update__loss="token")


def test_minibatches_by_rows_are_verl_s() -> None:
    made = config(update__minibatch_rows=256)
    verl_overrides(made, Path("run.yaml"), Path("model"), cpu=True)
    with pytest.raises(ConfigError, match=r"same number of updates in every iteration"):
        grpo_arguments(made)
    with pytest.raises(ConfigError, match=r"update.minibatches: leave it out"):
        config(update__minibatch_rows=256, update__minibatches=2)


def test_every_argument_that_the_config_sets_is_either_refused_or_meant_to_be_changed() -> None:
    changeable = {"bf16", "fp16", "disable_tqdm", "dataloader_pin_memory", "loss_type"}
    assert set(grpo_arguments(config())) - set(SET_BY) == changeable


@pytest.mark.engine
def test_trl_knows_every_argument(tmp_path: Path) -> None:
    trl = pytest.importorskip("trl", reason="needs the extra trl")
    arguments = grpo_arguments(config(output__folder=str(tmp_path)))
    known = {each.name for each in fields(trl.GRPOConfig)}
    assert arguments.keys() | SET_BY.keys() <= known
    made = trl.GRPOConfig(**arguments)
    assert made.steps_per_generation == 128 // 8


# Metrics.


def test_metrics_are_lines_of_json_and_those_after_a_checkpoint_are_written_anew(
    tmp_path: Path,
) -> None:
    metrics = MetricsFile(tmp_path)
    for iteration in (1, 2, 3):
        metrics.add(iteration, {"reward": float("nan") if iteration == 2 else 0.5})
    with metrics.path.open("a") as file:
        file.write('{"iteration": 4, "rew')  # a run that was killed
    assert [line["reward"] for line in read_metrics(tmp_path)] == [0.5, None, 0.5]
    MetricsFile(tmp_path, done=2).add(3, {"reward": 1.0})
    lines = metrics.path.read_text().splitlines()
    assert [json.loads(line)["iteration"] for line in lines] == [1, 2, 3]
    assert json.loads(lines[-1])["reward"] == 1.0


# The pages and the examples.


def test_a_model_by_its_id_on_a_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the hub's cache on this machine; without a network nothing else can be had."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    cached = tmp_path / "models--somebody--tiny"
    snapshot = cached / "snapshots" / ("a" * 40)
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").touch()
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text("a" * 40)
    named = config(model__path="somebody/tiny")
    check_config(named, "verl")
    assert start_folder(named) == snapshot
    with pytest.raises(ConfigError, match=r"model.path: nobody/none is no folder, and could not"):
        start_folder(config(model__path="nobody/none"))


def test_every_key_has_a_meaning_and_every_section_its_own() -> None:
    found = known_keys()
    plain = [info for info in found.values() if not section_of(info)]
    assert all(info.description and info.json_schema_extra["origin"] for info in plain)
    sections = {keys[0] for keys in found}
    assert sections == {each.name for each in fields(Config)}
    assert sum(info.is_required() for info in plain) == 3


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_examples_are_configs_that_trl_can_take(file: Path, yaml: Any) -> None:
    made = load_config(file).config
    resolve(made)
    assert grpo_arguments(made)["max_steps"] >= 1


def test_sections_need_no_file() -> None:
    made = Config(
        model=ModelSection("smollm2"),
        environment=EnvironmentSection("textcraft"),
        output=OutputSection("out"),
    )
    assert (made.episodes, made.updates_per_iteration) == (128, 1)


# Files that extend others.

BASE = """\
model: {path: org/model}
environment: {name: textcraft, options: {split: train}, workers: 4}
recipe: {name: gigpo, parameters: {weight: 0.5, gamma: 0.9}}
evaluation: {options: {split: eval}, size: 2}
update: {kl: 0.02, learning_rate: 1e-5}
output: {folder: runs/base}
"""


def test_a_file_takes_over_the_values_of_another(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "base.yaml").write_text(BASE)
    (tmp_path / "run.yaml").write_text(
        "extends: shared/base.yaml\nupdate: {kl: 0}\nrecipe: {parameters: {weight: 2.0}}\n"
    )
    (tmp_path / "grpo.yaml").write_text(
        "extends: run.yaml\nrecipe: {name: grpo}\nenvironment: {name: sokoban}\n"
    )
    loaded = load_config(tmp_path / "run.yaml")
    assert loaded.config.recipe.parameters == {"weight": 2.0, "gamma": 0.9}
    assert (loaded.config.update.kl, loaded.config.update.learning_rate) == (0.0, 1e-5)
    assert loaded.origins["update", "learning_rate"] == "file"
    # Another recipe or environment begins with its own defaults.
    other = load_config(tmp_path / "grpo.yaml").config
    assert (other.recipe.name, other.recipe.parameters) == ("grpo", {})
    assert (other.environment.options, other.environment.workers) == ({}, 4)
    assert (other.evaluation.options, other.evaluation.size) == ({}, 2)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("/etc/passwd", "must name a file in its own folder"),
        ("../run.yaml", "must name a file in its own folder"),
        ("link.yaml", "must name a file in its own folder"),
        ("[a, b]", "must name a file in its own folder"),
        ("missing.yaml", "extends missing.yaml: No such file"),
        ("run.yaml", "which extends it in turn"),
        ("other.yaml", "which extends it in turn"),
    ],
)
def test_what_a_file_cannot_extend(name: str, said: str, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    folder.mkdir()
    (tmp_path / "outside.yaml").write_text(BASE)
    (folder / "link.yaml").symlink_to(tmp_path / "outside.yaml")
    (folder / "other.yaml").write_text("extends: run.yaml\n")
    (folder / "run.yaml").write_text(f"extends: {name}\n")
    with pytest.raises(ConfigError, match=said):
        load_config(folder / "run.yaml")


@pytest.mark.parametrize("held_out", ["[1]", "[]", "text", "3"])
def test_an_extended_section_that_is_none_is_told(held_out: str, tmp_path: Path) -> None:
    base = BASE.replace("{options: {split: eval}, size: 2}", held_out)
    (tmp_path / "base.yaml").write_text(base)
    (tmp_path / "run.yaml").write_text("extends: base.yaml\nenvironment: {name: sokoban}\n")
    with pytest.raises(ConfigError, match="evaluation: must be"):
        load_config(tmp_path / "run.yaml")


# The default recipe is that of the library.


def test_a_config_without_a_recipe_has_the_default() -> None:
    assert RecipeSection().name == DEFAULT
    assert RecipeSection().recipe() == recipe(DEFAULT, scale="equal")
    assert RecipeSection(name="gigpo").recipe() == recipe("gigpo")
    given = RecipeSection(parameters={"scale": "paper", "gamma": 1.0})
    assert given.recipe() == recipe(DEFAULT, gamma=1.0)


@pytest.mark.engine
def test_the_trainer_of_episodes_has_the_default() -> None:
    pytest.importorskip("trl", reason="needs the extra trl")
    from ascribe_lab.train.trl.episodes import EpisodeTrainer

    assert inspect.signature(EpisodeTrainer).parameters["recipe"].default == DEFAULT


def test_a_report_reads_the_config_of_a_run(tmp_path: Path) -> None:
    keys = {"model.path": "m", "environment.name": "e:E", "output.folder": str(tmp_path)}
    keys |= {"recipe.name": "bipace_q", "fingerprints.radius": 0.05, "evaluation.threshold": 0.7}
    write_config(load_config(None, keys).config, tmp_path / "config.yaml")
    MetricsFile(tmp_path).add(1, {"loss": 1.0})
    run = read_run(tmp_path)
    assert run is not None
    assert run.config.recipe() == recipe("bipace_q", radius=0.05)
    assert run.config.threshold == 0.7
