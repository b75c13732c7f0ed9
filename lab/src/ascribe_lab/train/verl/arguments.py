"""From a config to the overrides of verl's configuration.

Ascribe's own settings (environment, recipe, rollout) are in the run's config file, which
``data.train_files`` names. The overrides hold what verl must know.
"""

import re
from importlib.resources import files
from operator import attrgetter
from pathlib import Path
from typing import Any

from ascribe.engines.inputs import missing_columns
from ascribe.steps.plugins import is_path
from ascribe_lab.train.config import Config, ConfigError, refuse_duplicates
from ascribe_lab.train.episodes import columns_of

SEQUENCE = 1024
"""Tokens of prompt and response together by default: servers reserve memory for them, so it is not
the model's limit."""

TYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}

NAME = re.compile(r"\+{0,2}[A-Za-z_]\w*(?:[./@][A-Za-z_]\w*)*", re.ASCII)
"""What may stand before the = of an override; anything else Hydra might take for an option."""

ATTENTION = "+actor_rollout_ref.model.override_config.attn_implementation"

MODE = "trainer.v1.trainer_mode"
SEPARATE = "separate_async"
"""The trainer with GPUs of its own for rollouts."""
ROLLOUT_GPUS = "actor_rollout_ref.rollout.n_gpus_per_node"
SYNC = "trainer.v1.separate_async.parameter_sync_step"

SERVER = "actor_rollout_ref.rollout.name"
"""What samples: vllm, or sglang."""

SCHEDULES = ("constant", "cosine")
"""Schedules of the learning rate that verl's FSDP knows."""

LOSSES = {
    "row": "seq-mean-token-mean",
    "token": "token-mean",
    "sum": "seq-mean-token-sum-norm",
}
"""verl's names of the losses."""

RATIOS = {"token": "vanilla", "sequence": "gspo"}
MODE_OF_LOSS = "actor_rollout_ref.actor.policy_loss.loss_mode"
"""verl has other losses besides, which may stand under ``engine.verl``."""

SAME = {
    "actor_rollout_ref.actor.clip_ratio_high": "update.clip_high",
    "actor_rollout_ref.actor.clip_ratio_low": "update.clip_low",
    "actor_rollout_ref.actor.grad_clip": "update.max_grad_norm",
    "actor_rollout_ref.actor.kl_loss_coef": "update.kl",
    "actor_rollout_ref.actor.optim.clip_grad": "update.max_grad_norm",
    "actor_rollout_ref.actor.optim.lr": "update.learning_rate",
    "actor_rollout_ref.actor.optim.lr_scheduler_type": "update.schedule",
    "actor_rollout_ref.actor.optim.lr_warmup_steps_ratio": "update.warmup",
    "actor_rollout_ref.actor.optim.min_lr_ratio": "update.floor",
    "actor_rollout_ref.actor.ppo_epochs": "update.epochs",
    "actor_rollout_ref.rollout.n": "rollout.size",
    "actor_rollout_ref.rollout.temperature": "rollout.temperature",
    "actor_rollout_ref.rollout.top_p": "rollout.top_p",
    "data.max_response_length": "rollout.max_tokens",
    "data.train_batch_size": "rollout.groups",
    "trainer.total_training_steps": "update.iterations",
}
"""Keys of verl's that have the value of a key of ours."""

SET_BY = SAME | {
    "actor_rollout_ref.actor.loss_agg_mode": "update.loss",
    "actor_rollout_ref.actor.loss_scale_factor": "rollout.max_tokens",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": "update.rows_per_pass",
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": "update.rows_per_pass",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "update.minibatches",
    "actor_rollout_ref.actor.use_kl_loss": "update.kl",
    "actor_rollout_ref.model.path": "model.path",
    "actor_rollout_ref.rollout.dtype": "rollout.dtype",
    "actor_rollout_ref.rollout.max_model_len": "rollout.context",
    "algorithm.adv_estimator": "recipe.name",
    "trainer.default_local_dir": "output.folder",
    "trainer.resume_mode": "--resume",
    "actor_rollout_ref.rollout.val_kwargs.n": "evaluation.size",
    "trainer.save_freq": "output.save_every",
    "trainer.test_freq": "evaluation.tasks and output.save_every",
    "trainer.val_before_train": "evaluation.tasks",
}
"""All keys of verl's that follow from the config, and the keys that set them."""


def verl_overrides(config: Config, run_file: Path, model: Path, *, cpu: bool) -> dict[str, Any]:
    """Verl's keys and their values; a key with ``+`` is one that its configuration lacks.

    Args:
        config: the run.
        run_file: where the config is written down.
        model: folder of the model at the start.
        cpu: whether to run without a GPU.

    Raises:
        ConfigError: for what verl cannot do, or if ``engine.verl`` sets what a key sets.
    """
    if config.model.lora is not None and config.model.lora.agents:
        raise ConfigError(
            "model.lora.agents: on verl a team shares its weights", hint="leave it empty"
        )
    if config.model.lora is not None and not config.model.lora.alpha.is_integer():
        raise ConfigError("model.lora.alpha: verl takes a whole number")
    if config.engine.verl.get("model_engine", "dp") != "dp":
        raise ConfigError(
            f"engine.verl.model_engine: {config.engine.verl['model_engine']} is not supported, for "
            "ascribe train writes keys of FSDP: leave it out, or start verl yourself by "
            "python -m ascribe.engines.verl.main_ppo"
        )
    if config.rollout.seeded and config.engine.verl.get(SERVER, "vllm") != "vllm":
        raise ConfigError(
            f"rollout.seeded: {config.engine.verl[SERVER]} takes no seed with a request: leave it "
            "false, or sample with vllm"
        )
    if config.update.schedule not in SCHEDULES:
        raise ConfigError(f"update.schedule: on verl one of {', '.join(SCHEDULES)}")
    for name in config.engine.verl:
        if not NAME.fullmatch(name):
            raise ConfigError(f"engine.verl.{name}: is no dotted key of verl's, such as data.seed")
    refuse_duplicates("verl", config.engine.verl, SET_BY)
    if config.engine.verl.get(MODE_OF_LOSS) in RATIOS.values():
        raise ConfigError(f"engine.verl.{MODE_OF_LOSS}: is set by update.ratio")
    overrides = {name: attrgetter(key)(config) for name, key in SAME.items()}
    overrides |= _data(config, run_file) | _actor(config, model, cpu=cpu) | _trainer(config)
    overrides |= _critic(config, model, cpu=cpu)
    if config.engine.verl.get(MODE) == SEPARATE:
        overrides |= _separate(config, cpu=cpu)
    if cpu:
        ranks = config.engine.verl.get("trainer.n_gpus_per_node", 1)
        overrides |= ON_CPU | {
            ATTENTION: config.model.attention or "sdpa",
            "actor_rollout_ref.rollout.max_num_seqs": max(16, config.episodes // ranks),
            "actor_rollout_ref.rollout.max_num_batched_tokens": max(2048, _context(config)),
        }
    own = {name.lstrip("+") for name in config.engine.verl}
    kept = {name: value for name, value in overrides.items() if name.lstrip("+") not in own}
    return kept | dict(config.engine.verl)


def _context(config: Config) -> int:
    return config.rollout.context or SEQUENCE


def _data(config: Config, run_file: Path) -> dict[str, Any]:
    return {
        "data.train_files": str(run_file),
        "data.val_files": [str(run_file), "held_out"] if config.evaluation.tasks else str(run_file),
        "data.validation_shuffle": False,
        "data.custom_cls.path": "pkg://ascribe_lab.train.verl.tasks",
        "data.custom_cls.name": "TaskDataset",
        "data.shuffle": False,
        "data.dataloader_num_workers": 0,
        "data.max_prompt_length": _context(config) - config.rollout.max_tokens,
    }


def _actor(config: Config, model: Path, *, cpu: bool) -> dict[str, Any]:
    update, rollout, lora = config.update, config.rollout, config.model.lora
    saved = ["model", "optimizer", "extra"]
    overrides: dict[str, Any] = {
        "model.path": str(model),
        "actor.strategy": "fsdp2",
        "actor.policy_loss.loss_mode": RATIOS[update.ratio],
        "actor.loss_agg_mode": LOSSES[update.loss],
        "actor.loss_scale_factor": rollout.max_tokens if update.loss == "sum" else None,
        "actor.fsdp_config.model_dtype": TYPES[config.model.dtype],
        "actor.use_kl_loss": update.kl > 0,
        "actor.kl_loss_type": "low_var_kl",
        # Rows are steps, of which there are never fewer than groups: see the trainer's minibatches.
        "actor.ppo_mini_batch_size": rollout.groups,
        "actor.data_loader_seed": update.seed,
        # Rows go through the model by tokens: as many as the longest rows of a pass may have.
        "actor.use_dynamic_bsz": True,
        "actor.ppo_max_token_len_per_gpu": update.rows_per_pass * _context(config),
        "actor.ppo_micro_batch_size_per_gpu": update.rows_per_pass,
        # With adapters verl would save weights under names by which nobody finds them.
        "actor.checkpoint.save_contents": saved if lora else [*saved, "hf_model"],
        "actor.checkpoint.load_contents": saved,
        "ref.log_prob_micro_batch_size_per_gpu": update.rows_per_pass,
        "rollout.log_prob_micro_batch_size_per_gpu": update.rows_per_pass,
        "rollout.name": "vllm",
        "rollout.dtype": rollout.dtype or config.model.dtype,
        "rollout.tensor_model_parallel_size": 1,
        "rollout.max_model_len": _context(config),
        "rollout.agent.default_agent_loop": "ascribe",
        "rollout.agent.agent_loop_config_path": str(files("ascribe_lab.train.verl") / "agent.yaml"),
        "rollout.calculate_log_probs": True,
        "rollout.val_kwargs.n": config.evaluation.size,
        "rollout.val_kwargs.temperature": config.eval_temperature,
        "rollout.val_kwargs.top_p": rollout.top_p,
        "rollout.val_kwargs.do_sample": config.eval_temperature > 0,
    }
    if lora is not None:
        overrides |= {
            # vLLM on the CPU cannot replace adapters.
            "model.lora.merge": cpu,
            "model.lora_rank": lora.rank,
            "model.lora_alpha": int(lora.alpha),
            "model.target_modules": list(lora.targets) or "all-linear",
        }
    overrides = {f"actor_rollout_ref.{name}": value for name, value in overrides.items()}
    if config.model.attention is not None:
        overrides[ATTENTION] = config.model.attention
    return overrides


def _critic(config: Config, model: Path, *, cpu: bool) -> dict[str, Any]:
    """A critic that begins as the model, with a new head, if the recipe needs values."""
    if is_path(config.recipe.name):
        return {}  # imported when it is used, and refused then
    recipe = config.recipe.recipe()
    given = ("entropy", "value", "corrects", *columns_of(config.environment.name))
    if problem := missing_columns(recipe, "verl", given):
        raise ConfigError(f"recipe.name: {problem}")
    if "value" not in recipe.columns:
        return {}
    overrides = {
        "critic.enable": True,
        "critic.strategy": "fsdp2",
        "critic.model.path": str(model),
        "critic.fsdp.model_dtype": TYPES[config.model.dtype],
        "critic.ppo_micro_batch_size_per_gpu": config.update.rows_per_pass,
        "critic.ppo_max_token_len_per_gpu": config.update.rows_per_pass * _context(config),
        "+critic.ppo_infer_max_token_len_per_gpu": config.update.rows_per_pass * _context(config),
    }
    if cpu:
        overrides |= {
            "critic.model._target_": "ascribe_lab.train.verl.cpu.engine.CpuModelConfig",
            "critic.model.use_remove_padding": False,
            "critic.model.enable_gradient_checkpointing": False,
            "critic.fsdp.use_torch_compile": False,
            "+critic.model.override_config.attn_implementation": config.model.attention or "sdpa",
        }
    return overrides


def _trainer(config: Config) -> dict[str, Any]:
    output = config.output
    folder = Path(output.folder).absolute()
    return {
        "algorithm.adv_estimator": "ascribe",
        MODE: "sync",
        "trainer.total_epochs": 1,
        "trainer.resume_mode": "disable",
        "trainer.save_freq": output.save_every or -1,
        "trainer.max_actor_ckpt_to_keep": output.keep,
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.project_name": "ascribe",
        "trainer.experiment_name": folder.name,
        "trainer.logger": list(output.log_to),  # the console has a line of ours
        "trainer.val_before_train": bool(config.evaluation.tasks),
        "trainer.test_freq": output.save_every if config.evaluation.tasks else -1,
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": 1,
        "reward.num_workers": 1,
    }


def _separate(config: Config, *, cpu: bool) -> dict[str, Any]:
    """What the trainer with rollout servers of their own needs besides."""
    updates = config.engine.verl.get(SYNC, 1)
    if config.rollout.groups % updates:
        raise ConfigError(
            f"rollout.groups: {config.rollout.groups} is no multiple of {SYNC}, {updates}"
        )
    sends = "actor_rollout_ref.rollout.checkpoint_engine"
    overrides = {
        SYNC: 1,
        "actor_rollout_ref.actor.ppo_mini_batch_size": config.rollout.groups // updates,
        "actor_rollout_ref.rollout.nnodes": 1,
        ROLLOUT_GPUS: 1,
        f"{sends}.backend": "file" if cpu else "nccl",
    }
    if cpu:
        overrides[f"{sends}.custom_backend_module"] = "ascribe_lab.train.verl.cpu.weights"
        overrides["actor_rollout_ref.hybrid_engine"] = False  # no second server beside the trainer
    return overrides


ON_CPU = {
    "trainer.device": "cpu",
    "actor_rollout_ref.model.external_lib": "ascribe_lab.train.verl.cpu.workers",
    # Logical: Ray starts nothing where it counts too few, and says nothing.
    "ray_kwargs.ray_init.num_cpus": 64,
    "+ray_kwargs.ray_init.num_gpus": 64,
    "+ray_kwargs.ray_init.object_store_memory": 500_000_000,
    "+ray_kwargs.ray_init.include_dashboard": False,
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    ATTENTION: "sdpa",
    "actor_rollout_ref.actor.strategy": "fsdp2",
    "actor_rollout_ref.model.use_remove_padding": False,
    "actor_rollout_ref.model.enable_gradient_checkpointing": False,
    "actor_rollout_ref.actor.use_torch_compile": False,
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile": False,
    "actor_rollout_ref.rollout.enforce_eager": True,
    # vLLM cannot take back the draw of a seeded request whose prompt was read in part.
    "actor_rollout_ref.rollout.enable_chunked_prefill": False,
    "actor_rollout_ref.rollout.free_cache_engine": False,
    "+actor_rollout_ref.rollout.enable_sleep_mode": False,
    "actor_rollout_ref.rollout.load_format": "auto",
    "actor_rollout_ref.rollout.agent.num_workers": 1,
}
"""What every run of verl needs on a machine without a GPU."""
