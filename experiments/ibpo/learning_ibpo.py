"""GSPO against IBPO on GSPO, with the same number of sampled tokens.

Both arms begin with the same policy, on the same sums, with the same advantages but for the bonus
of wrong answers and the corrections that are learned from. Tokens of corrections count as sampled.
The policy has two layers and reads single characters; it was taught sums and corrections of sums
for a short while. ``success`` is that of the answers to sums that are in neither, four samples
each, when the budget of tokens is spent; ``mean_success`` is that of the answers in training, over
the tokens sampled so far. ``low`` and ``high`` are the smallest and the largest of the seeds.

    python -m experiments.ibpo.learning_ibpo
    python -m experiments.ibpo.learning_ibpo --model FOLDER      # one run of each arm by a model

With ``--model`` questions come from ``scripts/make_arithmetic.py``, and one run with one seed says
little about one arm against the other.
"""

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PrinterCallback, TrainerCallback
from trl import GRPOConfig

from ascribe.estimators import GRPO, IBPO, Recipe
from ascribe_lab.agents import Agent, CorrectionPrompt, LastTurns, SendText, TextPrompt, WholeText
from ascribe_lab.envs import Outcome, Start, TextEnvironment
from ascribe_lab.models import TransformersPolicy, load_chat
from ascribe_lab.models.loading import save_model
from ascribe_lab.rollout import Plan, Sampling, Setup, rollout, success
from ascribe_lab.train.corrections import Corrections
from ascribe_lab.train.trl.episodes import EpisodeTrainer
from benchmarks import tiny
from benchmarks.common import ROOT, Figures, mean_range

sys.path.append(str(Path(__file__).parent))  # where ``learning_ibpo:Sums`` is found

LARGEST = 29
"""Of the numbers that are added."""
SHORT = CorrectionPrompt(body="{task}{attempts}", attempt="[{text}]", fence=(), tokens=())
ARMS: dict[str, Recipe] = {
    "gspo": GRPO(std="population", std_epsilon=1e-8),
    "ibpo": IBPO(baseline="task", mean="row"),
}
"""What differs between them; both divide by the same standard deviation."""


class Sums(TextEnvironment[int]):
    """One sum; the action is its result."""

    tasks = (LARGEST + 1) ** 2

    def __init__(self) -> None:
        super().__init__(horizon=1)

    def begin(self, task: int, generator: np.random.Generator) -> Start[int]:  # noqa: ARG002
        return Start(sum(numbers(task)), asked(task), asked(task), "sums")

    def act(self, episode: int, action: str) -> Outcome:
        right = action.strip() == str(episode)
        return Outcome("right" if right else "wrong", float(right), terminated=True, won=right)

    def admissible(self, episode: int) -> None:  # noqa: ARG002
        return None

    def state_key(self, episode: int, observation: str) -> str:  # noqa: ARG002
        return observation


def numbers(task: int) -> tuple[int, int]:
    """The two numbers of a task."""
    return divmod(task, LARGEST + 1)


def asked(task: int) -> str:
    """A sum as the policy reads it."""
    one, other = numbers(task)
    return f"{one}+{other}="


@dataclass(frozen=True)
class World:
    """What is played, and how much."""

    setup: Setup
    corrections: Corrections
    tasks: list[int]
    """To learn from."""
    held_out: list[int]
    budget: int
    """Sampled tokens of a run."""
    repeats: int
    """Samples of each task that is held out."""
    arguments: dict[str, Any]
    """Of ``GRPOConfig``, besides those that all runs share."""
    agent: Agent | None = None
    options: dict[str, Any] = field(default_factory=dict)
    """Of the trainer."""


def tiny_world(*, quick: bool) -> World:
    """Sums for a tiny policy."""
    order = Random(0).sample(range(Sums.tasks), Sums.tasks)
    agent = Agent(TextPrompt("{observation}"), LastTurns(0), WholeText(), SendText())
    return World(
        Setup("learning_ibpo:Sums", {}, "plain", "serial", 1),
        Corrections(prompt=SHORT),
        tasks=order[200:],
        held_out=order[: 50 if quick else 200],
        budget=1_500 if quick else 100_000,
        repeats=4,
        arguments={
            "per_device_train_batch_size": 32,
            "generation_batch_size": 64,
            "num_generations": 8,
            "max_completion_length": 4,
            "learning_rate": 1e-4,
        },
        agent=agent,
    )


def real_world(file: Path, *, quick: bool) -> World:
    """Sums, differences and products in words, for a model that can read."""
    count = 1_000
    words = ["--out", str(file), "--count", str(count)]
    script = str(ROOT / "scripts" / "make_arithmetic.py")
    subprocess.run([sys.executable, script, *words], check=True)
    return World(
        Setup("maths", {"file": str(file), "judge": "number"}, "plain", "serial", 1),
        Corrections(),
        tasks=list(range(100, count)),
        held_out=list(range(8 if quick else 100)),
        budget=500 if quick else 8_000,
        repeats=1,
        arguments={
            "per_device_train_batch_size": 4,
            "generation_batch_size": 24,
            "gradient_accumulation_steps": 3,
            "num_generations": 6,
            "max_completion_length": 48,
            "learning_rate": 1e-5,
            "bf16": True,
        },
        options={"sampling_dtype": "bfloat16", "context": 1024},
    )


# The policy at the start.


def write_start(folder: Path, world: World, *, quick: bool) -> Path:
    """A policy that was taught some sums, and to put right what stands beside them."""
    tokenizer = characters()
    model = tiny.llama(tokenizer, 0, hidden_size=96, intermediate_size=256)
    random = Random(0)
    lessons = []
    for _ in range(6_000):
        task = random.choice(world.tasks)
        prompt, result = asked(task), sum(numbers(task))
        if random.random() < 0.4:
            shown = [str(max(0, result + random.randint(-3, 3))) for _ in range(2)]
            shown[random.randrange(2)] = str(result if random.random() < 0.5 else result + 10)
            prompt = SHORT(prompt, shown[0], shown[1:])[0]["content"]
        ids = tuple(tokenizer(prompt)["input_ids"])
        lessons.append(tiny.lesson(tokenizer, ids, str(result)))
    steps = 150 if quick else 300
    tiny.train(model, lessons, steps, 64, learning_rate=3e-3)
    return save_model(model, tokenizer, folder)


def characters() -> Any:
    """A tokenizer of single characters, whose chat is the bare message."""
    known = ["<pad>", "<end>", *"0123456789+=[]\n"]
    made = Tokenizer(models.WordLevel({text: i for i, text in enumerate(known)}, unk_token="<pad>"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("[\\s\\S]"), "isolated")
    made.decoder = decoders.Fuse()
    return tiny.wrapped(made, "{{ messages[-1]['content'] }}")


# Runs.


def run(world: World, model: Path, arm: str, seed: int, folder: Path) -> Any:
    """Train one arm until its tokens are spent; the trainer, which has the curve."""
    arguments = {
        "output_dir": str(folder),
        # More than the budget allows: every answer has a token.
        "max_steps": 2 * (1 + world.budget // world.arguments["generation_batch_size"]),
        # GSPO: ratios of whole answers, with the clips of its paper; two updates an iteration.
        "importance_sampling_level": "sequence",
        "loss_type": "grpo",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
        "beta": 0.0,
        "lr_scheduler_type": "constant",
        "model_init_kwargs": {"dtype": "float32", "local_files_only": True},
        "bf16": False,
        "use_cpu": True,
        "gradient_checkpointing": False,
        "report_to": "none",
        "logging_steps": 2,
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": seed,
    }
    trainer = EpisodeTrainer(
        str(model),
        GRPOConfig(**(arguments | world.arguments)),
        setup=world.setup,
        recipe=ARMS[arm],
        agent=world.agent,
        tasks=world.tasks,
        corrections=world.corrections if ARMS[arm].needs_corrections else None,
        **world.options,
    )
    trainer.add_callback(Spent(world.budget))
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer


class Spent(TrainerCallback):  # type: ignore[misc]
    """Ends a run when so many tokens were sampled."""

    def __init__(self, budget: int) -> None:
        self.budget = budget

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """Called after every update."""
        if state.num_input_tokens_seen >= self.budget:
            control.should_training_stop = True


def curve(trainer: Any) -> list[dict[str, float]]:
    """Success by sampled tokens, and what corrections did."""
    names = {"ascribe/success": "success", "ascribe/credit/corrections_right": "corrections_right"}
    return [
        {"tokens": line["num_tokens"]}
        | {short: line[name] for name, short in names.items() if name in line}
        for line in trainer.state.log_history
        if "ascribe/success" in line
    ]


def tried(world: World, model: Any, tokenizer: Any) -> float:
    """Success on the tasks that are held out."""
    agent = world.agent or world.setup.agent
    sampling = Sampling(1.0, 1.0, world.arguments["max_completion_length"])
    plan = Plan(
        len(world.held_out), world.repeats, 1, seed=9, tasks=world.held_out, sampling=sampling
    )
    model.eval()
    with world.setup.open_pool(len(world.held_out) * world.repeats) as pool:
        played = rollout(plan, pool, agent, TransformersPolicy(model, tokenizer))
    return success(played)[-1].rate


def mean_success(lines: list[dict[str, float]]) -> float:
    """Over tokens: an iteration counts as much as it has sampled."""
    tokens = np.diff([0.0, *(line["tokens"] for line in lines)])
    return float(np.average([line["success"] for line in lines], weights=tokens))


def tenths(lines: list[dict[str, float]]) -> list[list[dict[str, float]]]:
    """The lines in ten parts, or in as many as there are lines."""
    parts = min(10, len(lines))
    return [[lines[n] for n in part] for part in np.array_split(np.arange(len(lines)), parts)]


def main() -> None:
    """Run the arms for all seeds, one after another."""
    model_option = {"type": Path, "help": "a folder; one run of each arm"}
    with (
        Figures("learning_ibpo", model=model_option) as figures,
        tempfile.TemporaryDirectory() as folder,
    ):
        place, quick = Path(folder), figures.quick
        if figures.options.model is None:
            world = tiny_world(quick=quick)
            model, seeds = write_start(place / "model", world, quick=quick), (0, 1, 2)
        else:
            world = real_world(place / "questions.jsonl", quick=quick)
            model, seeds = figures.options.model, (0,)
        compare(figures, world, model, seeds[:1] if quick else seeds, place)


def compare(
    figures: Figures, world: World, model: Path, seeds: tuple[int, ...], place: Path
) -> None:
    """Emit the figures of all runs, and write their curves."""
    tokenizer = load_chat(model).tokenizer
    start = AutoModelForCausalLM.from_pretrained(model, local_files_only=True)
    figures.emit("start", "success", tried(world, start, tokenizer), "share", "higher")
    kept: list[dict[str, Any]] = []
    ends, means, mended = {}, {}, []
    for arm, recipe in ARMS.items():
        runs = [run(world, model, arm, seed, place / f"{arm}{seed}") for seed in seeds]
        curves = [curve(one) for one in runs]
        ends[arm] = np.array([tried(world, one.model, tokenizer) for one in runs])
        means[arm] = np.array([mean_success(lines) for lines in curves])
        case = f"{arm}, {world.budget:,} tokens, {len(seeds)} seeds"
        for name, values in (("success", ends[arm]), ("mean_success", means[arm])):
            figures.emit_interval(case, name, mean_range(values), "share", "higher")
        figures.emit(case, "iterations", np.mean([len(c) for c in curves]), "count", "higher")
        if recipe.needs_corrections:
            mended = curves
        kept += [
            {"arm": arm, "seed": seed, **line}
            for seed, lines in zip(seeds, curves, strict=True)
            for line in lines
        ]
    for name, values in (("success", ends), ("mean_success", means)):
        gap = values["ibpo"] - values["gspo"]
        figures.emit_interval("ibpo minus gspo", name, mean_range(gap), "share", "higher")
    for case, few in (("first tenth", slice(0, 1)), ("last tenth", slice(-1, None))):
        shares = [
            np.mean([line["corrections_right"] for line in tenths(lines)[few][0]])
            for lines in mended
        ]
        figures.emit(f"{case} of ibpo", "corrections_right", np.mean(shares), "share", "higher")
    figures.write_curve(kept)


if __name__ == "__main__":
    main()
