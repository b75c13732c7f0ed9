"""Rewards of turns by hand against ours, in the stock tool loops of TRL and verl.

A small model (on verl, a script that draws responses) walks through rooms with tools: several calls
in one turn, calls that fail, calls of tools that do not exist or with wrong arguments, calls
without a reward, turns without a call, results that do not fit and are rolled back, and calls after
the last turn. The environment keeps a log of the calls that reach it. The rewards and states of
turns, and which episodes were truncated, follow by hand from this log and the engine's own
messages, and are compared with the steps that our trainer credits. Rewards are multiples of 1/8, so
that sums are exact.
"""

import json
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import common
import numpy as np

sys.path.insert(0, str(common.ROOT))

from ascribe.steps.files import read_table
from tests.tool_model import CALL, TEMPLATE, train_tool_model

common.PACKAGES = ("ascribe-rl", "numpy", "torch", "transformers", "trl", "verl")

TASK = "Leave the hall."
TOOLS = ("move", "push", "look")
TURNS = 3
"""Turns that an episode may have."""
VIEW = "You see " + "a door and " * 12 + "a window."
RESPONSES = (
    CALL % ("move", "room", 1),
    CALL % ("move", "room", 2),
    "\n".join([CALL % ("move", "room", 1), CALL % ("move", "room", 2)]),
    "\n".join([CALL % ("push", "room", 1), CALL % ("move", "room", 1)]),
    "\n".join([CALL % ("fly", "room", 2), CALL % ("look", "room", 0)]),
    CALL % ("fly", "room", 1),
    CALL % ("move", "door", 1),
    CALL % ("push", "room", 2),
    CALL % ("look", "room", 1),
    "Done.",
)


class Rooms:
    """Rooms to walk through; keeps a log of its calls: name, room, reward and room afterwards."""

    def reset(self, **_: Any) -> str:
        """Begin an episode."""
        self.log: list[tuple[str, int, float, int]] = []
        self.room, self.reward_so_far = 0, 0.0
        return " You are in room 0."

    @property
    def state_key(self) -> str:
        """The state of the next turn."""
        return f"room {self.room}"

    def _called(self, name: str, room: int, reward: float) -> None:
        self.log.append((name, room, reward, self.room))
        self.reward_so_far += reward

    def move(self, room: int) -> str:
        """Go to a room.

        Args:
            room: its number.
        """
        self.room = room
        self._called("move", room, (1 + room % 3) / 8)
        return f"You are in room {room}."

    def push(self, room: int) -> str:
        """Push a door that does not open, which costs something.

        Args:
            room: behind the door.
        """
        self._called("push", room, -0.25)
        raise RuntimeError(f"The door to room {room} is shut.")

    def look(self, room: int) -> str:
        """Look into a room, for nothing.

        Args:
            room: its number.
        """
        self._called("look", room, 0.0)
        return VIEW

    def get_reward(self) -> float:
        """What was earned, and more if the episode ends in room 2."""
        return self.reward_so_far + 0.5 * (self.room == 2)


@dataclass(frozen=True)
class Episode:
    """An episode as the engine and the environment have it, and the steps that we credited."""

    messages: list[dict[str, Any]]
    """Of the engine: responses with ``tool_calls``, and results with the role ``tool``."""
    ended: bool
    """Whether its last token ends a turn."""
    log: list[tuple[str, int, float, int]]
    reward: float
    steps: list[tuple[float, str, bool]]
    """Reward and state of each turn, and whether a limit cut the episode there."""


def by_hand(episode: Episode, kinds: Counter[str]) -> list[tuple[float, str, bool]]:
    """The steps of an episode, from the log and the messages; ``kinds`` counts what happened."""
    steps: list[tuple[float, str, bool]] = []
    room, log = 0, list(episode.log)
    for message in episode.messages:
        if message["role"] != "assistant":
            continue
        state, earned, reached, calls = f"room {room}", 0.0, 0, message.get("tool_calls") or []
        for function in (call["function"] for call in calls):
            name, given = function["name"], function["arguments"]
            if name not in TOOLS or not isinstance(given, dict) or list(given) != ["room"]:
                kinds["calls of no tool, or with wrong arguments"] += 1
            elif log:
                found, argument, reward, room = log.pop(0)
                assert (found, argument) == (name, given["room"])
                earned, reached = earned + reward, reached + 1
                kinds["calls that fail"] += name == "push"
                kinds["calls without a reward"] += name == "look"
        kinds["turns with several calls"] += reached > 1
        kinds["turns without a call"] += not calls
        is_last = message is episode.messages[-1]
        kinds["turns whose results were rolled back"] += is_last and reached > 0
        assert not reached or len(steps) < TURNS - 1
        kinds["turns at the limit of turns"] += bool(calls) and len(steps) == TURNS - 1
        steps.append((earned, state, False))
    assert not log
    last = episode.messages[-1]
    cut = not episode.ended or last["role"] == "tool" or bool(last.get("tool_calls"))
    kinds["episodes that were truncated"] += cut
    rest = episode.reward - sum(entry[2] for entry in episode.log)
    steps[-1] = (steps[-1][0] + rest, steps[-1][1], cut)
    return steps


def trl(folder: Path, iterations: int, kind: Any = None, **credit: Any) -> list[Episode]:
    """Episodes of TRL's own loop, under our trainer or one of another ``kind``."""
    import torch  # noqa: PLC0415
    from datasets import Dataset  # noqa: PLC0415
    from trl import GRPOConfig  # noqa: PLC0415
    from trl.chat_template_utils import add_response_schema, qwen2_5_chat_template  # noqa: PLC0415

    from ascribe.engines.trl import AscribeTrainer  # noqa: PLC0415

    torch.manual_seed(0)
    model, tokenizer = train_tool_model(chats(), TEMPLATE)
    # TRL knows how to read calls by the template; these are in Qwen's form.
    tokenizer.chat_template = qwen2_5_chat_template
    add_response_schema(tokenizer)
    tokenizer.chat_template = TEMPLATE
    played: list[Any] = []

    def note(completions: Any, completion_ids: Any, environments: Any, **_: Any) -> list[float]:
        for messages, ids, each in zip(completions, completion_ids, environments, strict=True):
            ended = ids[-1] == tokenizer.eos_token_id
            played.append((list(messages), ended, list(each.log), each.get_reward()))
        return [0.0] * len(completions)

    credit = credit or {"recipe": "gigpo", "state": "key", "dump_dir": folder}
    trainer = (kind or AscribeTrainer)(
        model,
        note,
        GRPOConfig(
            output_dir=str(folder),
            max_steps=iterations,
            per_device_train_batch_size=16,
            num_generations=8,
            max_completion_length=150,
            max_tool_calling_iterations=TURNS - 1,
            learning_rate=0.0,
            bf16=False,
            use_cpu=True,
            gradient_checkpointing=False,
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
        ),
        Dataset.from_list([{"prompt": [{"role": "user", "content": TASK}]}] * 64),
        processing_class=tokenizer,
        environment_factory=Rooms,
        **credit,
    )
    trainer.train()
    steps: list[list[tuple[float, str, bool]]] = []
    for number in range(iterations):
        table = read_table(folder / f"rollouts_{number:05d}.parquet")
        names, states = table.trajectory.texts(), table.state.texts()
        cut = table.flag("truncated", default=False).tolist()
        columns = zip(table.reward.tolist(), states, cut, strict=True)
        rows: dict[str, list[Any]] = {}
        for name, row in zip(names, columns, strict=True):
            rows.setdefault(str(name), []).append(row)
        steps += rows.values()  # in the order of episodes
    return [Episode(*facts, ours) for facts, ours in zip(played, steps, strict=True)]


def verl(_: Path, iterations: int) -> list[Episode]:
    """Episodes of verl's own ``ToolAgentLoop``, with responses that are drawn at random."""
    os.environ.setdefault("VERL_PLATFORM", "cpu")
    from pytest import MonkeyPatch  # noqa: PLC0415, PT013

    from ascribe.engines.verl.loops import LoopSteps  # noqa: PLC0415
    from ascribe.sessions.sequences import START  # noqa: PLC0415
    from lab.tests.train import verl_script  # noqa: PLC0415

    rollout, random = "actor_rollout_ref.rollout", np.random.default_rng(0)
    turns = f"{rollout}.multi_turn.max_assistant_turns={TURNS}"
    outputs, facts = [], []
    for _number in range(16 * iterations):
        rooms, texts = Rooms(), [str(random.choice(RESPONSES)) for _turn in range(TURNS)]
        rooms.reset()
        output = verl_script.play(texts, verl_tools(rooms), turns, f"{rollout}.response_length=220")
        played = int((np.diff(output.response_mask, prepend=0) == 1).sum())
        messages = [{"role": "assistant", "tool_calls": calls_in(text)} for text in texts[:played]]
        ended = output.response_ids[-1] == verl_script.tokenizer().eos_token_id
        outputs.append(output)
        facts.append((messages, ended, rooms.log, rooms.get_reward()))
    with MonkeyPatch.context() as patch:
        batch = verl_script.as_batch(outputs, [reward for *_, reward in facts], patch)
        keys = ("+ascribe.rewards=tool_rewards", "+ascribe.state=key", "+ascribe.check=keep")
        steps = LoopSteps(verl_script.verl_config(*keys))
        table = steps.credit(batch, verl_script.tokenizer(), None, {}, version=0)[0].table
    assert table is not None
    assert table.truncated is not None
    rows: dict[int, list[Any]] = {number: [] for number in range(len(facts))}
    columns = (table.trajectory.texts(), table.reward, table.state.texts(), table.truncated)
    for name, reward, state, cut in zip(*columns, strict=True):
        said = "room 0" if state == START else str(state)  # nothing was reported yet
        rows[int(str(name).rpartition("/")[2])].append((float(reward), said, bool(cut)))
    return [Episode(*each, rows[number]) for number, each in enumerate(facts)]


def verl_tools(rooms: Rooms) -> list[Any]:
    """The methods of an environment as verl's tools; a call that raises returns no reward."""
    from verl.tools.base_tool import BaseTool  # noqa: PLC0415
    from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse  # noqa: PLC0415

    class Method(BaseTool):  # type: ignore[misc]
        async def execute(self, _: str, parameters: dict[str, Any], **__: Any) -> Any:
            try:
                text = getattr(rooms, self.name)(**parameters)
            except RuntimeError:
                rooms.log[-1] = (*rooms.log[-1][:2], 0.0, rooms.room)
                raise
            return ToolResponse(text=text), rooms.log[-1][2] or None, {"state": rooms.state_key}

    nothing = {"type": "object", "properties": {}, "required": []}
    return [
        Method(
            {},
            OpenAIFunctionToolSchema(
                type="function", function={"name": name, "description": name, "parameters": nothing}
            ),
        )
        for name in TOOLS
    ]


def calls_in(text: str) -> list[dict[str, Any]]:
    """The calls that a response holds."""
    return [{"function": json.loads(call)} for call in re.findall(r"{\"name\".*", text)]


def chats() -> list[tuple[list[dict[str, Any]], str]]:
    """Chats with some turns, and the next response."""
    made = []
    for seed in range(240):
        random = np.random.default_rng(seed)
        messages: list[dict[str, Any]] = [{"role": "user", "content": f"{TASK} You are in room 0."}]
        for _ in range(random.integers(4)):
            messages.append({"role": "assistant", "content": str(random.choice(RESPONSES[:-1]))})
            results = (VIEW, "You are in room 1.", "{'error': 'The door to room 1 is shut.'}")
            messages.append({"role": "tool", "name": "move", "content": random.choice(results)})
        made.append((messages, str(random.choice(RESPONSES))))
    return made


ENGINES: dict[str, Callable[[Path, int], list[Episode]]] = {"trl": trl, "verl": verl}


def main() -> None:
    """Compare and print."""
    engine = {"choices": sorted(ENGINES), "default": "trl", "help": "whose stock loop is played"}
    with common.Figures("against_stock", engine=engine) as figures:
        os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
        name = figures.options.engine
        with tempfile.TemporaryDirectory() as folder:
            episodes = ENGINES[name](Path(folder), 2 if figures.quick else 16)
        kinds: Counter[str] = Counter()
        steps = [
            pair
            for episode in episodes
            for pair in zip(episode.steps, by_hand(episode, kinds), strict=True)
        ]
        for kind, count in kinds.items():
            figures.emit(f"{name}: {kind}", "count", count, "times", "higher", goal=1.0)
        wrong = {
            "largest_difference": max(abs(ours[0] - hand[0]) for ours, hand in steps),
            "different_states": sum(ours[1] != hand[1] for ours, hand in steps),
            "different_truncation": sum(ours[2] != hand[2] for ours, hand in steps),
        }
        figures.emit(name, "turns", len(steps), "turns", "higher")
        for metric, value in wrong.items():
            unit = "reward" if metric == "largest_difference" else "turns"
            figures.emit(name, metric, value, unit, "lower", goal=0.0)


if __name__ == "__main__":
    main()
