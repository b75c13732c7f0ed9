"""From a config to what verl is told."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ascribe_lab.train.config import ConfigError
from ascribe_lab.train.launch import verify
from ascribe_lab.train.trl.arguments import grpo_arguments
from ascribe_lab.train.verl.arguments import SET_BY, verl_overrides
from ascribe_lab.train.verl.run import command
from lab.tests.train.test_config import config


def overrides(cpu: bool = False, **changes: Any) -> dict[str, Any]:
    return verl_overrides(config(**changes), Path("run.yaml"), Path("model"), cpu=cpu)


def test_what_the_config_says_verl_is_told() -> None:
    found = overrides(
        rollout__groups=16,
        rollout__size=8,
        rollout__max_tokens=512,
        rollout__context=2560,
        update__kl=0.01,
        update__clip_high=0.28,
        update__iterations=7,
        output__save_every=0,
    )
    actor = "actor_rollout_ref.actor"
    wanted = {
        "algorithm.adv_estimator": "ascribe",
        "trainer.v1.trainer_mode": "sync",
        "data.train_files": "run.yaml",
        "data.train_batch_size": 16,
        "data.max_prompt_length": 2048,
        "data.max_response_length": 512,
        "actor_rollout_ref.rollout.n": 8,
        "actor_rollout_ref.rollout.max_model_len": 2560,
        f"{actor}.use_kl_loss": True,
        f"{actor}.kl_loss_coef": 0.01,
        f"{actor}.clip_ratio_high": 0.28,
        "trainer.total_training_steps": 7,
        "trainer.save_freq": -1,
    }
    assert {name: found[name] for name in wanted} == wanted


def test_every_key_that_is_said_elsewhere_is_told() -> None:
    assert SET_BY.keys() <= overrides().keys()


def test_a_machine_without_a_gpu_is_told_more() -> None:
    found = overrides(cpu=True, engine__verl={"trainer.n_gpus_per_node": 2})
    assert found["trainer.device"] == "cpu"
    assert found["+ray_kwargs.ray_init.num_gpus"] >= 2
    assert found["trainer.n_gpus_per_node"] == 2
    assert "trainer.device" not in overrides()


def test_an_override_takes_the_place_of_what_follows_from_the_config() -> None:
    name = "actor_rollout_ref.model.override_config.attn_implementation"
    found = overrides(cpu=True, engine__verl={name: "eager"})
    assert found[name] == "eager"
    assert f"+{name}" not in found


@pytest.mark.parametrize("mark", ["", "+"])
def test_an_override_of_what_a_key_says_is_refused(mark: str) -> None:
    with pytest.raises(ConfigError, match=r"is set by update\.learning_rate"):
        overrides(engine__verl={f"{mark}actor_rollout_ref.actor.optim.lr": 1e-3})


def test_a_dry_run_needs_no_verl(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").touch()
    made = config(model__path=str(tmp_path))
    assert verify(made, "verl").recipe.name == "sbc"
    with pytest.raises(ConfigError, match="on verl one of constant, cosine"):
        verify(replace(made, update=replace(made.update, schedule="linear")), "verl")


def test_rows_are_packed_by_tokens_and_the_rows_of_a_pass_bound_them() -> None:
    found = overrides(update__rows_per_pass=4, rollout__context=512)
    assert found["actor_rollout_ref.actor.use_dynamic_bsz"] is True
    assert found["actor_rollout_ref.actor.ppo_max_token_len_per_gpu"] == 4 * 512


def test_megatron_and_seeds_for_sglang_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"model_engine: megatron is not supported.*leave it out"):
        overrides(engine__verl={"model_engine": "megatron"})
    server = {"actor_rollout_ref.rollout.name": "sglang"}
    assert overrides(engine__verl=server)["actor_rollout_ref.rollout.name"] == "sglang"
    with pytest.raises(ConfigError, match=r"rollout.seeded: sglang takes no seed"):
        overrides(engine__verl=server, rollout__seeded=True)


def test_what_verl_cannot_schedule_is_refused() -> None:
    assert overrides(update__schedule="cosine")["actor_rollout_ref.actor.optim.lr_scheduler_type"]
    with pytest.raises(ConfigError, match="on verl one of constant, cosine"):
        overrides(update__schedule="linear")


def test_the_rate_rises_first_and_a_cosine_schedule_ends_above_0() -> None:
    """IBPO, Appendix D: cosine decay to a tenth, after a warm-up over 3 % of the steps."""
    ibpo = {"update__schedule": "cosine", "update__floor": 0.1, "update__warmup": 0.03}
    found, optimiser = overrides(**ibpo), "actor_rollout_ref.actor.optim"
    assert found[f"{optimiser}.min_lr_ratio"] == 0.1
    assert found[f"{optimiser}.lr_warmup_steps_ratio"] == 0.03
    theirs = grpo_arguments(config(**ibpo))
    assert theirs["lr_scheduler_type"] == "cosine_with_min_lr"
    assert theirs["lr_scheduler_kwargs"] == {"min_lr_rate": 0.1}
    assert theirs["warmup_steps"] == 0.03, "a share, below 1"
    with pytest.raises(ConfigError, match=r"update.floor: only a cosine schedule has one"):
        config(update__floor=0.1)


def test_weights_with_adapters_are_not_saved_as_a_whole_model() -> None:
    name = "actor_rollout_ref.actor.checkpoint.save_contents"
    assert "hf_model" in overrides()[name]
    assert "hf_model" not in overrides(model__lora={"rank": 8})[name]


def test_adapters_have_a_whole_number_as_alpha() -> None:
    alpha = overrides(model__lora={"alpha": 16.0})["actor_rollout_ref.model.lora_alpha"]
    assert (alpha, type(alpha)) == (16, int)
    with pytest.raises(ConfigError, match=r"model.lora.alpha: verl takes a whole number"):
        overrides(model__lora={"alpha": 0.5})


def test_values_on_the_command_line() -> None:
    said = command({"a": True, "b": None, "c": ["x", 1], "d": "text", "e": 1e-6})[3:]
    assert said == ["a=true", "b=null", "c=[x,1]", "d=text", "e=1e-06"]


VALUES = [
    *({"a": 1, "b": {"c": "x=1"}}, ["a", "b, c", 1, None, True], 5e-7, True, None),
    *("runs, v2", "run (1)", "my run", "a=b", "x[1]", "{x}", "~/x", "a:b", "$x", "pkg://a.b"),
    *("it's", '"so"', "back\\slash", "end\\", "a\\'b"),
    *(
        "null",
        "True",
        "nan",
        "inf",
        "12",
        "-3",
        "1e-6",
        "0x1f",
        "",
        " lead",
        "trail ",
        "a\tb",
        "a\nb",
    ),
    *("#x", "!x", "%x", "@x", "*", "a;b", "a|b", "é", "<|im_end|>", "--multirun", "`id`", "/a b/c"),
]


@pytest.mark.parametrize("value", VALUES)
def test_hydra_reads_what_was_meant(value: Any) -> None:
    parser = pytest.importorskip("hydra.core.override_parser.overrides_parser", reason="needs verl")
    (read,) = parser.OverridesParser.create().parse_overrides(command({"key": value})[3:])
    assert not read.is_sweep_override()
    assert read.value() == value


@pytest.mark.parametrize(
    "name", ["--multirun", "-m", "a b", "a=b", "~data.seed", "hydra/x y", "", "1"]
)
def test_a_name_that_hydra_might_take_for_an_option_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="is no dotted key"):
        overrides(engine__verl={name: 1})


def test_a_key_inside_a_value_is_plain() -> None:
    with pytest.raises(ConfigError, match="'a:b' inside a value is not plain text"):
        command({"key": {"a:b": 1}})
