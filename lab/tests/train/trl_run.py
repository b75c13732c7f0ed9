"""Training runs in processes of their own, forked from one process that has loaded TRL.

A run writes its weights at the end, and a line to ``log.txt`` for every iteration that begins.
"""

import multiprocessing
import os
import signal
import socket
import time
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM  # noqa: F401 (loaded before processes are forked)

from ascribe.engines.trl import last_checkpoint
from ascribe_lab.train.corrections import Corrections
from ascribe_lab.train.trl.episodes import EpisodeTrainer  # noqa: F401 (likewise)
from lab.tests.train import trl_games as toys

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload([__name__])


def start(options: dict[str, Any], processes: int = 1) -> list[BaseProcess]:
    """Start a run in so many processes, as torchrun does."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    runs = [
        FORKS.Process(target=_work, args=(options, n, processes, port)) for n in range(processes)
    ]
    for run in runs:
        run.start()
    return runs


def run(folder: Path, processes: int, **options: Any) -> None:
    """Run to the end: one process is this one."""
    folder.mkdir(exist_ok=True)
    options |= {"folder": str(folder)}
    if processes == 1:
        main(options)
        return
    runs = start(options, processes)
    for one in runs:
        one.join(timeout=300)
    told = "".join(path.read_text()[-3000:] for path in folder.glob("stderr_*.txt"))
    assert [one.exitcode for one in runs] == [0] * processes, told


def _work(options: dict[str, Any], rank: int, processes: int, port: int) -> None:
    with (Path(options["folder"]) / f"stderr_{rank}.txt").open("w") as file:
        os.dup2(file.fileno(), 2)
    if processes > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        os.environ |= {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes)}
    main(options)


def main(options: dict[str, Any]) -> None:
    """A whole run; it is killed after the line ``killed_at``, or has pauses of ``slow`` seconds."""
    options = dict(options)
    folder = Path(options.pop("folder"))
    slow, killed_at = options.pop("slow", 0.0), options.pop("killed_at", None)
    if count := options.pop("corrections", 0):
        options |= {"corrections": Corrections(count), "setup": toys.hall(horizon=1)}
    torch.set_num_threads(1)
    make = toys.own_trainer if options.pop("own", False) else toys.trainer
    made = make(folder, dump_dir=folder / "rollouts", **options)
    log_file = folder / "log.txt"

    def note(word: str) -> None:
        line = f"{word} {made._step // made._steps_of_iteration}"
        if made.accelerator.is_main_process:
            with log_file.open("a") as file:
                file.write(f"{line}\n")
        if line == killed_at:
            os.kill(os.getpid(), signal.SIGKILL)

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


def log(folder: Path) -> list[str]:
    """The lines of a run so far."""
    file = folder / "log.txt"
    return file.read_text().splitlines() if file.exists() else []


def killed(run: BaseProcess, folder: Path) -> Path:
    """Wait until a run was killed; returns its last complete checkpoint."""
    run.join(timeout=120)
    assert run.exitcode == -signal.SIGKILL
    whole = last_checkpoint(folder)
    assert whole is not None
    return whole
