"""Audit recipes on SmolLM2-135M in TextCraft: ``ascribe audit --env textcraft --model FOLDER``.

The untrained model picks its actions from a list (the prompt style ``choices``), which wins a few
episodes. Everything is as in ``audit_policy.py``, with the recipes of the command and one stage; a
case is 0/0/objective/recipe. ``--work`` keeps what was played, and a run that was stopped goes on
there; ``--batches`` and ``--decisions`` say how far.
"""

import json
import tempfile
from pathlib import Path

from ascribe_lab.models import write_smollm2
from benchmarks import common

common.PACKAGES = ("ascribe-rl", "numpy", "torch", "transformers")
GAME = ("--env", "textcraft", "--set", "depth=1", "--style", "choices", "--max-turns", "4")
SIZE = ("--groups", "2", "--size", "8", "--max-tokens", "2", "--dtype", "bfloat16")
STATES = ("--states", "environment", "--radius", "0.003")
"""The inventory, not the last message; the radius of ``audit_policy.py``: the default puts all
hidden states of a task into one cluster."""


def main() -> None:
    """Run the command and print its figures."""
    more = {
        "work": {"type": Path, "help": "folder for the model and what was played"},
        "batches": {"type": int, "default": 36, "help": "batches to play"},
        "decisions": {"type": int, "default": 64, "help": "decisions to play on from"},
    }
    with common.Figures("audit_policy_smollm2", **more) as figures:
        options = figures.options
        batches, decisions, size = options.batches, options.decisions, SIZE
        if figures.quick:
            batches, decisions, size = 4, 0, ("--groups", "1", *SIZE[2:])
        with tempfile.TemporaryDirectory() as spare:
            work = options.work or Path(spare)
            model = write_smollm2(work / "model")
            run = [
                "audit",
                *GAME,
                *size,
                *STATES,
                "--model",
                str(model),
                "--work",
                str(work / "played"),
            ]
            run += ["--batches", str(batches), "--decisions", str(decisions), "--json"]
            for line in map(json.loads, common.ascribe(*run, capture=True).splitlines()):
                case = f"0/0/{line['case']}".removesuffix("/policy")
                figures.emit(case, line["metric"], line["value"], "1", line["better"])
                for end in ("low", "high") if "low" in line else ():
                    metric = f"{line['metric']}_{end}"
                    figures.emit(case, metric, line[end], "1", line["better"])


if __name__ == "__main__":
    main()
