"""Pivots against copying the same traces, and against whole episodes on the same tasks, with TRL.

One tiny policy, of two layers and with a token for each word, is taught by somebody clumsy: four
goals of TextCraft, two others, and sums. Then there are 500 traces of the planner, of the four
goals alone. Their turns are extracted, and as many as ``answers`` says profiled (K = 8) and
selected with the verifier ``progress``. From
the same start it learns by ``pivots`` (GRPO on single turns, KL to the start), by ``supervised``
learning on all turns of the traces, and by ``episodes`` (GRPO on whole episodes, the same KL).

``trained_goals`` is the success in episodes of the four goals with recipes shown anew;
``other_goals`` and ``sums`` are what the policy could do at the start and is not trained on.
``low`` and ``high`` bound the 95 % interval of the mean over seeds (Student's t, cut at 0 and 1).
``turns`` are answers of the policy, until a checkpoint first has the success that the worse of
``pivots`` and ``episodes`` has at the end; for pivots those of the profile count too, and
``turns_of_training`` leaves them out. Rates and lengths were chosen on a seed that is not among
those here.

    python benchmarks/learning_pivots.py
    python benchmarks/learning_pivots.py --model warm     # one run of a real model (docs/warmup.md)

With ``--model`` the goals are all those of depth 1 and 2, fewer turns are profiled, and sums are in
words. One run with one seed says that it runs, and little about one way of learning against
another.
"""

import argparse
import json
import re
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import arithmetic
import common
import numpy as np
import torch
from one_file import interval
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from ascribe.agents import Writer
from ascribe.engines.lessons import Lesson
from ascribe.engines.load import load_config
from ascribe.engines.metrics import read_metrics
from ascribe.engines.supervised import Schedule, teach
from ascribe.engines.train import train
from ascribe.files import write
from ascribe.fingerprints.models import load_causal_lm, save_model
from ascribe.pivots import (
    Candidate,
    Play,
    Reference,
    extract,
    make_verifier,
    profile,
    profiles,
    read_answers,
    read_turns,
    report,
    score,
    select,
    write_turns,
)
from ascribe.pivots.candidates import KINDS
from ascribe.rollout import Model, Plan, Request, Sample, Sampling, Setup, arrow, play, rollout
from ascribe.rollout.policies import Chat, ExpertPolicy, RandomPolicy, TransformersPolicy

common.PACKAGES = ("ascribe", "numpy", "torch", "transformers", "trl")

TRAINED = (17, 63, 64, 146)
OTHERS = (16, 120)
"""Goals of depth 1 and 2 that take 3 commands, with the shortest lists of recipes."""
ALWAYS = (
    "Other commands: get [count] [item]; inventory.",
    "Answer with one action and nothing else:",
    "Give the final answer inside \\boxed{}.",
)
"""What every prompt says; the tiny policy does not read it."""
OPTIONS = {"split": "train", "depth": [1, 2], "inventory": True}
VERIFIER = {"progress": {"environment": "textcraft", "options": OPTIONS, "style": "plain"}}
STRAY = 0.55
"""Share of steps in which the first teacher does anything."""
K = 8
METHODS = ("pivots", "supervised", "episodes")
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}<answer>"

Curve = list[dict[str, Any]]


@dataclass(frozen=True)
class Size:
    """How large everything is."""

    seeds: tuple[int, ...] = (0, 1, 2)
    tasks: tuple[int, ...] | None = TRAINED
    warm: int = 240
    """Updates of the first teaching."""
    traces: int = 500
    profiled: int = 200
    """Candidates, drawn at random."""
    pivot_groups: int = 16
    episode_groups: int = 4
    """Groups of 8 in an iteration, of single turns and of episodes."""
    iterations: int = 24
    every: int = 6
    """Iterations from one evaluation to the next."""
    rate: float = 1e-3
    kl: float = 0.01
    epochs: float = 3.0
    """Of supervised learning; copies of a turn count."""
    copy_rate: float = 1e-3
    turns: int = 5
    tokens: int = 20
    rows: int = 32
    trials: int = 16
    """Episodes of each goal in an evaluation, and answers to each sum."""


QUICK = Size((0,), TRAINED[:2], 2, 500, 8, 1, 1, 1, 1, epochs=0.05, turns=3, tokens=8, rows=8,
             trials=1)  # fmt: skip
LARGE = Size((0,), None, 0, 500, 64, 8, 4, 24, 8, 2e-5, epochs=0.15, copy_rate=5e-5, turns=8,
             tokens=24, rows=8, trials=60)  # fmt: skip


def main() -> None:
    """Run all seeds and print."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--model")
    options, sys.argv[1:] = parser.parse_known_args()
    with common.Figures("learning_pivots") as figures, tempfile.TemporaryDirectory() as name:
        torch.set_num_threads(1)
        size = QUICK if figures.quick else LARGE if options.model else Size()
        runs = [Run(Path(name) / str(seed), seed, size, options.model) for seed in size.seeds]
        curves: list[dict[str, Curve]] = []
        for run in runs:
            curves.append(run.all())
            if figures.out is not None:
                save(figures.out.with_suffix("") / "curve.jsonl", size.seeds, curves)
        case = f"{options.model or 'tiny policy'}, {len(runs)} seeds"
        tell(figures, case, runs, curves)


class Run:
    """One seed."""

    def __init__(self, folder: Path, seed: int, size: Size, model: str | None) -> None:
        folder.mkdir(parents=True)
        self.folder, self.seed, self.size = folder, seed, size
        self.real = model is not None
        words = ("What is {} plus {}? Answer with the number alone.",) if self.real else ()
        self.sums = arithmetic.write_questions(folder / "sums.jsonl", 9, *words)
        self.start = Path(model) if model else self.write_start()
        self.facts: dict[str, float] = {}
        """What the profile found."""

    def all(self) -> dict[str, Curve]:
        """The curve of each method."""
        turns = self.candidates()
        chosen, asked = self.choose(turns)
        first = {"iteration": 0, "turns": 0, **self.measure(self.start)}
        curves: dict[str, Curve] = {
            "supervised": [first, {"turns": 0, **self.measure(self.copy(turns))}],
            "pivots": [first],
            "episodes": [first],
        }
        environments = {
            "pivots": {"name": "pivots", "options": {"file": str(chosen)}},
            "episodes": {"name": "textcraft", "options": OPTIONS},
        }
        for method, environment in environments.items():
            tasks, before = (weighed(chosen), asked) if method == "pivots" else (self.size.tasks, 0)
            found = self.reinforce(method, environment, tasks, before)
            curves[method] += found
        return curves

    # The start, and the traces.

    def write_start(self) -> Path:
        """A policy that was taught a little of everything, by somebody clumsy."""
        goals = (*TRAINED, *OTHERS) * max(1, self.size.warm // 2)
        told = self.taught(Setup("textcraft", OPTIONS, "plain", "serial"), goals, STRAY)
        sums = self.taught(self.counting(), range(100), 0.0)
        tokenizer = word_tokenizer([text for pair in told + sums for text in pair])
        chat = Chat(tokenizer)
        often = len(told) // len(sums) + 1
        lessons = [
            lesson(chat, [{"role": "user", "content": asked}], said)
            for asked, said in told + sums * often
        ]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            model = LlamaForCausalLM(
                LlamaConfig(
                    vocab_size=len(tokenizer),
                    hidden_size=64,
                    intermediate_size=128,
                    num_hidden_layers=2,
                    num_attention_heads=4,
                    num_key_value_heads=4,
                    max_position_embeddings=512,
                    initializer_range=0.1,  # far from zero, so that attention is far from even
                    bos_token_id=None,
                    eos_token_id=tokenizer.eos_token_id,
                    pad_token_id=tokenizer.pad_token_id,
                    tie_word_embeddings=True,
                )
            )
        teach(model, lessons, Schedule(self.size.warm, 32, 6e-3, 1.0, 8192, self.seed))
        return save_model(model, tokenizer, self.folder / "start")

    def taught(self, setup: Setup, tasks: Sequence[int], stray: float) -> list[tuple[str, str]]:
        """Prompts, and what somebody says who knows the way and often does anything."""
        setup = setup.with_expert()
        parser = setup.agent.parser
        say = parser.render if isinstance(parser, Writer) else str
        policy = Clumsy(ExpertPolicy(say), RandomPolicy(say), stray)
        plan = Plan(len(tasks), 1, self.size.turns, 1000 + self.seed, tasks=tasks)
        with setup.open_pool(64) as pool:
            rollout(plan, pool, setup.agent, policy)
        return policy.told

    def counting(self) -> Setup:
        """The sums."""
        return Setup("maths", {"file": str(self.sums), "judge": "number"}, "plain", "serial")

    def candidates(self) -> list[Candidate]:
        """The turns of the planner's traces."""
        tasks = self.size.tasks
        chosen = tasks and [tasks[number % len(tasks)] for number in range(self.size.traces)]
        setup = Setup("textcraft", OPTIONS, "plain", "serial")
        plan = Plan(self.size.traces, 1, 40, 2000 + self.seed, "traces", chosen)
        write(arrow(play(setup, Model("expert"), plan)), self.folder / "traces.parquet")
        found = extract([self.folder / "traces.parquet"], play=Play(plan.seed)).candidates
        if chosen is None:
            return list(found)
        # A file of rollouts does not say which task was asked for.
        task = {plan.trajectory_name(group, 0): chosen[group] for group in range(plan.groups)}
        return [
            replace(one, scene=replace(one.scene, task=task[one.origin.trace])) for one in found
        ]

    # The three ways.

    def choose(self, turns: list[Candidate]) -> tuple[Path, int]:
        """Profile and select: the file of pivots, and the answers that it took."""
        size, random = self.size, np.random.default_rng(self.seed)
        places = random.permutation(len(turns))[: size.profiled]
        asked = [turns[place] for place in sorted(places.tolist())]
        journal, sampling = self.folder / "answers.jsonl", Sampling(max_tokens=size.tokens)
        reference = Reference("start", sampling)
        done = profile(asked, self.policy(self.start), reference, journal, k=K, batch=256)
        scored = score(asked, list(read_answers(journal)), make_verifier(VERIFIER), K)
        found, told = select(scored), report(scored)
        self.facts = {
            "turns": len(turns),
            "answers": done.asked,
            "without_signal": told.without_signal.value if told.without_signal else 1.0,
            "kept": len(found.kept) / len(asked),
            "missed_by_strict": told.miss_rate.value if told.miss_rate else 0.0,
            "mean_reward": told.functional,
        }
        kept = found.kept or tuple(scored)  # a quick run knows nothing, and nothing is mixed
        path = self.folder / "pivots.jsonl"
        facts = {"verifier": VERIFIER}
        write_turns(path, [one.candidate for one in kept], KINDS[1], facts, profiles(kept))
        return path, done.asked

    def copy(self, turns: list[Candidate]) -> Path:
        """Supervised learning on all turns of the traces."""
        model, tokenizer = load_causal_lm(self.start)
        chat = Chat(tokenizer)
        lessons = [
            lesson(chat, one.messages, one.action) for one in turns for _ in range(1 + one.copies)
        ]
        batch = 8 if self.real else 32
        steps = max(1, round(self.size.epochs * len(lessons) / batch))
        schedule = Schedule(steps, batch, self.size.copy_rate, most_tokens=4096, seed=self.seed)
        teach(model, lessons, schedule)
        return save_model(model, tokenizer, self.folder / "supervised")

    def reinforce(
        self, method: str, environment: dict[str, Any], tasks: Sequence[int] | None, before: int
    ) -> Curve:
        """``ascribe train``, and what its checkpoints can do.

        Args:
            method: its name.
            environment: what is played.
            tasks: numbers of the tasks; None: all.
            before: turns that it took to begin.
        """
        size, out = self.size, self.folder / method
        single = method == "pivots"
        trl = {"use_cpu": True, "bf16": self.real, "gradient_checkpointing": False}
        lines = train_here(
            {
                "model": {"path": str(self.start)},
                "environment": {**environment, "style": "plain", "pool": "serial"},
                "recipe": {"name": "grpo"},
                "rollout": {
                    "groups": size.pivot_groups if single else size.episode_groups,
                    "size": K,
                    "max_turns": 1 if single else size.turns,
                    "max_tokens": size.tokens,
                    "tasks": None if tasks is None else list(tasks),
                    **({"dtype": "bfloat16", "context": 768} if self.real else {}),
                },
                "update": {
                    "iterations": size.iterations,
                    "learning_rate": size.rate,
                    "kl": size.kl,
                    "rows_per_pass": size.rows,
                    "seed": self.seed,
                },
                "output": {"folder": str(out), "save_every": size.every, "keep": None},
                "engine": {"trl": trl},
            }
        )
        episodes = K * (size.pivot_groups if single else size.episode_groups)
        played = np.cumsum([episodes * line["ascribe/turns"] for line in lines])
        curve = []
        for number in range(size.every, size.iterations + 1, size.every):
            last = number + size.every > size.iterations
            found = self.measure(out / f"checkpoint-{number}", everything=last)
            curve.append(
                {
                    "iteration": number,
                    "turns": int(before + round(played[number - 1])),
                    "turns_of_training": round(played[number - 1]),
                    **found,
                }
            )
        return curve

    # What a policy can do.

    def measure(self, model: Path, *, everything: bool = True) -> dict[str, float]:
        """Shares of success, as the policy is sampled in training."""
        policy, size = self.policy(model), self.size
        goals = Setup("textcraft", OPTIONS, "plain", "serial")
        asked: dict[str, tuple[Setup, Sequence[int], int]] = {}
        if size.tasks is None:
            drawn = np.random.default_rng(7).permutation(282)[: size.trials].tolist()
            asked["trained_goals"] = (goals, drawn, size.turns)
        else:
            asked["trained_goals"] = (goals, size.tasks * size.trials, size.turns)
            asked["other_goals"] = (goals, OTHERS[: len(size.tasks)] * size.trials, size.turns)
        often = 1 if self.real else min(4, size.trials)
        asked["sums"] = (self.counting(), [*range(100)] * often, 1)
        if not everything:
            asked = {"trained_goals": asked["trained_goals"]}
        return {
            name: won(policy, setup, tasks, turns, size.tokens)
            for name, (setup, tasks, turns) in asked.items()
        }

    def policy(self, model: Path) -> TransformersPolicy:
        """Who answers."""
        dtype = "bfloat16" if self.real else None
        return TransformersPolicy.load(model, dtype=dtype, batch_size=128)


def weighed(pivots: Path) -> list[int]:
    """The number of each pivot, as often as it is in the traces."""
    turns = read_turns(pivots).candidates
    return [number for number, one in enumerate(turns) for _ in range(1 + one.copies)]


def train_here(document: dict[str, Any]) -> list[dict[str, Any]]:
    """``ascribe train`` in this process; the lines of its ``metrics.jsonl``."""
    folder = Path(document["output"]["folder"])
    file = folder.with_suffix(".yaml")
    file.write_text(json.dumps(document))  # which is YAML too
    with redirect_stdout(sys.stderr):  # the engine prints what it logs
        train(load_config(file).config, "trl")
    return read_metrics(folder)


def won(
    policy: TransformersPolicy, setup: Setup, tasks: Sequence[int], turns: int, tokens: int
) -> float:
    """The share of episodes that are won, with seeds that no training has."""
    plan = Plan(len(tasks), 1, turns, 3000, "trial", tasks, Sampling(max_tokens=tokens))
    with setup.open_pool(len(tasks)) as pool:
        played = rollout(plan, pool, setup.agent, policy).trajectories
    return statistics.mean(one.won for one in played)


class Clumsy:
    """The expert, who in a share of the steps does anything; writes down what was said."""

    def __init__(self, expert: ExpertPolicy, stray: RandomPolicy, share: float) -> None:
        self.expert, self.stray, self.share = expert, stray, share
        self.told: list[tuple[str, str]] = []

    def __call__(self, requests: Sequence[Request], sampling: Sampling) -> list[Sample]:
        """One sample for each request."""
        found = []
        for request in requests:
            strays = np.random.default_rng([request.seed, 1]).random() < self.share
            (sample,) = (self.stray if strays else self.expert)([request], sampling)
            self.told.append((request.messages[0]["content"], sample.text))
            found.append(sample)
        return found

    def close(self) -> None:
        """Nothing to give back."""


def lesson(chat: Chat, messages: Sequence[dict[str, str]], said: str) -> Lesson:
    """A prompt, and the answer with its end."""
    ids = chat.tokenizer(said, add_special_tokens=False)["input_ids"]
    return Lesson(chat.prompt(messages), (*ids, chat.tokenizer.eos_token_id))


def word_tokenizer(texts: Sequence[str]) -> Any:
    """A token for each word, number and sign of the texts."""
    tags = ["<answer>", "<action>", "</action>"]
    words = Tokenizer(models.WordLevel({}, unk_token="<unknown>"))
    replaced = (*((said, "") for said in ALWAYS), ("minecraft:", ""), ("_", " "), ("\n", " "))
    words.normalizer = normalizers.Sequence([normalizers.Replace(*pair) for pair in replaced])
    # A space belongs to the word after it, so that tokens can be put together to the same text.
    split = Regex(r" ?[A-Za-z]+| ?[0-9]+| ?[^A-Za-z0-9 ]| ")
    words.pre_tokenizer = pre_tokenizers.Split(split, "isolated")
    words.decoder = decoders.Fuse()
    found = {" +", *(f"{space}{number}" for number in range(65) for space in ("", " "))}
    for text in texts:
        for part in re.split("|".join(tags), text):
            pieces = words.pre_tokenizer.pre_tokenize_str(words.normalizer.normalize_str(part))
            found |= {piece for piece, _ in pieces}
    known = ["<pad>", "<end>", "<unknown>", *tags, *sorted(found)]
    words.model = models.WordLevel({w: n for n, w in enumerate(known)}, unk_token="<unknown>")
    words.add_tokens([AddedToken(tag, normalized=False) for tag in tags])
    return PreTrainedTokenizerFast(
        tokenizer_object=words,
        eos_token="<end>",
        pad_token="<pad>",
        unk_token="<unknown>",
        chat_template=TEMPLATE,
        clean_up_tokenization_spaces=False,
    )


# What comes out.


def tell(
    figures: common.Figures, case: str, runs: Sequence[Run], curves: Sequence[dict[str, Curve]]
) -> None:
    """Means over seeds, with their intervals."""
    for name in runs[0].facts:
        values = [run.facts[name] for run in runs]
        unit = {"turns": "turns", "answers": "answers"}.get(name, "share")
        figures.emit(f"{case}: profile", name, statistics.mean(values), unit, "higher")
    skills = [name for name in curves[0]["pivots"][0] if name not in ("iteration", "turns")]
    ends: dict[str, Callable[[dict[str, Curve]], dict[str, Any]]] = {
        "start": lambda found: found["pivots"][0],
        **{method: (lambda found, m=method: found[m][-1]) for method in METHODS},
    }
    for when, end in ends.items():
        for skill in skills:
            emit(figures, f"{case}: {when}", skill, [end(found)[skill] for found in curves])
    for skill in skills:
        for method in ("pivots", "supervised"):
            change = [found[method][-1][skill] - found[method][0][skill] for found in curves]
            emit(figures, f"{case}: change by {method}", skill, change, low=-1.0)
    reached = [turns_to_reach(found) for found in curves]
    for name in reached[0]:
        values = [found[name] for found in reached]
        unit = "ratio" if name.startswith("times") else "turns"
        figures.emit(f"{case}: the same success", name, statistics.mean(values), unit, "lower")


def emit(
    figures: common.Figures, case: str, name: str, values: list[float], low: float = 0.0
) -> None:
    """A mean and its interval; one value has none."""
    figures.emit(case, name, statistics.mean(values), "share", "higher")
    if len(values) > 1:
        mean, half = interval(values)
        figures.emit(case, f"{name}_low", max(mean - half, low), "share", "higher")
        figures.emit(case, f"{name}_high", min(mean + half, 1.0), "share", "higher")


def turns_to_reach(found: dict[str, Curve]) -> dict[str, float]:
    """Turns until pivots and episodes have the success that both reach."""
    skill = "trained_goals"
    target = min(found[method][-1][skill] for method in ("pivots", "episodes"))

    def first(method: str, count: str) -> float:
        return float(next(one[count] for one in found[method][1:] if one[skill] >= target))

    turns = {
        "turns_of_pivots": first("pivots", "turns"),
        "turns_of_training_of_pivots": first("pivots", "turns_of_training"),
        "turns_of_episodes": first("episodes", "turns"),
    }
    return turns | {"times_fewer": turns["turns_of_episodes"] / turns["turns_of_pivots"]}


def save(path: Path, seeds: Sequence[int], curves: Sequence[dict[str, Curve]]) -> None:
    """All curves so far, one line for each point."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {"method": method, "seed": seed, **point}
        for seed, found in zip(seeds, curves, strict=False)
        for method, curve in found.items()
        for point in curve
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
