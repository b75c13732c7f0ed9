"""rLLM episodes: a file for each, or one per line.

An episode has a trajectory for each agent. A step has its own chat: what the agent saw and, last,
its response. Steps whose chats extend each other are one conversation; where the history was
rewritten, a new one begins. Credit is written back to ``step.advantage``.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.records import Message, Record, canonical, message

LIMITS = ("max_turns", "max_prompt", "max_response", "timeout")
"""How the reasons begin for which a limit ended an episode."""


def read(record: Record) -> Iterator[Conversation]:
    """The conversations of each trajectory; different agents are not compared."""
    name = (record.get("id") or record.get("episode_id")).text()
    task, _, rollout = name.rpartition(":")
    trajectories = record.get("trajectories").items(required=True)
    agents = {each.get("name").text() for each in trajectories}
    iteration = record.get("training_step")
    for index, trajectory in enumerate(trajectories):
        agent = trajectory.get("name").text()
        steps = trajectory.get("steps").items(required=True)
        total = trajectory.get("reward").optional_number()
        rewards = [step.get("reward").optional_number() for step in steps]
        # rLLM sets a trajectory's reward, or those of its steps, or all of them to the former. If a
        # trajectory has none, it takes that of its last step.
        known = [reward for reward in rewards if reward is not None]
        summed = bool(known) and total is not None and abs(sum(known) - total) < 1e-9
        if total is None and rewards:
            total = rewards[-1]
        parts = _conversations(steps) or [(0, 0, [], 0)]
        for place, (first, last, messages, context) in enumerate(parts):
            final = total if place == len(parts) - 1 else None
            of_steps = [reward or 0.0 for reward in rewards[first:last]]
            version = next(filter(None, (step.get("weight_version") for step in steps)), iteration)
            yield Conversation(
                group=(task or name) + (f"/{agent}" if len(agents) > 1 else ""),
                trajectory=(rollout or name) + (f"/{index}" if len(trajectories) > 1 else ""),
                messages=messages,
                context=context,
                reward=None if summed else final,
                rewards=of_steps if summed else None,
                truncated=str(record.get("termination_reason").value).startswith(LIMITS),
                truncated_turns=[
                    turn
                    for turn, step in enumerate(steps[first:last])
                    if step.get("model_output.finish_reason").value == "length"
                ],
                agent=agent,
                version=version.optional_name(),
                states=_states(steps[first:last]),
                crashed=record.get("termination_reason").value == "error",
                extra={"rewards": of_steps if known else None}
                | ({"iteration": iteration.integer()} if iteration else {}),
            )


def put(record: Any, advantages: Iterator[Sequence[float | None]]) -> None:
    """Write each step's advantage into the episode; null for a session that was left out."""
    for trajectory in record["trajectories"]:
        done = 0
        if not trajectory["steps"]:
            next(advantages)
        while done < len(trajectory["steps"]):
            for advantage in next(advantages):
                trajectory["steps"][done]["advantage"] = advantage
                done += 1


def _conversations(steps: Sequence[Record]) -> list[tuple[int, int, list[Message], int]]:
    """For each: its first step and the one after its last, its messages, and its context."""
    parts: list[tuple[int, int, list[Message], int]] = []
    for number, step in enumerate(steps):
        step.mapping()  # not a null
        chat = [message(each) for each in step.get("chat_completions").items()]
        before = parts[-1][2] if parts else []
        if not chat:  # the text alone
            seen, response = step.get("observation").value, step.get("model_response").value
            chat = before
            if seen is not None:
                chat.append({"role": "user", "content": canonical(seen)})
            written = response or step.get("action").value or ""
            chat.append({"role": "assistant", "content": canonical(written)})
            first, context = (parts.pop()[::3]) if parts else (number, len(chat) - 1)
            parts.append((first, number + 1, chat, context))
            continue
        if chat[-1]["role"] != "assistant":
            raise step.get("chat_completions").error("the last message must be the response")
        extends = parts and chat[: len(before)] == before
        new = chat[len(before) : -1] if extends else []
        if extends and all(turn["role"] != "assistant" for turn in new):
            parts[-1] = (parts[-1][0], number + 1, chat, parts[-1][3])
        else:
            parts.append((number, number + 1, chat, len(chat) - 1))
    return parts


def _states(steps: Sequence[Record]) -> list[str] | None:
    """What each step observed, if all of them say so."""
    observations = [step.get("observation").value for step in steps]
    return None if None in observations else [canonical(value) for value in observations]


FORMAT = Format(
    "rllm",
    "rLLM episodes",
    "trajectories:list !trajectories.0.messages",
    read,
    example="formats/rllm.jsonl",
    put=put,
)
