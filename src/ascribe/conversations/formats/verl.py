"""verl's dump of rollouts, ``rollout_data_dir/STEP.jsonl``: texts of a prompt and a response.

The texts are decoded without special tokens, so the marks between turns are lost. Where the
response has results of tools in the form of Hermes and Qwen, its turns are told apart by them;
otherwise the response is one turn.
"""

import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any

from ascribe.conversations.formats.records import Message, Record
from ascribe.conversations.messages import Episode

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


def recognises(record: Mapping[str, Any]) -> bool:
    """Whether this is a rollout that verl dumped."""
    return record.keys() >= {"input", "output", "score"}


def read(record: Record) -> Iterator[Episode]:
    """The rollout of one line; rollouts of one step and prompt are a group."""
    prompt, response = record.get("input").text(), record.get("output").text()
    step = record.get("step").name() if record.get("step") else "0"
    digest = blake2b(prompt.encode(errors="replace"), digest_size=8).hexdigest()
    messages: list[Message] = [{"role": "user", "content": prompt}]
    for index, part in enumerate(RESULTS.split(response)):
        if index % 2 == 0:
            messages.append({"role": "assistant", "content": part.removesuffix("<|im_end|>")})
        else:
            messages += [{"role": "tool", "content": text} for text in RESULT.findall(part)]
    yield Episode(
        group=f"{step}/{digest}",
        trajectory=str(record.line),
        messages=messages,
        reward=record.get("score").number(),
        version=step,
        extra={"iteration": int(record.get("step").number())} if record.get("step") else {},
    )
