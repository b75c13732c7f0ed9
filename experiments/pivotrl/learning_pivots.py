"""Pivots against copying the same traces, and against whole episodes on the same tasks, with TRL.

A tiny policy, of two layers and with a token for each word, is taught by a clumsy teacher: four
goals of TextCraft, two others, and sums. Then there are 500 traces of the planner, of the four
goals alone. Of their turns 200 are profiled (K = 8) and selected. From the same start it learns by

- ``pivots``: GRPO on the single turns that were selected, KL to the start; an answer is accepted if
  it does to the world what was demonstrated (the verifier ``effect``);
- ``rounds``: the same with as many answers to profile, a part of them before each part of the
  iterations (``ascribe pivots train --every``);
- ``progress``: as ``pivots``, but every answer that brings the goal nearer is accepted;
- ``episodes``: GRPO on whole episodes of the same goals, the same KL and rate;
- ``supervised``: three epochs of all turns of the traces.

Goals are ``short`` (three commands) or ``long`` (four or five). ``trained_goals`` is the success in
episodes of the four goals with new recipes; ``other_goals`` and ``sums`` are what the policy could
do at the start and is not trained on. ``low`` and ``high`` bound the 95 % interval of the
mean over three seeds (Student's t; shares are cut at 0 and 1).

``turns`` are answers of the policy until a checkpoint first has the lower one of the successes that
the method and whole episodes have at the end; those of the profile count, and ``training_turns``
leaves them out. ``times_those_of_episodes`` below 1 is fewer turns than whole episodes need; its
``low`` and ``high`` are the smallest and the largest of the seeds. A seed counts in ``seeds`` if
both are better at the end than at the start by a twentieth; the others have no such number. The
start, rates and lengths were chosen on a seed that is not among those here.

    python -m experiments.pivotrl.learning_pivots
"""

import json
import re
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from ascribe.engines.metrics import read_metrics
from ascribe.steps.files import write
from ascribe_lab.models import Chat, ExpertPolicy, RandomPolicy, TransformersPolicy
from ascribe_lab.models.loading import load_causal_lm, save_model
from ascribe_lab.pivots import (
    Candidate,
    Reference,
    extract,
    make_verifier,
    profile,
    read_responses,
    report,
    score,
    select,
    write_pivots,
    write_turns,
)
from ascribe_lab.rollout import Model, Plan, Request, Sample, Sampling, Setup, arrow, play, rollout
from ascribe_lab.train.config import Config
from ascribe_lab.train.launch import train
from ascribe_lab.train.load import load_config
from ascribe_lab.train.rounds import Rounds, train_in_rounds
from benchmarks import common, tiny

common.PACKAGES = ("ascribe-rl", "numpy", "torch", "transformers", "trl")

ALWAYS = (
    "Other commands: get [count] [item]; inventory.",
    "Answer with one action and nothing else:",
    "Give the final answer inside \\boxed{}.",
)
"""What every prompt says; the tiny policy does not read it."""
OPTIONS = {"split": "train", "depth": [1, 2], "inventory": True}
WORLD = {"environment": "textcraft", "options": OPTIONS, "style": "plain"}
K = 8
METHODS = ("pivots", "rounds", "progress", "episodes", "supervised")
AHEAD = 0.05
"""By how much success must have risen before turns are counted."""
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}<answer>"

SKILLS = ("trained_goals", "other_goals", "sums")
RATIO = "times_those_of_episodes"

Curve = list[dict[str, Any]]


@dataclass(frozen=True)
class Size:
    """How large everything is."""

    trained: tuple[int, ...]
    others: tuple[int, ...]
    """Goals with short lists of recipes."""
    turns: int
    """Of an episode."""
    warm: int
    """Updates of the first teaching."""
    stray: float
    """Share of steps in which the first teacher does anything."""
    iterations: int
    every: int = 6
    """Iterations from one evaluation to the next."""
    traces: int = 500
    profiled: int = 200
    """Candidates, drawn at random."""
    pivot_groups: int = 16
    episode_groups: int = 4
    """Groups of 8 in an iteration, of single turns and of episodes."""
    rate: float = 1e-3
    kl: float = 0.01
    epochs: float = 3.0
    """Of supervised learning; copies of a turn count."""
    tokens: int = 20
    trials: int = 24
    """Episodes of each goal in an evaluation."""
    seeds: tuple[int, ...] = (0, 1, 2)


SIZES = {
    "short": Size((17, 63, 64, 146), (16, 120), 5, 240, 0.55, 24),
    "long": Size((109, 149, 150, 281), (252, 123), 8, 400, 0.5, 36),
}
QUICK = {
    "short": Size(
        (17, 63), (16,), 3, 2, 0.55, 1, 1, profiled=8, pivot_groups=1, episode_groups=1,
        epochs=0.05, tokens=8, trials=1, seeds=(0,),
    )
}  # fmt: skip


def main() -> None:
    """Run all seeds and print."""
    with common.Figures("learning_pivots") as figures, tempfile.TemporaryDirectory() as name:
        torch.set_num_threads(1)
        curves: dict[str, list[dict[str, Curve]]] = {}
        for kind, size in (QUICK if figures.quick else SIZES).items():
            curves[kind] = []
            facts = []
            for seed in size.seeds:
                run = Run(Path(name) / kind / str(seed), seed, size)
                curves[kind].append(run.all())
                facts.append(run.facts)
                figures.write_curve(points(curves))
            tell(figures, kind, facts, curves[kind])


class Run:
    """One seed."""

    def __init__(self, folder: Path, seed: int, size: Size) -> None:
        folder.mkdir(parents=True)
        self.folder, self.seed, self.size = folder, seed, size
        self.sums = tiny.write_questions(folder / "sums.jsonl")
        self.start = self.write_start()
        self.facts: dict[str, float] = {}
        """What the profile found."""

    def all(self) -> dict[str, Curve]:
        """The curve of each method."""
        turns, same, nearer = self.candidates(), {"effect": WORLD}, {"progress": WORLD}
        journal, asked = self.ask(turns)
        first = {"iteration": 0, "turns": 0, "training_turns": 0, **self.measure(self.start)}
        found: dict[str, Curve] = {
            "pivots": self.by_pivots("pivots", self.choose(turns, journal, same), asked),
            "rounds": self.by_rounds(turns, same, asked),
            "progress": self.by_pivots("progress", self.choose(turns, journal, nearer), asked),
            "episodes": self.by_episodes(),
            "supervised": [{"turns": 0, **self.measure(self.copy(turns))}],
        }
        return {method: [first, *curve] for method, curve in found.items()}

    # The start, and the traces.

    def write_start(self) -> Path:
        """A policy that was taught a little of everything, by somebody clumsy."""
        goals = (*self.size.trained, *self.size.others) * max(1, self.size.warm // 2)
        told = self.taught(Setup("textcraft", OPTIONS, "plain", "serial"), goals, self.size.stray)
        sums = self.taught(self.counting(), range(100), 0.0)
        tokenizer = word_tokenizer([text for pair in told + sums for text in pair])
        chat = Chat(tokenizer)
        often = len(told) // len(sums) + 1
        lessons = [
            tiny.lesson(tokenizer, chat.prompt([{"role": "user", "content": prompt}]), response)
            for prompt, response in told + sums * often
        ]
        with torch.random.fork_rng(devices=[]):
            model = tiny.llama(
                tokenizer,
                self.seed,
                intermediate_size=128,
                max_position_embeddings=512,
                initializer_range=0.1,  # far from zero, so that attention is not uniform
                bos_token_id=None,
                tie_word_embeddings=True,
            )
        tiny.train(model, lessons, self.size.warm, 32, 6e-3, self.seed)
        return save_model(model, tokenizer, self.folder / "start")

    def taught(self, setup: Setup, tasks: Sequence[int], stray: float) -> list[tuple[str, str]]:
        """Prompts, and what somebody says who knows the way and often does anything."""
        setup = setup.with_expert()
        say = setup.agent.render
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
        tasks = self.size.trained
        chosen = [tasks[number % len(tasks)] for number in range(self.size.traces)]
        setup = Setup("textcraft", OPTIONS, "plain", "serial")
        plan = Plan(self.size.traces, 1, 40, 2000 + self.seed, "traces", chosen)
        write(arrow(play(setup, Model("expert"), plan)), self.folder / "traces.parquet")
        found = extract([self.folder / "traces.parquet"], seed=plan.seed).candidates
        # A file of rollouts does not say which task was asked for.
        task = {plan.trajectory_name(group, 0): chosen[group] for group in range(plan.groups)}
        return [
            replace(one, scene=replace(one.scene, task=task[one.origin.trace])) for one in found
        ]

    # The ways to learn.

    def ask(self, turns: list[Candidate]) -> tuple[Path, int]:
        """Profile some of the turns: the journal, and the answers that it holds."""
        places = np.random.default_rng(self.seed).permutation(len(turns))[: self.size.profiled]
        asked = [turns[place] for place in places]
        journal = self.folder / "answers.jsonl"
        reference = Reference("start", Sampling(max_tokens=self.size.tokens))
        done = profile(asked, policy_of(self.start), reference, journal, k=K, batch=256)
        return journal, done.asked

    def choose(self, turns: list[Candidate], journal: Path, spec: dict[str, Any]) -> Path:
        """Judge the answers and select: the file of pivots."""
        (name,) = spec
        answers = list(read_responses(journal))
        known = {answer.candidate for answer in answers}
        asked = [turn for turn in turns if turn.id in known]
        scored = score(asked, answers, make_verifier(spec), K)
        found, told = select(scored), report(scored)
        self.facts |= {
            "turns": len(turns),
            "answers": len(answers),
            f"without_signal_{name}": (told["without_signal"] or {"value": 1.0})["value"],
            f"kept_{name}": len(found.kept) / len(asked),
            f"missed_by_strict_{name}": (told["miss_rate"] or {"value": 0.0})["value"],
        }
        kept = found.kept or tuple(scored)  # a quick run knows nothing, and no turn is mixed
        path = self.folder / f"{name}.jsonl"
        write_pivots(path, kept, {"verifier": spec})
        return path

    def copy(self, turns: list[Candidate]) -> Path:
        """Supervised learning on all turns of the traces."""
        model, tokenizer = load_causal_lm(self.start)
        chat = Chat(tokenizer)
        lessons = [
            tiny.lesson(tokenizer, chat.prompt(one.messages), one.action)
            for one in turns
            for _ in range(1 + one.copies)
        ]
        steps = max(1, round(self.size.epochs * len(lessons) / 32))
        tiny.train(model, lessons, steps, 32, self.size.rate, self.seed)
        return save_model(model, tokenizer, self.folder / "supervised")

    def by_pivots(self, method: str, pivots: Path, asked: int) -> Curve:
        """GRPO on pivots."""
        environment = {"name": "pivots", "options": {"file": str(pivots)}}
        config = self.config(method, environment, None)
        train(config, "trl")
        return self.curve(config, lambda _: asked)

    def by_rounds(self, turns: list[Candidate], spec: dict[str, Any], asked: int) -> Curve:
        """The same, with pivots that are chosen anew."""
        size, file = self.size, self.folder / "candidates.jsonl"
        write_turns(file, turns)
        options = {"file": str(file), "verifier": spec}
        config = self.config("rounds", {"name": "pivots", "options": options}, None)
        sample = max(1, asked // K * size.every // size.iterations)
        done = train_in_rounds(config, "trl", Rounds(size.every, K, sample=sample, batch=256))
        if not done[0].kept:  # a quick run knows nothing, and no turn is mixed
            return []
        told = np.cumsum([one.answers for one in done])
        return self.curve(config, lambda number: int(told[(number - 1) // size.every]))

    def by_episodes(self) -> Curve:
        """GRPO on whole episodes."""
        environment = {"name": "textcraft", "options": OPTIONS}
        config = self.config("episodes", environment, self.size.trained)
        train(config, "trl")
        return self.curve(config, lambda _: 0)

    def config(
        self, method: str, environment: dict[str, Any], tasks: Sequence[int] | None
    ) -> Config:
        """A run of ``ascribe train``."""
        size, single = self.size, environment["name"] == "pivots"
        groups = size.pivot_groups if single else size.episode_groups
        document = {
            "model": {"path": str(self.start)},
            "environment": {**environment, "style": "plain", "pool": "serial"},
            "recipe": {"name": "grpo"},
            "rollout": {
                "groups": groups,
                "size": K,
                "max_turns": 1 if single else size.turns,
                "max_tokens": size.tokens,
                "tasks": None if tasks is None else list(tasks),
            },
            "update": {
                "iterations": size.iterations,
                "learning_rate": size.rate,
                "loss": "token",
                "kl": size.kl,
                "rows_per_pass": K * min(groups, 4),
                "seed": self.seed,
            },
            "output": {
                "folder": str(self.folder / method),
                "save_every": size.every,
                "keep": None,
            },
            "engine": {"trl": {"use_cpu": True, "bf16": False, "gradient_checkpointing": False}},
        }
        file = self.folder / f"{method}.yaml"
        file.write_text(json.dumps(document))  # which is YAML too
        return load_config(file).config

    def curve(self, config: Config, asked: Callable[[int], int]) -> Curve:
        """What the checkpoints of a run can do, and the turns that it took."""
        size, folder = self.size, Path(config.output.folder)
        each = [config.episodes * line["ascribe/turns"] for line in read_metrics(folder)]
        found = []
        for number in range(size.every, len(each) + 1, size.every):
            played = round(sum(each[:number]))
            last = number + size.every > len(each)
            shares = self.measure(folder / f"checkpoint-{number}", everything=last)
            turns = {"turns": asked(number) + played, "training_turns": played}
            found.append({"iteration": number, **turns, **shares})
        return found

    # What a policy can do.

    def measure(self, model: Path, *, everything: bool = True) -> dict[str, float]:
        """Shares of success, as the policy is sampled in training."""
        policy, size = policy_of(model), self.size
        goals = Setup("textcraft", OPTIONS, "plain", "serial")
        asked: dict[str, tuple[Setup, Sequence[int], int]] = {
            "trained_goals": (goals, size.trained * size.trials, size.turns)
        }
        if everything:
            asked["other_goals"] = (goals, size.others * size.trials, size.turns)
            asked["sums"] = (self.counting(), [*range(100)] * min(4, size.trials), 1)
        return {
            name: won(policy, setup, tasks, turns, size.tokens)
            for name, (setup, tasks, turns) in asked.items()
        }


def policy_of(model: Path) -> TransformersPolicy:
    """Who answers."""
    return TransformersPolicy.load(model, batch_size=128)


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
    return tiny.wrapped(words, TEMPLATE, unk_token="<unknown>", clean_up_tokenization_spaces=False)


# What comes out.


def tell(
    figures: common.Figures,
    kind: str,
    facts: Sequence[dict[str, float]],
    curves: Sequence[dict[str, Curve]],
) -> None:
    """Means over seeds, with their intervals."""
    for name in facts[0]:
        unit = name if name in {"turns", "answers"} else "share"
        mean = statistics.mean(one[name] for one in facts)
        figures.emit(f"{kind}: profile", name, mean, unit, "higher")
    for skill in SKILLS:
        start = [found["pivots"][0][skill] for found in curves]
        emit(figures, f"{kind}: start", skill, start)
    for method in METHODS:
        for skill in SKILLS:
            end = [found[method][-1][skill] for found in curves]
            change = [found[method][-1][skill] - found[method][0][skill] for found in curves]
            emit(figures, f"{kind}: {method}", skill, end)
            emit(figures, f"{kind}: {method}", f"{skill}_change", change, low=-1.0)
    for method in METHODS[:3]:
        tell_turns(figures, f"{kind}: turns of {method} to the same success", method, curves)


def emit(
    figures: common.Figures, case: str, name: str, values: list[float], low: float = 0.0
) -> None:
    """A mean and its interval; one value has none."""
    if len(values) == 1:
        figures.emit(case, name, values[0], "share", "higher")
    else:
        figures.emit_interval(case, name, common.mean_interval(values, low), "share", "higher")


def tell_turns(
    figures: common.Figures, case: str, method: str, curves: Sequence[dict[str, Curve]]
) -> None:
    """How many turns a method needs for what whole episodes reach too."""
    counted = [one for found in curves if (one := turns_to_reach(found, method)) is not None]
    figures.emit(case, "seeds", len(counted), "seeds", "higher")
    if not counted:
        return
    for name in counted[0]:
        values = [one[name] for one in counted]
        if name == RATIO:
            figures.emit_interval(case, name, common.mean_range(values), "ratio", "lower")
        else:
            figures.emit(case, name, statistics.mean(values), "turns", "lower")


def turns_to_reach(found: dict[str, Curve], method: str) -> dict[str, float] | None:
    """Turns to the lower one of the successes of a method and of episodes; None without any."""
    skill = SKILLS[0]
    target = min(found[name][-1][skill] for name in (method, "episodes"))
    if target < found[method][0][skill] + AHEAD:
        return None

    def first(name: str, count: str) -> float:
        return float(next(one[count] for one in found[name][1:] if one[skill] >= target))

    return {
        "turns": first(method, "turns"),
        "training_turns": first(method, "training_turns"),
        "turns_of_episodes": first("episodes", "turns"),
        RATIO: first(method, "turns") / first("episodes", "turns"),
    }


def points(curves: dict[str, list[dict[str, Curve]]]) -> list[dict[str, Any]]:
    """One line for each point of all curves so far."""
    return [
        {"goals": kind, "method": method, "seed": seed, **point}
        for kind, of_kind in curves.items()
        for seed, found in enumerate(of_kind)
        for method, curve in found.items()
        for point in curve
    ]


if __name__ == "__main__":
    main()
