"""The papers' runs of ``examples/papers``, each for two iterations of a tiny model on a CPU.

``ascribe train --tiny`` with every file: recipe, loss and schedule are the paper's, counts small
and the environment makes up its own data. ``iterations`` are those that were logged. With TRL, or
with verl by ``--engine verl``; CCPO's agents with adapters run with TRL alone, and pivots not at
all. ALFWorld's files are left out where its extra is not installed. The quick case has one file
each of three papers.
"""

import argparse
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import common

from ascribe.engines.load import load_config

common.PACKAGES = ("ascribe", "torch", "transformers")

PAPERS = common.ROOT / "examples" / "papers"
QUICK = ("bipace/textcraft_7b_bipace_q", "ccpo/voting_ccpo", "ibpo/qwen3_32b_ibpo")


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--engine", default="trl", choices=("trl", "verl"))
    own, sys.argv[1:] = parser.parse_known_args()
    with common.Figures("papers") as figures, tempfile.TemporaryDirectory() as folder:
        for path in sorted(PAPERS.rglob("[a-z]*.yaml")):
            case = str(path.relative_to(PAPERS).with_suffix(""))
            if runs(path, own.engine) and (not figures.quick or case in QUICK):
                count = iterations(path, own.engine, Path(folder) / case)
                figures.emit(f"{case}, {own.engine}", "iterations", count, "count", "higher", 2.0)


def runs(path: Path, engine: str) -> bool:
    """Whether a file can be tried here."""
    config = load_config(path).config
    if config.environment.name == "alfworld" and find_spec("fast_downward") is None:
        return False
    return path.parent.name != "pivotrl" and (engine == "trl" or config.model.lora is None)


def iterations(path: Path, engine: str, folder: Path) -> int:
    """How many iterations a tiny run logged."""
    changes = [f"output.folder={folder}", *(["update.minibatch_rows=null"] * (engine == "trl"))]
    words = [word for change in changes for word in ("--set", change)]
    common.ascribe("train", "--tiny", "--engine", engine, *words, str(path))
    lines = common.read_lines(Path(f"{folder}_tiny") / "metrics.jsonl")
    return sum("ascribe/success" in line for line in lines)


if __name__ == "__main__":
    main()
