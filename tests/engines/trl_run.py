"""A training run in a process of its own: ``python -m tests.engines.trl_run OPTIONS``, in JSON.

Writes the weights at the end, and a line for every iteration that begins.
"""

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

from ascribe.engines.corrections import Corrections
from ascribe.engines.trl import last_checkpoint
from tests.engines import trl_toys as toys


def main(options: dict[str, Any]) -> None:
    folder = Path(options.pop("folder"))
    slow = options.pop("slow", 0.0)
    if count := options.pop("corrections", 0):
        options |= {"corrections": Corrections(count), "setup": toys.hall(horizon=1)}
    torch.set_num_threads(1)
    make = toys.own_trainer if options.pop("own", False) else toys.trainer
    made = make(folder, dump_dir=folder / "rollouts", **options)
    log = folder / "log.txt"

    def note(word: str) -> None:
        if made.accelerator.is_main_process:
            with log.open("a") as file:
                file.write(f"{word} {made._step // made._steps_of_iteration}\n")

    generate, step = made._generate_and_score_completions, made.training_step

    def noted(inputs: Any) -> Any:
        note("play")
        time.sleep(slow)
        found = generate(inputs)
        note("learn")
        time.sleep(slow)
        return found

    def slowly(*given: Any) -> Any:
        loss = step(*given)
        time.sleep(slow)
        return loss

    made._generate_and_score_completions, made.training_step = noted, slowly
    made.train(resume_from_checkpoint=last_checkpoint(folder) is not None)
    note("done")
    weights = {
        name: weight.full_tensor() if hasattr(weight, "full_tensor") else weight
        for name, weight in made.model.state_dict().items()
    }
    if made.accelerator.is_main_process:
        torch.save(weights, folder / "weights.pt")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
