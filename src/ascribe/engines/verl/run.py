"""Runs a config with verl, as ``python -m verl.trainer.main_ppo`` with overrides."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ascribe.engines.config import Config
from ascribe.engines.resolve import MODEL, EngineError, Run, start_folder, write_config
from ascribe.engines.verl.arguments import verl_overrides
from ascribe.steps.atomic import replacing_folder, write_file

RUN = "run.yaml"
"""The config as verl's processes read it, in the output folder."""

LATEST = "latest_checkpointed_iteration.txt"
"""Where verl writes the number of the last checkpoint that is whole."""

CODE_KEPT = "128"
"""Of how many operations torch keeps its code on a CPU. It makes some for every width of a batch,
and would keep 1024 of them, which are gigabytes."""


def run(run: Run, *, resume: bool) -> None:
    """Train, and write the model to ``MODEL`` in the output folder, unless it has adapters.

    Raises:
        ImportError: without verl.
        EngineError: if verl ends with an error.
    """
    if find_spec("verl") is None:
        raise ImportError(
            "needs verl: scripts/make_env.sh .venv-verl verl-cpu makes a place for it"
        )
    config = run.config
    folder = Path(config.output.folder).absolute()
    cpu = _without_gpu(config)
    write_config(_absolute(config), folder / RUN)
    overrides = verl_overrides(config, folder / RUN, start_folder(config), cpu=cpu)
    if resume:
        overrides["trainer.resume_mode"] = "auto"
    overrides["hydra.run.dir"] = str(folder / "hydra")  # Hydra's own, not of verl's configuration
    words = command(overrides)
    said = " \\\n  ".join(map(shlex.quote, words))
    write_file(folder / "command.txt", f"{said}\n")
    done = subprocess.run(words, env=_environment(cpu), check=False)
    if done.returncode:
        raise EngineError(f"verl ended with code {done.returncode}; its output is above")
    if config.model.lora is None:
        _publish(folder)


def _absolute(config: Config) -> Config:
    """The config with paths that mean the same in every process."""
    given = config.fingerprints.calibration
    calibration = None if given is None else str(Path(given).absolute())
    return replace(
        config,
        output=replace(config.output, folder=str(Path(config.output.folder).absolute())),
        fingerprints=replace(config.fingerprints, calibration=calibration),
    )


def command(overrides: Mapping[str, Any]) -> list[str]:
    """The command line, with values as Hydra reads them."""
    said = [f"{name}={_value(value)}" for name, value in overrides.items()]
    return [sys.executable, "-m", "verl.trainer.main_ppo", *said]


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{name}:{_value(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_value, value)) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    # Quotes would make a text of what is to be a number, so only where they are needed.
    return _quoted(value) if re.search(r"[,=()\[\]{}'\"~:\\]", value) else value


def _quoted(text: str) -> str:
    """In Hydra's quotes, in which backslashes are doubled before a quote and nowhere else."""
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)
    tail = escaped[len(escaped.rstrip("\\")) :]
    return f"'{escaped}{tail}'"


def _without_gpu(config: Config) -> bool:
    device = config.engine.verl.get("trainer.device")
    if device is not None:
        return bool(device == "cpu")
    import torch

    return not torch.cuda.is_available()


def _environment(cpu: bool) -> dict[str, str]:
    found = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
        "HYDRA_FULL_ERROR": "1",
        # A folder called trl in the working directory would be taken for the package.
        "PYTHONSAFEPATH": "1",
    }
    if cpu:
        found["VERL_PLATFORM"] = "cpu"
        found["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = CODE_KEPT
    return found | dict(os.environ)


def _publish(folder: Path) -> None:
    """Copy the last checkpoint's model, with its tokenizer, to where every engine writes it."""
    latest = folder / "checkpoints" / LATEST
    if not latest.exists():
        return
    step = folder / "checkpoints" / f"global_step_{latest.read_text().strip()}"
    with replacing_folder(folder / MODEL) as draft:
        shutil.copytree(step / "actor" / "huggingface", draft, dirs_exist_ok=True)
