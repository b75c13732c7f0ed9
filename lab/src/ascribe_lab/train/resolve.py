"""A run with its recipe and calibration resolved, as both engines take it."""

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from pydantic import TypeAdapter

from ascribe.engines.crediting import fingerprint_layer
from ascribe.estimators import Recipe
from ascribe.steps.atomic import write_file
from ascribe.steps.errors import AscribeError
from ascribe_lab.calibrate.setting import read_setting
from ascribe_lab.models import write_smollm2
from ascribe_lab.train.config import Config, ConfigError

HUB_ID = re.compile(r"[\w.-]+/[\w.-]+", re.ASCII)
"""``owner/name``, as hubs call their models."""
HUB_FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja")
"""What is fetched of a model; nothing that is run or unpickled."""

MODEL = "model"
"""Folder of the final model, inside the output folder."""


@dataclass(frozen=True)
class Run:
    """A config, with its recipe and calibration resolved."""

    config: Config
    recipe: Recipe
    layer: int | None
    """Decoder block that fingerprints are taken from; None if none are."""


class EngineError(AscribeError, RuntimeError):
    """The engine's process ended with an error, which it printed."""


def resolve(config: Config) -> Run:
    """The recipe with its radius, and the layer, from the config and its calibration."""
    layer, radius = config.fingerprints.layer, config.fingerprints.radius
    if config.fingerprints.calibration is not None:
        setting = read_setting(config.fingerprints.calibration)
        if setting.pooling != "last":
            raise ConfigError(
                "fingerprints.calibration: training takes the hidden state of the last token, and "
                f"the file says pooling {setting.pooling}: calibrate with --poolings last"
            )
        layer = setting.layer if layer is None else layer
        radius = setting.radius if radius is None else radius
    changes = {} if radius is None else {"radius": radius}
    if changes and "radius" in config.recipe.parameters:
        raise ConfigError("fingerprints.radius: is given, and recipe.parameters.radius too")
    recipe = config.recipe.recipe(**changes)
    return Run(config, recipe, fingerprint_layer(recipe, layer))


def start_folder(config: Config) -> Path:
    """The folder of the model at the start.

    SmolLM2 is unpacked into the output folder first, and a model of a hub is fetched into the hub's
    cache on this machine: its safetensors, its tokenizer and its configuration.

    Raises:
        ConfigError: if the hub has no such model, or cannot be reached.
    """
    path = config.model.path
    if path == "smollm2":
        return write_smollm2(Path(config.output.folder).absolute() / "smollm2")
    if Path(path).is_dir() or not HUB_ID.fullmatch(path):
        return Path(path).absolute()
    hub = import_module("huggingface_hub")
    try:
        return Path(hub.snapshot_download(path, allow_patterns=HUB_FILES)).absolute()
    except (OSError, ValueError, hub.errors.HfHubHTTPError) as error:
        why = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"model.path: {path} is no folder, and could not be fetched as the id of a model: "
            f"{why}",
            hint="fetch it with the hub's own tools, or name a folder",
        ) from error


def write_config(config: Config, path: Path) -> None:
    """Write every value of a config, so that ``load_config`` gives the same again."""
    document = TypeAdapter(Config).dump_python(config, mode="json")
    write_file(path, import_module("yaml").safe_dump(document, sort_keys=False, width=100))
