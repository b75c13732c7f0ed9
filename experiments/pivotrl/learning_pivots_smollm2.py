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

    python -m experiments.pivotrl.learning_pivots_smollm2 --warm warm --gsm8k test.jsonl

``warm`` is written by the command of ``docs/play.md``. With ``--run FOLDER``, a step whose result
lies in the folder is not made again.
"""

import json
import math
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ascribe.engines.metrics import read_metrics
from ascribe_lab.models import Chat
from ascribe_lab.models.loading import load_causal_lm, load_smollm2
from ascribe_lab.rollout import Sampling, Setup, success
from benchmarks import common, tiny
from experiments.common import play_all

common.PACKAGES = ("ascribe-rl", "numpy", "torch", "transformers", "trl")

CONFIG = common.ROOT / "examples" / "train" / "pivots_textcraft.yaml"
OPTIONS = {"split": "train", "depth": [1, 2], "inventory": True}
VERIFIER = {"effect": {"environment": "textcraft", "options": OPTIONS, "style": "plain"}}
K, BATCH, TURNS, TOKENS = 8, 8, 6, 24
SAMPLING = Sampling(max_tokens=TOKENS)


@dataclass(frozen=True)
class Size:
    """How much of everything."""

    traces: int = 500
    profiled: int = 320
    iterations: int = 12
    copied: int = 60
    """Updates of supervised learning, which take about as long as training on pivots."""
    read: int = 100
    """Solutions of GSM8K."""
    tried: int | None = None
    """Tasks of an evaluation; all by default."""
    sums: int = 9
    select: bool = True
    """Whether to train on pivots; the tiny policy knows so little that there are none."""


QUICK = Size(traces=4, profiled=2, iterations=1, copied=1, read=2, tried=2, sums=1, select=False)
SUM = "What is {} plus {}? Answer with the number alone."


def main() -> None:
    """Make the runs and print what came of them."""
    own: dict[str, Any] = {
        "warm": {"type": Path, "default": Path("warm")},
        "run": {"type": Path},
        "gsm8k": {"type": Path},
    }
    with (
        common.Figures("learning_pivots_smollm2", **own) as figures,
        tempfile.TemporaryDirectory() as temporary,
    ):
        torch.set_num_threads(1)
        options, size = figures.options, QUICK if figures.quick else Size()
        folder = (options.run or Path(temporary)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        warm, solutions = options.warm.absolute(), options.gsm8k
        if figures.quick:
            warm = tiny.write_textcraft(folder / "warm")
            solutions = tiny.write_questions(folder / "solutions.jsonl", 1)
        walk(folder, warm, size)
        tell_profile(figures, folder, size)
        if not figures.quick:
            first = perplexity(losses(None, solutions, size.read))
            figures.emit("before the warm-up", "perplexity", first, "perplexity", "lower")
        before = losses(warm, solutions, size.read)
        models = {"start": warm, "pivots": folder / "trained" / "model",
                  "supervised": folder / "supervised"}  # fmt: skip
        for name, model in models.items():
            tell_success(figures, name, folder, model, size)
            after = before if name == "start" else losses(model, solutions, size.read)
            figures.emit(name, "perplexity", perplexity(after), "perplexity", "lower")
            if name != "start":
                tell_change(figures, name, before, after)
        turns = sum(line["ascribe/rows"] for line in read_metrics(folder / "trained"))
        figures.emit("pivots", "training_turns", turns, "turns", "lower")
        figures.emit("pivots", "turns", size.profiled * K + turns, "turns", "lower")


# From traces to two models.


def walk(folder: Path, warm: Path, size: Size) -> None:
    """Every command whose result is not there yet."""
    textcraft = ["--env", "textcraft", *common.settings(OPTIONS)]
    played = [*textcraft, "--model", "expert", "--style", "plain"]
    sampled = ["--max-tokens", str(TOKENS), "--dtype", "bfloat16", "--context", "768"]
    turns = "pivots.jsonl" if size.select else "candidates.jsonl"
    trained = {
        "model.path": str(warm),
        "environment.options.file": str(folder / turns),
        "update.iterations": size.iterations,
        "output.folder": str(folder / "trained"),
    }
    taught = {"file": str(folder / "candidates.jsonl"), "verifier": "exact"}
    steps = {
        "traces.parquet": ["rollout", *played, "--groups", str(size.traces), "--size", "1",
                           "--out", "traces.parquet"],
        "candidates.jsonl": ["pivots", "extract", "traces.parquet", "--out", "candidates.jsonl"],
        "candidates.answers.jsonl": ["pivots", "profile", "candidates.jsonl", "-k", str(K),
                                     "--limit", str(size.profiled * K), *sampled,
                                     "--model", str(warm), "--label", "warm"],
        "pivots.jsonl": ["pivots", "select", "candidates.jsonl", *verified(),
                         "--out", "pivots.jsonl"],
        "trained/model": ["pivots", "train", str(CONFIG),
                          *common.settings(trained)],
        "supervised": ["warmup", "--env", "pivots", "--model", str(warm), "--out", "supervised",
                       *common.settings(taught),
                       "--episodes", str(size.copied * BATCH), "--steps", str(size.copied),
                       "--batch", str(BATCH)],
    }  # fmt: skip
    if not size.select:
        del steps["pivots.jsonl"]
    for result, words in steps.items():
        if not (folder / result).exists():
            common.ascribe(*words, cwd=folder)


def verified() -> list[str]:
    """``--verifier``."""
    return ["--verifier", json.dumps(VERIFIER)]


# What a model can do.


def play_goals(model: Path, size: Size) -> list[tuple[str, Any]]:
    """Success on goals that are held out, by depth."""
    setup = Setup("textcraft", {**OPTIONS, "split": "eval"}, "plain", "processes", 1)
    results = success(play_all(model, setup, 2, TURNS, SAMPLING, size.tried))
    return [(f"goals, {one.family}", one) for one in results]


def play_sums(folder: Path, model: Path, size: Size) -> list[tuple[str, Any]]:
    """Success on sums in words."""
    file = tiny.write_questions(folder / "sums.jsonl", size.sums, SUM)
    setup = Setup("maths", {"file": str(file), "judge": "number"}, "plain", "processes", 1)
    return [("sums", success(play_all(model, setup, 1, 1, SAMPLING))[-1])]


def losses(model: Path | None, file: Path, most: int) -> list[tuple[float, int]]:
    """Of each solution of GSM8K: -log p of all its tokens, given the question; and how many."""
    network, tokenizer = load_smollm2() if model is None else load_causal_lm(model)
    chat, found = Chat(tokenizer), []
    for line in file.read_text(encoding="utf-8").splitlines()[:most]:
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


def tell_profile(figures: common.Figures, folder: Path, size: Size) -> None:
    """Where the signal is."""
    words = ("pivots", "report", "candidates.jsonl", *verified(), "--json")
    told = json.loads(common.ascribe(*words, capture=True, cwd=folder))
    figures.emit("profile", "traces", size.traces, "traces", "higher")
    figures.emit("profile", "candidates", told["candidates"], "turns", "higher")
    figures.emit("profile", "profiled", told["profiled"], "turns", "higher")
    figures.emit("profile", "kept", told["kept"], "turns", "higher")
    for name in ("without_signal", "miss_rate"):
        if told[name] is not None:  # the quick case may have no response to judge
            values = [told[name][part] for part in ("value", "low", "high")]
            figures.emit_interval("profile", name, values, "share", "lower")


def tell_success(figures: common.Figures, name: str, folder: Path, model: Path, size: Size) -> None:
    """Success with its intervals."""
    for what, one in play_goals(model, size) + play_sums(folder, model, size):
        case = f"{name}: {what}, {one.tasks} tasks"
        figures.emit_interval(case, "success", (one.rate, one.low, one.high), "share", "higher")


def tell_change(
    figures: common.Figures,
    name: str,
    before: list[tuple[float, int]],
    after: list[tuple[float, int]],
) -> None:
    """By what factor the perplexity of a solution has changed, pair by pair."""
    logs = [(new - old) / count for (old, count), (new, _) in zip(before, after, strict=True)]
    mean, half = statistics.mean(logs), 1.98 * statistics.stdev(logs) / len(logs) ** 0.5
    values = [math.exp(value) for value in (mean, mean - half, mean + half)]
    figures.emit_interval(name, "perplexity_factor", values, "ratio", "lower")


if __name__ == "__main__":
    main()
