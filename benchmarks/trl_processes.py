"""Bytes that each of two TRL processes gets from the other for credit, in one iteration.

Two processes over gloo train a small model with ``AscribeTrainer`` on episodes of eight turns. Each
credits the groups that begin with it. ``bytes_gathered`` are those of all objects that a process
gets from the other one; ``bytes_of_tables`` is what it would get if processes exchanged the tables
of all their turns. With 32 episodes of each process in groups of 8 no group is split; with 36, one
of nine is. ``reinforce_pp`` compares over the whole batch, so both processes need all turns.
"""

import json
import multiprocessing
import os
import pickle
import socket
import tempfile
from pathlib import Path
from typing import Any

import common
import engine_trl as one
import torch
from datasets import Dataset

common.PACKAGES = ("ascribe-rl", "numpy", "pyarrow", "torch", "transformers", "trl", "accelerate")

PROCESSES, TURNS = 2, 8
RECIPES: dict[str, dict[str, Any]] = {
    "sbc": {"recipe": "sbc"},
    "bipace_q with fingerprints": {"recipe": "bipace_q", "fingerprints": -1},
    "reinforce_pp": {"recipe": "reinforce_pp"},
}


def main() -> None:
    """Measure and print."""
    with common.Figures("trl_processes") as figures:
        os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
        for rows in (12,) if figures.quick else (32, 36):
            for name, options in list(RECIPES.items())[: 1 if figures.quick else None]:
                gathered, tables = measure(rows, options)
                case = f"{name}, {PROCESSES} x {rows} episodes in groups of {one.SIZE}"
                figures.emit(case, "bytes_gathered", gathered, "bytes", "lower")
                figures.emit(case, "bytes_of_tables", tables, "bytes", "lower")
                figures.emit(case, "share", gathered / tables, "ratio", "lower")


def measure(rows: int, options: dict[str, Any]) -> tuple[int, int]:
    """The two sizes, of the process that gets more."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        process = multiprocessing.get_context("spawn").Process
        given = [(rank, port, rows, options, folder) for rank in range(PROCESSES)]
        runs = [process(target=work, args=each) for each in given]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        sent = [json.loads((Path(folder) / str(rank)).read_text()) for rank in range(PROCESSES)]
    # What one sends, the other gets.
    gathered, tables = (max(each) for each in zip(*sent, strict=True))
    return gathered, tables


def work(rank: int, port: int, rows: int, options: dict[str, Any], folder: str) -> None:
    """One process: an iteration of training, with what it sends counted."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank)}
    os.environ |= {"LOCAL_RANK": str(rank), "WORLD_SIZE": str(PROCESSES)}
    os.environ |= {"LOCAL_WORLD_SIZE": str(PROCESSES)}
    torch.set_num_threads(1)
    from ascribe.engines.trl import shares, trainer  # noqa: PLC0415
    from ascribe.steps.files import table_to_arrow  # noqa: PLC0415

    gathered, tables = [], []
    gather, credit = shares.gather_object, trainer.credit_shares

    def count(sent: Any) -> Any:
        gathered.append(len(pickle.dumps(sent)))
        return gather(sent)

    def count_table(local: Any, *rest: Any, **more: Any) -> Any:
        tables.append(len(pickle.dumps([table_to_arrow(local)])))
        return credit(local, *rest, **more)

    shares.gather_object, trainer.credit_shares = count, count_table
    one.GROUPS = PROCESSES * rows // one.SIZE
    played = one.episodes(TURNS, one.SMALL["vocab_size"])
    mine = slice(rank * rows, (rank + 1) * rows)
    args = one.config(1)
    args.per_device_train_batch_size, args.steps_per_generation = rows, 1
    args.gradient_accumulation_steps, args.generation_batch_size = 1, PROCESSES * rows
    args.max_steps = 1
    trainer.AscribeTrainer(
        one.model(one.SMALL),
        reward_funcs=one.reward,
        args=args,
        train_dataset=Dataset.from_list([{"prompt": "x"}] * one.GROUPS),
        processing_class=one.tokenizer(one.SMALL["vocab_size"]),
        rollout_func=lambda *_: {name: each and each[mine] for name, each in played.items()},
        **options,
    ).train()
    (Path(folder) / str(rank)).write_text(json.dumps([sum(gathered), sum(tables)]))


if __name__ == "__main__":
    main()
