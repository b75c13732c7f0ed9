"""``train``: a run by its config, with one of the engines."""

import os
from importlib import import_module
from pathlib import Path

from ascribe.engines.metrics import NAME as METRICS
from ascribe.steps.hints import unknown
from ascribe.steps.plugins import is_path
from ascribe_lab.envs.registry import check_call
from ascribe_lab.models.loading import SMOLLM2, SMOLLM2_INSTALL, package_folder
from ascribe_lab.train.config import Config, ConfigError, Keys, leaves
from ascribe_lab.train.corrections import correction_problem
from ascribe_lab.train.load import load_config
from ascribe_lab.train.resolve import HUB_ID, Run, resolve, write_config
from ascribe_lab.train.trl.arguments import grpo_arguments
from ascribe_lab.train.verl.arguments import verl_overrides

ENGINES = {"trl": "ascribe_lab.train.trl.run", "verl": "ascribe_lab.train.verl.run"}
"""Every engine by name, and the module whose ``run`` runs a config."""

MAY_CHANGE: tuple[Keys, ...] = (
    ("output",),
    ("environment", "pool"),
    ("environment", "workers"),
    ("engine", "iteration_limit"),
)
"""Keys that may differ when a run is resumed, since they do not change the updates. So may the
number of iterations, if the learning rate is constant."""


def check_config(config: Config, engine: str = "trl") -> None:
    """Check a config as far as that is possible without running anything that it names.

    A user's own environment or recipe (``module:Name``) is neither imported nor made, and the
    engine need not be installed.

    Raises:
        ValueError: if something does not exist or does not fit, with the key that names it.
        ImportError: if it needs a package that is not installed.
    """
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    if engine == "trl":
        grpo_arguments(config, int(os.environ.get("WORLD_SIZE", "1")))
    else:
        verl_overrides(config, Path("config.yaml"), Path("model"), cpu=True)
    _check_model(config.model.path)
    try:
        check_call(config.environment.name, config.environment.options)
        check_call(config.environment.name, config.held_out.options)
        config.environment.setup().agent  # noqa: B018 (it is made here)
    except ValueError as error:
        raise _environment_error(error) from error
    if not is_path(config.recipe.name):
        resolve(config)


def _environment_error(error: ValueError) -> ConfigError:
    return ConfigError(
        f"environment: {getattr(error, 'what', error)}", hint=getattr(error, "hint", "")
    )


def verify(config: Config, engine: str = "trl") -> Run:
    """Check that the environment, the model and the recipe exist and fit together.

    The environment is made once, in a worker. The engine itself need not be installed.

    Raises:
        ValueError: if something does not exist or does not fit, with the key that names it.
        ImportError: if it needs a package that is not installed.
    """
    check_config(config, engine)
    run = resolve(config)
    try:
        count, turns = config.environment.setup().facts
    except ValueError as error:
        raise _environment_error(error) from error
    max_turns = config.rollout.max_turns or turns
    if max_turns is None:
        raise ConfigError("rollout.max_turns: the environment names no limit of its own: give one")
    if why := correction_problem(run.recipe, config.rollout.corrections, max_turns):
        raise ConfigError(f"rollout.corrections: {why}")
    if count is not None and any(task >= count for task in config.rollout.tasks or ()):
        raise ConfigError(f"rollout.tasks: there are {count} tasks, counted from 0")
    if config.evaluation.tasks:
        held_out = config.held_out.setup().facts[0]
        if held_out is not None and max(config.evaluation.tasks) >= held_out:
            raise ConfigError(f"evaluation.tasks: there are {held_out} tasks, counted from 0")
    return run


def train(config: Config, engine: str = "trl", *, resume: bool = False) -> None:
    """Train by a config; everything is written to its output folder.

    Args:
        config: the run.
        engine: a key of ``ENGINES``.
        resume: continue from the last complete checkpoint in the output folder, if there is one.

    Raises:
        ValueError: if something that the config names does not exist, if the output folder holds a
            run already, or if the run to resume had other values.
        ImportError: if a package is not installed.
        EngineError: if the engine runs in a process of its own, and that fails.
    """
    run = verify(config, engine)
    if is_first_process():
        _take_folder(config, resume=resume)
    import_module(ENGINES[engine]).run(run, resume=resume)


def is_first_process() -> bool:
    """Whether this is the only process of a run, or the first that its launcher started."""
    return os.environ.get("RANK", "0") == "0"


def _take_folder(config: Config, *, resume: bool) -> None:
    """Write the config to the output folder, unless the folder holds another run.

    A folder without metrics is of a run that was refused, or failed before its first iteration.
    """
    folder = Path(config.output.folder)
    record = folder / "config.yaml"
    if record.exists() and (folder / METRICS).exists():
        if not resume:
            raise ConfigError(f"output.folder: {folder} holds a run: resume it, or name another")
        _check_same_run(config, record)
    folder.mkdir(parents=True, exist_ok=True)
    write_config(config, record)


def _check_same_run(config: Config, record: Path) -> None:
    free = MAY_CHANGE
    if config.update.schedule == "constant":  # other schedules end with the iterations
        free = (*free, ("update", "iterations"))
    before, now = dict(leaves(load_config(record).config)), dict(leaves(config))
    changed = [
        keys
        for keys in sorted(before.keys() | now.keys())
        if before.get(keys) != now.get(keys) and not any(keys[: len(k)] == k for k in free)
    ]
    if changed:
        was = [f"{'.'.join(keys)}: was {before.get(keys)!r}" for keys in changed]
        raise ConfigError(*(f"{problem} in the run to resume" for problem in was))


def _check_model(path: str) -> None:
    if path == "smollm2":
        package_folder(SMOLLM2[0], SMOLLM2_INSTALL)
    elif not Path(path).is_dir():
        if HUB_ID.fullmatch(path) is None:
            raise ConfigError(
                f"model.path: there is no folder {path}, and it is neither smollm2 nor the id of a "
                "model on a hub, such as Qwen/Qwen2.5-0.5B-Instruct"
            )
    elif not any(Path(path).glob("*.safetensors")):
        raise ConfigError(
            f"model.path: {path} holds no *.safetensors, and other weights are not read"
        )
