"""verl's dump of rollouts, ``rollout_data_dir/STEP.jsonl``: texts of a prompt and a response.

The texts are decoded without special tokens, so the marks between turns are lost. Where the
response has results of tools in the form of Hermes and Qwen, its turns are told apart by them;
otherwise the response is one turn.
"""

import re
from collections.abc import Iterator
from hashlib import blake2b

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.names import SESSIONS
from ascribe.sessions.reading.records import Message, Record

RESULTS = re.compile(
    r"\n?(?:<\|im_end\|>\s*)?(?:<\|im_start\|>)?(?:user|tool)\n"
    r"((?:\s*<tool_response>\n?(?:(?!</?tool_response>).)*</tool_response>)+)"
    r"(?:<\|im_end\|>)?\s*(?:<\|im_start\|>)?assistant\n",
    re.DOTALL,
)
"""The results of tools between two turns of the model."""
RESULT = re.compile(
    r"<tool_response>\n?((?:(?!</?tool_response>).)*?)\n?</tool_response>", re.DOTALL
)


KEY = re.compile(r"(.+)_(\d+)_(\d+)")
"""What verl calls an output: the sample, the rollout of it, and the output of the rollout."""


def read(record: Record) -> Iterator[Conversation]:
    """The rollout of one line; rollouts of one step and sample, or else prompt, are a group.

    A rollout with several outputs has a line for each of them, in order.
    """
    prompt, response = record.get("input").text(), record.get("output").text()
    step = record.get("step")
    messages: list[Message] = [{"role": "user", "content": prompt}]
    for index, part in enumerate(RESULTS.split(response)):
        if index % 2 == 0:
            messages.append({"role": "assistant", "content": part.removesuffix("<|im_end|>")})
        else:
            messages += [{"role": "tool", "content": text} for text in RESULT.findall(part)]
    key = KEY.fullmatch(record.get("uid").optional_name() or "")
    sample = key[1] if key else blake2b(prompt.encode(errors="replace"), digest_size=8).hexdigest()
    turns = sum(each["role"] == "assistant" for each in messages)
    yield Conversation(
        group=f"{step.name()}/{sample}" if step else sample,
        trajectory=key[2] if key else record.short(),
        messages=messages,
        context=1,
        # Each output has a score of its own.
        rewards=[None] * (turns - 1) + [record.get("score").number()],
        version=step.optional_name(),
        extra={"named": bool(key)} | ({"iteration": step.integer()} if step else {}),
    )


FORMAT = Format(
    "verl",
    "verl rollout dump",
    f"input output score !input:list !output:list !{'/'.join(SESSIONS[:4])}",
    read,
    example="formats/verl.jsonl",
    continued=True,
)
