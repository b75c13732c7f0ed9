"""SmolLM2-135M from the planner's traces to a policy: pivots against copying the same traces.

Every step is a command of ``ascribe``: 500 traces of goals of depth 1 and 2, their turns, a profile
of 320 of them drawn at random (K = 8), selection, training with TRL by
``examples/train/pivots_textcraft.yaml``; and supervised learning on 480 turns from the same start.
Before and after, the model plays all goals of these depths that are in neither the traces nor the
warm-up, twice each; answers sums in words, once each; and reads the first 100 solutions of GSM8K's
test set. The last two were not trained on. ``perplexity`` is that of the solutions' tokens; its
change is the factor by which it differs from that at the start, with the 95 % interval over
questions. Other ``low`` and ``high`` are Wilson's intervals, for as many trials as there are goals
or sums. ``turns`` are answers of the policy, those of the profile too. One run with one seed says
little about one way of learning against another.

    python benchmarks/learning_pivots_smollm2.py --warm warm --run runs/pivots --gsm8k test.jsonl

``warm`` is written by the command of ``docs/warmup.md``. A step whose result lies in the run's
folder is not made again.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import arithmetic
import common
import torch
from learning import play_all

from ascribe.engines.metrics import read_metrics
from ascribe.models import Chat
from ascribe.models.loading import load_causal_lm, load_smollm2
from ascribe.rollout import Sampling, Setup

common.PACKAGES = ("ascribe", "numpy", "torch", "transformers", "trl")

ROOT = Path(__file__).parents[1]
CONFIG = ROOT / "examples" / "train" / "pivots_textcraft.yaml"
OPTIONS = {"split": "train", "depth": [1, 2], "inventory": True}
VERIFIER = {"effect": {"environment": "textcraft", "options": OPTIONS, "style": "plain"}}
TRACES, PROFILED, K = 500, 320, 8
ITERATIONS, TURNS, TOKENS = 12, 6, 24
SAMPLING = Sampling(max_tokens=TOKENS)
COPIED, BATCH = 60, 8
"""Updates of supervised learning and turns of each; a quarter of an epoch, and about the time that
training on pivots takes."""
READ = 100
"""Solutions of GSM8K."""
SUM = "What is {} plus {}? ProfileResponse with the number alone."


def main() -> None:
    """Make the runs and print what came of them."""
    options = arguments()
    with common.Figures("learning_pivots_smollm2") as figures:
        torch.set_num_threads(1)
        folder, warm = options.run.absolute(), options.warm.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        walk(folder, warm)
        tell_profile(figures, folder)
        first = losses(None, options.gsm8k)
        figures.emit("before the warm-up", "perplexity", perplexity(first), "perplexity", "lower")
        before = losses(warm, options.gsm8k)
        models = {"start": warm, "pivots": folder / "trained" / "model",
                  "supervised": folder / "supervised"}  # fmt: skip
        for name, model in models.items():
            tell_success(figures, name, folder, model)
            after = before if name == "start" else losses(model, options.gsm8k)
            figures.emit(name, "perplexity", perplexity(after), "perplexity", "lower")
            if name != "start":
                tell_change(figures, name, before, after)
        turns = sum(line["ascribe/rows"] for line in read_metrics(folder / "trained"))
        figures.emit("pivots", "training_turns", turns, "turns", "lower")
        figures.emit("pivots", "turns", PROFILED * K + turns, "turns", "lower")


def arguments() -> argparse.Namespace:
    """What the script is told besides ``--out``."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--warm", type=Path, default=Path("warm"))
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--gsm8k", type=Path, required=True)
    options, sys.argv[1:] = parser.parse_known_args()
    return options


# From traces to two models.


def walk(folder: Path, warm: Path) -> None:
    """Every command whose result is not there yet."""
    textcraft = [word for name, value in OPTIONS.items() for word in setting(name, value)]
    played = ["--env", "textcraft", "--model", "expert", "--style", "plain", *textcraft]
    sampled = ["--max-tokens", str(TOKENS), "--dtype", "bfloat16", "--context", "768"]
    trained = {
        "model.path": str(warm),
        "environment.options.file": str(folder / "pivots.jsonl"),
        "update.iterations": ITERATIONS,
        "output.folder": str(folder / "trained"),
    }
    taught = {"file": str(folder / "candidates.jsonl"), "verifier": "exact"}
    steps = {
        "traces.parquet": ["rollout", *played, "--groups", str(TRACES), "--size", "1",
                           "--out", "traces.parquet"],
        "candidates.jsonl": ["pivots", "extract", "traces.parquet", "--out", "candidates.jsonl"],
        "candidates.answers.jsonl": ["pivots", "profile", "candidates.jsonl", "-k", str(K),
                                     "--limit", str(PROFILED * K), *sampled,
                                     "--model", str(warm), "--label", "warm"],
        "pivots.jsonl": ["pivots", "select", "candidates.jsonl", *verified(),
                         "--out", "pivots.jsonl"],
        "trained/model": ["pivots", "train", str(CONFIG),
                          *(word for change in trained.items() for word in setting(*change))],
        "supervised": ["warmup", "--env", "pivots", "--model", str(warm), "--out", "supervised",
                       *(word for change in taught.items() for word in setting(*change)),
                       "--episodes", str(COPIED * BATCH), "--steps", str(COPIED),
                       "--batch", str(BATCH)],
    }  # fmt: skip
    for result, words in steps.items():
        if not (folder / result).exists():
            ascribe(folder, *words)


def ascribe(folder: Path, *words: str) -> str:
    """Run a command of Ascribe in a folder. Returns what it printed."""
    command = [str(Path(sys.executable).parent / "ascribe"), *words]
    done = subprocess.run(command, cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def setting(name: str, value: Any) -> list[str]:
    """``--set name=value``."""
    return ["--set", f"{name}={value if isinstance(value, str) else json.dumps(value)}"]


def verified() -> list[str]:
    """``--verifier``."""
    return ["--verifier", json.dumps(VERIFIER)]


# What a model can do.


def play_goals(model: Path) -> list[tuple[str, Any]]:
    """Success on goals that are held out, by depth."""
    setup = Setup("textcraft", {**OPTIONS, "split": "eval"}, "plain", "processes", 1)
    return [(f"goals, {one.family}", one) for one in play_all(model, setup, 2, TURNS, SAMPLING)]


def play_sums(folder: Path, model: Path) -> list[tuple[str, Any]]:
    """Success on sums in words."""
    file = arithmetic.write_questions(folder / "sums.jsonl", 9, SUM)
    setup = Setup("maths", {"file": str(file), "judge": "number"}, "plain", "processes", 1)
    return [("sums", play_all(model, setup, 1, 1, SAMPLING)[-1])]


def losses(model: Path | None, file: Path) -> list[tuple[float, int]]:
    """Of each solution of GSM8K: -log p of all its tokens, given the question; and how many."""
    network, tokenizer = load_smollm2() if model is None else load_causal_lm(model)
    chat, found = Chat(tokenizer), []
    for line in file.read_text(encoding="utf-8").splitlines()[:READ]:
        row = json.loads(line)
        prompt = chat.prompt([{"role": "user", "content": row["question"]}])
        said = tokenizer(row["answer"], add_special_tokens=False)["input_ids"]
        ids = torch.tensor([[*prompt, *said]])
        with torch.inference_mode():
            scores = network(ids).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
        loss = -scores.gather(1, torch.tensor(said)[:, None]).sum()
        found.append((float(loss), len(said)))
    return found


def perplexity(found: list[tuple[float, int]]) -> float:
    """Exponential of the mean loss of a token."""
    return math.exp(sum(loss for loss, _ in found) / sum(count for _, count in found))


# What comes out.


def tell_profile(figures: common.Figures, folder: Path) -> None:
    """Where the signal is."""
    told = json.loads(ascribe(folder, "pivots", "report", "candidates.jsonl", *verified(),
                              "--json"))  # fmt: skip
    figures.emit("profile", "traces", TRACES, "traces", "higher")
    figures.emit("profile", "candidates", told["candidates"], "turns", "higher")
    figures.emit("profile", "profiled", told["profiled"], "turns", "higher")
    figures.emit("profile", "kept", told["kept"], "turns", "higher")
    for name in ("without_signal", "miss_rate"):
        for part in ("value", "low", "high"):
            metric = name if part == "value" else f"{name}_{part}"
            figures.emit("profile", metric, told[name][part], "share", "lower")


def tell_success(figures: common.Figures, name: str, folder: Path, model: Path) -> None:
    """Success with its intervals."""
    for what, one in play_goals(model) + play_sums(folder, model):
        case = f"{name}: {what}, {one.tasks} tasks"
        figures.emit(case, "success", one.rate, "share", "higher")
        figures.emit(case, "success_low", one.low, "share", "higher")
        figures.emit(case, "success_high", one.high, "share", "higher")


def tell_change(
    figures: common.Figures,
    name: str,
    before: list[tuple[float, int]],
    after: list[tuple[float, int]],
) -> None:
    """By what factor the perplexity of a solution has changed, pair by pair."""
    logs = [(new - old) / count for (old, count), (new, _) in zip(before, after, strict=True)]
    mean, half = statistics.mean(logs), 1.98 * statistics.stdev(logs) / len(logs) ** 0.5
    for metric, value in (("", mean), ("_low", mean - half), ("_high", mean + half)):
        figures.emit(name, f"perplexity_factor{metric}", math.exp(value), "ratio", "lower")


if __name__ == "__main__":
    main()
