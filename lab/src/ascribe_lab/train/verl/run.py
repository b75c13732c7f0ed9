"""Runs a config with verl, as ``python -m ascribe_lab.train.verl.main_ppo`` with overrides."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ascribe.engines.metrics import NAME as METRICS
from ascribe.steps.atomic import replacing_folder, write_file
from ascribe.steps.errors import MissingPackageError
from ascribe.steps.hints import duration
from ascribe_lab.train.config import Config, ConfigError
from ascribe_lab.train.resolve import MODEL, EngineError, Run, start_folder, write_config
from ascribe_lab.train.verl import watch
from ascribe_lab.train.verl.arguments import SEQUENCE, verl_overrides

RUN = "run.yaml"
"""The config as verl's processes read it, in the output folder."""

BEST = "best"
"""Folder of the checkpoint that won most held-out tasks, in the output folder."""

LATEST = "latest_checkpointed_iteration.txt"
"""Where verl writes the number of the last checkpoint that is whole."""

CODE_KEPT = "128"
"""Of how many operations torch keeps its code on a CPU. It makes some for every width of a batch,
and would keep 1024 of them, which are gigabytes."""

CACHE = "VLLM_CPU_KVCACHE_SPACE"
"""How much memory a server on the CPU keeps for keys and values."""

SHARE = "actor_rollout_ref.rollout.gpu_memory_utilization"

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Set to 0, this variable makes a Ray that is started here listen on the loopback address alone,
on every system. Ray has no other way: it replaces a loopback address that it is told."""

PLAIN = re.compile(r"(?!(?:null|true|false|nan|inf)$)(?:/|[a-z_])[a-z0-9_./-]*", re.IGNORECASE)
"""Texts that Hydra reads as they are; all others are quoted."""


def run(run: Run, *, resume: bool) -> None:
    """Train, and write the model, or its adapters, to ``MODEL`` in the output folder.

    Raises:
        ImportError: without verl.
        EngineError: if verl ends with an error.
    """
    if find_spec("verl") is None:
        raise MissingPackageError(
            "needs verl: scripts/make_env.sh .venv-verl verl-cpu makes a place for it"
        )
    config = run.config
    folder = Path(config.output.folder).absolute()
    device = config.engine.verl.get("trainer.device")
    cpu = device == "cpu" or (device is None and not import_module("torch").cuda.is_available())
    write_config(_absolute(config), folder / RUN)
    overrides = verl_overrides(config, folder / RUN, start_folder(config), cpu=cpu)
    if resume:
        overrides["trainer.resume_mode"] = "auto"
        if (folder / "checkpoints" / LATEST).exists():
            overrides["trainer.val_before_train"] = False
    overrides["hydra.run.dir"] = str(folder / "hydra")  # Hydra's own, not of verl's configuration
    words = command(overrides)
    line = " \\\n  ".join(map(shlex.quote, words))
    write_file(folder / "command.txt", f"{line}\n")
    one_node = config.engine.verl.get("trainer.nnodes", 1) == 1
    began, limit = time.time(), config.engine.iteration_limit

    def late() -> bool:
        metrics = folder / METRICS
        last = max(began, metrics.stat().st_mtime if metrics.exists() else 0)
        return limit is not None and time.time() - last > limit

    code = watch.run(words, _environment(cpu=cpu, one_node=one_node), late)
    if code in (watch.LOST, -signal.SIGKILL):
        what = "verl was killed" if code < 0 else "verl lost a part, named above"
        if limit is not None and late():
            what = f"no iteration ended within engine.iteration_limit, {duration(limit)}"
        raise EngineError(f"{what}; {_last_checkpoint(folder)}", hint=_less_memory(config, cpu=cpu))
    if code:
        raise EngineError(f"verl ended with code {code}; its output is above")
    _publish(folder, adapters=config.model.lora is not None)


def _last_checkpoint(folder: Path) -> str:
    latest = folder / "checkpoints" / LATEST
    if not latest.exists():
        return "there is no checkpoint yet"
    number = latest.read_text().strip()
    return f"the checkpoint of iteration {number} is kept, from which --resume goes on"


def _less_memory(config: Config, *, cpu: bool) -> str:
    """What to lower if memory was short, with the values of the config."""
    verl = config.engine.verl
    values: dict[str, Any] = {
        "update.rows_per_pass": config.update.rows_per_pass,
        "rollout.context": config.rollout.context or SEQUENCE,
    }
    if cpu:
        values["engine.verl.trainer.n_gpus_per_node"] = verl.get("trainer.n_gpus_per_node", 1)
        values[f"the shell variable {CACHE}"] = os.environ.get(CACHE, "1") + " GiB"
    else:
        values[f"engine.verl.{SHARE}"] = verl.get(SHARE, 0.5)
    settings = ", ".join(f"{name} ({value})" for name, value in values.items())
    return f"if memory was short, lower {settings}"


def _absolute(config: Config) -> Config:
    """The config with paths that mean the same in every process, and the limit of turns.

    An environment is made here to ask for its limit, not in each process that plays.
    """
    turns = config.environment.setup().turns(config.rollout.max_turns)
    given = config.fingerprints.calibration
    calibration = None if given is None else str(Path(given).absolute())
    return replace(
        config,
        rollout=replace(config.rollout, max_turns=turns),
        output=replace(config.output, folder=str(Path(config.output.folder).absolute())),
        fingerprints=replace(config.fingerprints, calibration=calibration),
    )


def command(overrides: Mapping[str, Any]) -> list[str]:
    """The command line, with values as Hydra reads them."""
    words = [f"{name}={_value(value)}" for name, value in overrides.items()]
    return [sys.executable, "-m", "ascribe_lab.train.verl.main_ppo", *words]


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        if odd := [name for name in value if not PLAIN.fullmatch(name)]:  # Hydra cannot quote them
            raise ConfigError(f"engine.verl: the key {odd[0]!r} inside a value is not plain text")
        return "{" + ",".join(f"{name}:{_value(one)}" for name, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_value, value)) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    return value if PLAIN.fullmatch(value) else _quoted(value)


def _quoted(text: str) -> str:
    """In Hydra's quotes, in which backslashes are doubled before a quote and nowhere else."""
    escaped = re.sub(r"(\\*)'", r"\1\1\\'", text)
    tail = escaped[len(escaped.rstrip("\\")) :]
    return f"'{escaped}{tail}'"


def _environment(*, cpu: bool, one_node: bool) -> dict[str, str]:
    variables = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "HF_HUB_OFFLINE": "1",
        "HYDRA_FULL_ERROR": "1",
        # A folder called trl in the working directory would be taken for the package.
        "PYTHONSAFEPATH": "1",
    }
    if cpu:
        variables["VERL_PLATFORM"] = "cpu"
        variables["ONEDNN_PRIMITIVE_CACHE_CAPACITY"] = CODE_KEPT
    cluster = Path(tempfile.gettempdir(), "ray", "ray_current_cluster")
    if one_node and "RAY_ADDRESS" not in os.environ and not cluster.exists():
        variables[LOOPBACK] = "0"  # Ray is started here, rather than joined
    return variables | dict(os.environ)


def _publish(folder: Path, *, adapters: bool) -> None:
    """Write the model to where every engine writes it: the best, if held-out tasks were played.

    Otherwise that of the last checkpoint.
    """
    latest, actor = folder / "checkpoints" / LATEST, folder / BEST
    if not latest.exists():
        return
    if not actor.is_dir():
        actor = latest.parent / f"global_step_{latest.read_text().strip()}" / "actor"
    with replacing_folder(folder / MODEL) as draft:
        if not adapters:
            shutil.copytree(actor / "huggingface", draft, dirs_exist_ok=True)
            return
        copy_adapters(actor, draft)


def copy_adapters(actor: Path, folder: Path) -> None:
    """Write the adapters of a checkpoint to a folder as peft reads them, by verl's own tool.

    Raises:
        EngineError: if the tool fails.
    """
    with tempfile.TemporaryDirectory(dir=folder.parent) as merged:
        words = ["merge", "--backend", "fsdp", "--local_dir", actor, "--target_dir", merged]
        tool = [sys.executable, "-m", "verl.model_merger", *map(str, words)]
        done = subprocess.run(tool, env=_environment(cpu=True, one_node=True), check=False)
        if done.returncode:
            raise EngineError(f"verl's model_merger ended with code {done.returncode}")
        shutil.copytree(Path(merged) / "lora_adapter", folder, dirs_exist_ok=True)
