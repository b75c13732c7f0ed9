"""TRL's own loop with and without Ascribe's credit: two curves in a picture, on a laptop.

    python examples/trl_quickstart.py curves.png

A model of two layers plays four rooms of Sokoban with one tool. A model with random weights never
calls a tool, so it is first taught: it imitates 160 games in these four rooms, whose player makes
the best move one time in four, and a random one otherwise. Every run begins with that model. What
a script changes to get credit is marked "credit".
"""

import copy
import sys

import numpy as np
import torch
from datasets import Dataset
from matplotlib import pyplot as plt
from transformers import PrinterCallback
from trl import GRPOConfig, GRPOTrainer

from ascribe.engines.trl import AscribeTrainer  # credit
from ascribe_lab.envs.sokoban import MOVES, Sokoban
from ascribe_lab.train.tiny import imitate

ROOMS = 4
QUESTION = "Push the box X onto the target O.\n"
SETTINGS = {
    "num_generations": 8,
    "per_device_train_batch_size": 8 * ROOMS,
    "learning_rate": 1e-3,  # chosen for GRPOTrainer alone, with a seed that is not shown
    "lr_scheduler_type": "constant",
}
ON_CPU = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False}
LOG = {"logging_steps": 1, "report_to": "none", "disable_tqdm": True, "save_strategy": "no"}


class Warehouse:
    """An environment as TRL takes it: its public methods are the model's tools."""

    def reset(self, room, **_):  # noqa: D102
        self.game = Sokoban(size=5, boxes=[1], horizon=10, expert=True)
        text, self.info = self.game.reset(options={"task": room})
        self.over = self.won = False
        return text

    def go(self, to: str) -> str:
        """Go one step.

        Args:
            to: up, down, left or right.
        """
        if not self.over:
            text, _, self.won, cut, self.info = self.game.step(to)
            self.over = self.won or cut
        return "The game is over." if self.over else text

    def get_reward(self):  # noqa: D102
        return float(self.won)


def demonstration(number):
    """A chat of the player that the model imitates."""
    random, room = np.random.default_rng(number), Warehouse()
    chat = [{"role": "user", "content": QUESTION + room.reset(number % ROOMS)}]
    while not room.over:
        best = room.info["expert_action"] if random.random() < 1 / 4 else None
        move = {"to": best or str(random.choice(MOVES))}
        call = {"type": "function", "function": {"name": "go", "arguments": move}}
        chat.append({"role": "assistant", "content": "", "tool_calls": [call]})
        chat.append({"role": "tool", "name": "go", "content": room.go(**move)})
    return [*chat, {"role": "assistant", "content": "Done."}]


def train(kind, model, tokenizer, seed, iterations, **credit):
    """The share of games that were won in each iteration: eight attempts at each room."""
    task = {"prompt": [{"role": "user", "content": QUESTION}]}
    trainer = kind(
        copy.deepcopy(model),
        args=GRPOConfig("runs", seed=seed, max_steps=iterations, **SETTINGS, **ON_CPU, **LOG),
        train_dataset=Dataset.from_list([{**task, "room": room} for room in range(ROOMS)]),
        processing_class=tokenizer,
        environment_factory=Warehouse,
        **credit,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    curve = [entry["reward"] for entry in trainer.state.log_history if "reward" in entry]
    print(f"{kind.__name__:14} seed {seed}: won", *(f"{won:.2f}" for won in curve), flush=True)
    return curve


def compare(picture, seeds=(0, 1, 2), iterations=14):
    """Train with and without credit from each seed, draw the curves, and say what they show."""
    torch.set_num_threads(1)  # more threads only cost time with so small a model
    start = imitate([demonstration(number) for number in range(160)], tools=[Warehouse().go])
    credit = {"recipe": "sbc", "state": "tool"}  # credit
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    areas = []
    for kind, given, colour in ((GRPOTrainer, {}, "C0"), (AscribeTrainer, credit, "C1")):
        curves = np.array([train(kind, *start, seed, iterations, **given) for seed in seeds])
        axes.plot(curves.T, colour, alpha=0.35, linewidth=0.8)
        axes.plot(curves.mean(0), colour, linewidth=2.5, label=kind.__name__)
        areas.append(curves.mean(1))
    axes.set(xlabel="updates, each from 32 games", ylabel="share of games won", ylim=(0, 1))
    axes.legend(title="mean of the seeds (thin: each seed)")
    figure.savefig(picture, dpi=150)
    gains = areas[1] - areas[0]
    half = 4.30 * gains.std(ddof=1) / np.sqrt(len(gains))  # Student's t of three seeds: 95 %
    words = "faster" if gains.mean() > half else "slower"
    told = f"credit learned {words}" if abs(gains.mean()) > half else "no difference can be told"
    print(f"Games won with credit minus without: {gains.mean():+.3f} ± {half:.3f}: {told}.")


if __name__ == "__main__":
    compare(sys.argv[1])
