"""Samples of Inspect logs: ``.eval`` (a zip of JSON files) and ``.json``.

The group is ``TASK/ID``, of the evaluation's task and the sample's ``id``; its ``epoch`` is the
trajectory, and the model the version. Long texts are kept once, as attachments, and named in the
messages.
"""

from collections.abc import Iterator

from ascribe.sessions.messages import Conversation
from ascribe.sessions.reading.format import Format
from ascribe.sessions.reading.records import Record, message

ATTACHMENT = "attachment://"
GRADES = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
"""Correct, partly, incorrect and no answer, as Inspect turns them into numbers."""


def read(sample: Record) -> Iterator[Conversation]:
    """The conversation of one sample."""
    attachments = sample.get("attachments")
    messages = [
        message(each, sampled=each.get("source").value != "input")
        for each in sample.get("messages").items(required=True)
    ]
    for turn in messages:
        for key in ("content", "reasoning_content"):
            if str(turn.get(key)).startswith(ATTACHMENT):
                turn[key] = attachments.get(turn[key].removeprefix(ATTACHMENT)).text()
    turns = sum(turn["role"] == "assistant" for turn in messages)
    stops = [choice.get("stop_reason").value for choice in sample.get("output.choices").items()]
    scores = sample.get("scores")
    run = sample.of((sample.beside or {}).get("eval"))
    scorers = [each.get("name").name() for each in run.get("scorers").items()]
    # Of several scores, that of the evaluation's first scorer.
    scored = scorers[:1] or list(scores.mapping() if scores else ())[:1]
    values = [value for value in (scores.get(name).get("value") for name in scored) if value]
    name, epoch = sample.get("id").name(), sample.get("epoch").name()
    task, own = run.get("task").optional_name(), run.get("task_id").optional_name()
    group = f"{task}/{name}" if task else name
    yield Conversation(
        group=group,
        trajectory=epoch,
        task=group if task else None,
        # Those of an evaluation and of its retry are the same.
        identity=f"{own}/{name}/{epoch}" if own else sample.get("uuid").optional_name(),
        version=run.get("model").optional_name(),
        crashed=bool(sample.get("error")),
        messages=messages,
        reward=score(values[0]) if values else None,
        truncated=bool(sample.get("limit")),
        truncated_turns=[turns - 1] if stops[:1] == ["max_tokens"] else [],
    )


def score(value: Record) -> float:
    """The number of a score, which may be a grade."""
    if isinstance(value.value, str) and value.value in GRADES:
        return GRADES[value.value]
    return value.number()


FORMAT = Format(
    "inspect",
    "Inspect log",
    "id epoch messages target",
    read,
    example="formats/log.eval",
    score=score,
    beside=("logs.json", "eval-set.json"),
)
