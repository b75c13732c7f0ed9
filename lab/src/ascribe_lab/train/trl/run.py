"""Runs a config with TRL."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from accelerate import PartialState
from transformers import PrinterCallback, TrainerCallback
from transformers.utils.logging import disable_progress_bar
from trl import GRPOConfig

from ascribe.engines.trl import PREFIX, last_checkpoint
from ascribe.steps.errors import MissingPackageError
from ascribe.steps.hints import nearest
from ascribe_lab.extras import install
from ascribe_lab.models import load_chat
from ascribe_lab.train.config import ConfigError, LoraSection
from ascribe_lab.train.metrics_file import MetricsFile
from ascribe_lab.train.resolve import MODEL, Run, start_folder
from ascribe_lab.train.trl.arguments import grpo_arguments
from ascribe_lab.train.trl.episodes import EpisodeTrainer


def run(run: Run, *, resume: bool) -> None:
    """Train, and write the model to ``MODEL`` in the output folder."""
    config = run.config
    folder = Path(config.output.folder)
    arguments = grpo_arguments(config, PartialState().num_processes)
    known = [each.name for each in fields(GRPOConfig)]
    for name in config.engine.trl:
        if name not in known:
            hint = nearest(name, known)
            raise ConfigError(f"engine.trl.{name}: GRPOConfig has no such field", hint=hint)
    checkpoint = last_checkpoint(folder) if resume else None
    if checkpoint is not None:
        arguments["eval_on_start"] = False
    steps = 0 if checkpoint is None else int(checkpoint.name.removeprefix(PREFIX))
    with PartialState().main_process_first():
        model = start_folder(config)
    disable_progress_bar()  # of loading and saving; a model of a hub is here by now
    rollout, output = config.rollout, config.output
    # GRPOConfig refuses one rollout of a task, but a config that was made may have it.
    several = {"num_generations": config.episodes} if rollout.size == 1 else {}
    args = GRPOConfig(**arguments | several)
    args.num_generations = rollout.size
    trainer = EpisodeTrainer(
        str(model),
        args,
        setup=config.environment.setup(),
        eval_setup=config.held_out.setup() if config.evaluation.options else None,
        eval_tasks=config.evaluation.tasks,
        recipe=run.recipe,
        max_turns=rollout.max_turns,
        episode_limit=rollout.episode_limit,
        layout=config.update.layout,
        tasks=rollout.tasks,
        failures=rollout.failures.policy(),
        states=rollout.states,
        fingerprints=run.layer,
        stop=rollout.stop,
        context=rollout.context,
        eval_temperature=config.evaluation.temperature,
        sampling_dtype=None if rollout.dtype == config.model.dtype else rollout.dtype,
        dump_dir=folder / "rollouts" if output.rollouts else None,
        processing_class=load_chat(model).tokenizer,
        peft_config=None if config.model.lora is None else _adapters(config.model.lora),
        corrections=rollout.correcting(),
        agents=() if config.model.lora is None else config.model.lora.agents,
    )
    if trainer.accelerator.is_main_process:
        metrics = MetricsFile(folder, steps // config.updates_per_iteration)
        trainer.add_callback(WriteMetrics(metrics, config.updates_per_iteration))
        trainer.remove_callback(PrinterCallback)  # it prints dicts
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    trainer.save_model(str(folder / MODEL))


class WriteMetrics(TrainerCallback):  # type: ignore[misc]
    """Writes a line for each iteration, and prints one for people."""

    def __init__(self, metrics: MetricsFile, updates: int) -> None:
        self.metrics, self.updates = metrics, updates

    def on_log(
        self,
        args: Any,  # noqa: ARG002 (the engine passes it)
        state: Any,
        control: Any,  # noqa: ARG002
        logs: dict[str, Any],
        **others: Any,  # noqa: ARG002
    ) -> None:
        """Called by the engine with what it logs."""
        if "train_runtime" in logs:  # the sum of the run, at its end
            return
        values = {
            name.replace("eval_", "eval/", 1) if name.startswith("eval_") else name: value
            for name, value in logs.items()
            if name != "epoch"
        }
        iteration, iterations = (n // self.updates for n in (state.global_step, state.max_steps))
        self.metrics.log(iteration, iterations, values)


def _adapters(lora: LoraSection) -> Any:
    try:
        from peft import LoraConfig
    except ImportError as error:
        raise MissingPackageError("model.lora needs peft", hint=f"{install('trl')}") from error
    targets = list(lora.targets) or "all-linear"
    return LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules=targets, task_type="CAUSAL_LM"
    )
