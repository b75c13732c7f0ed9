"""From a config to the arguments of TRL's ``GRPOConfig``.

What TRL counts in steps, batches and accumulations follows from four numbers: E episodes of an
iteration, P processes, r rows in one pass and m minibatches. TRL splits the rows of an iteration
into E / (P r) parts and makes an update after every E / (P r m) of them.
"""

from operator import attrgetter
from typing import Any

from ascribe.steps.errors import InputError
from ascribe_lab.train.config import Config, ConfigError, ModelSection, refuse_duplicates

SUCCESS = "eval_ascribe/success"
"""TRL's name for the share of held-out episodes won."""

SAME = {
    "beta": "update.kl",
    "epsilon": "update.clip_low",
    "epsilon_high": "update.clip_high",
    "importance_sampling_level": "update.ratio",
    "learning_rate": "update.learning_rate",
    "max_completion_length": "rollout.max_tokens",
    "max_grad_norm": "update.max_grad_norm",
    "num_generations": "rollout.size",
    "num_iterations": "update.epochs",
    "output_dir": "output.folder",
    "per_device_train_batch_size": "update.rows_per_pass",
    "save_total_limit": "output.keep",
    "seed": "update.seed",
    "temperature": "rollout.temperature",
    "top_p": "rollout.top_p",
    "warmup_steps": "update.warmup",
}
"""Fields of ``GRPOConfig`` that have the value of a key."""

LOSSES = {"row": "grpo", "token": "dapo", "sum": "dr_grpo"}
"""TRL's names of the losses; it has others besides, which may stand under ``engine.trl``."""

SET_BY = SAME | {
    "eval_on_start": "evaluation.tasks",
    "eval_steps": "output.save_every",
    "eval_strategy": "evaluation.tasks",
    "generation_batch_size": "rollout.groups and rollout.size",
    "gradient_accumulation_steps": "update.minibatches",
    "lr_scheduler_kwargs": "update.floor",
    "lr_scheduler_type": "update.schedule",
    "logging_steps": "nothing: there is one line for each iteration",
    "max_steps": "update.iterations",
    "model_init_kwargs": "model",
    "num_generations_eval": "evaluation.size",
    "num_train_epochs": "update.iterations",
    "per_device_eval_batch_size": "rollout.groups and rollout.size",
    "report_to": "output.log_to",
    "save_steps": "output.save_every",
    "save_strategy": "output.save_every",
    "steps_per_generation": "update.minibatches",
}
"""All fields that follow from the config, and the keys that set them."""


def grpo_arguments(config: Config, processes: int = 1) -> dict[str, Any]:
    """The arguments of ``GRPOConfig``.

    Args:
        config: the run.
        processes: how many train together.

    Raises:
        ConfigError: if the episodes cannot be split evenly, or ``engine.trl`` sets what a key sets.
    """
    update, output = config.update, config.output
    if config.model.lora is not None and config.rollout.dtype not in {None, config.model.dtype}:
        raise ConfigError("rollout.dtype: a model with adapters samples with its own weights")
    refuse_duplicates("trl", config.engine.trl, SET_BY)
    if config.engine.trl.get("loss_type") in LOSSES.values():
        raise ConfigError("engine.trl.loss_type: is set by update.loss")
    if config.rollout.size == 1 and not config.recipe.parameters.get("memory"):
        raise ConfigError("rollout.size: TRL has no critic: give the recipe a memory, or use verl")
    if update.minibatch_rows is not None:
        raise ConfigError(
            "update.minibatch_rows: TRL makes the same number of updates in every iteration: give "
            "update.minibatches, or train with verl"
        )
    per_iteration = config.updates_per_iteration
    return {
        **{field: attrgetter(key)(config) for field, key in SAME.items()},
        "model_init_kwargs": model_arguments(config.model),
        "loss_type": LOSSES[update.loss],
        "bf16": config.model.dtype == "bfloat16",
        "fp16": config.model.dtype == "float16",
        "generation_batch_size": config.episodes,
        "max_steps": update.iterations * per_iteration,
        "gradient_accumulation_steps": _parts(config, processes) // update.minibatches,
        "logging_steps": per_iteration,
        "lr_scheduler_type": "cosine_with_min_lr" if update.floor else update.schedule,
        "lr_scheduler_kwargs": {"min_lr_rate": update.floor} if update.floor else {},
        "report_to": list(output.log_to) or "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,  # the loader holds numbers of tasks
        "save_strategy": "steps" if output.save_every else "no",
        "save_steps": max(1, output.save_every) * per_iteration,
        **(_evaluation(config, processes) if config.evaluation.tasks else {}),
        **config.engine.trl,
    }


def _evaluation(config: Config, processes: int) -> dict[str, Any]:
    """As many episodes at once as in training; the best checkpoint is loaded at the end."""
    size = config.evaluation.size
    return {
        "eval_strategy": "steps",
        "eval_on_start": True,
        "eval_steps": config.output.save_every * config.updates_per_iteration,
        "num_generations_eval": size,
        "per_device_eval_batch_size": max(1, config.episodes // processes // size) * size,
        "metric_for_best_model": SUCCESS,
        "greater_is_better": True,
        # transformers loads one adapter, not those of a team.
        "load_best_model_at_end": config.model.lora is None or not config.model.lora.agents,
    }


def model_arguments(model: ModelSection) -> dict[str, Any]:
    """How the model and its reference are loaded: from a folder, without running code in it."""
    arguments: dict[str, Any] = {
        "dtype": model.dtype,
        "use_safetensors": True,
        "local_files_only": True,
        "trust_remote_code": False,
    }
    if model.attention is not None:
        arguments["attn_implementation"] = model.attention
    return arguments


def _parts(config: Config, processes: int) -> int:
    """E / (P r): the parts of an iteration's rows."""
    at_once = processes * config.update.rows_per_pass
    if config.episodes % (at_once * config.update.minibatches):
        each = "" if processes == 1 else f" × {processes} processes"
        raise ConfigError(
            f"update.rows_per_pass: rows_per_pass × minibatches{each} must divide the "
            f"{config.episodes} episodes of an iteration, and "
            f"{at_once * config.update.minibatches} does not"
        )
    return config.episodes // at_once


WAITING = "processes sample different numbers of times, and would wait for each other for ever"

SPLIT = {"entropy_coef": 0, "use_adaptive_entropy": False, "top_entropy_quantile": 1}
"""Fields whose effect would depend on how rows are split over passes, with the one value taken."""

SAMPLING = {
    "top_k": 0,
    "min_p": None,
    "repetition_penalty": 1,
    "generation_kwargs": None,
    "use_transformers_continuous_batching": False,
}
"""Fields of TRL's sampling that episodes do not use, with the one value taken."""


def refuse_unsupported(args: Any) -> None:
    """Refuse fields of a ``GRPOConfig`` that would have no effect, or give a wrong update.

    Raises:
        ValueError: with the field, and what to set.
    """
    if args.max_steps <= 0:
        raise InputError("give max_steps: tasks are drawn without end, so epochs end nowhere")
    split = "rows are split over passes, and the loss would depend on how"
    if args.loss_type == "bnpo":
        raise InputError(f"loss_type='bnpo': {split}: use loss_type='dapo'")
    if args.mask_truncated_completions:
        raise InputError("mask_truncated_completions: use a recipe with truncation='exclude'")
    common = args.vllm_mode == "server" or args.vllm_tensor_parallel_size > 1
    if args.use_vllm and common and args.world_size > 1:
        raise InputError(f"{WAITING}: give each process a vLLM of its own (vllm_mode='colocate')")
    sampling = "responses are drawn with temperature and top_p alone"
    for fields, why in ((SPLIT, split), (SAMPLING, sampling)):
        for name, value in fields.items():
            if getattr(args, name) not in (value, None, {}):
                what = f"leave {name} unset" if value is None else f"leave {name} at {value}"
                raise InputError(f"{why}: {what}")
