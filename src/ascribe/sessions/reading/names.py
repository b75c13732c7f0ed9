"""What formats share in which a record is a whole chat: the names of its task, run and reward.

No such format says what these are called, so the usual names are looked for, in the record, its
``metadata`` and its ``info``; others are given by ``group`` and ``reward``. Without a name for
the task, conversations with the same prompt form a group.
"""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from math import isfinite
from typing import Any

from ascribe.sessions.messages import Conversation, changed, text_of
from ascribe.sessions.reading.records import Message, Record, content, digest
from ascribe.steps.hints import option
from ascribe.steps.problems import TableError

CONTAINER = "its container"
"""What a task is called that only the object or the list around its sessions names."""
GROUPS = (
    *(
        CONTAINER,
        "group",
        "task",
        "task_id",
        "instance_id",
        "example_id",
        "problem_id",
        "prompt_id",
    ),
    "question_id",
)
TRAJECTORIES = ("trajectory", "trajectory_id", "rollout_id", "run_id", "id", "uuid")
SESSIONS = (
    *("session_id", "session", "conversation_id", "thread_id"),
    *("sessionId", "conversationId", "session_uuid", "conv_id"),
    "config.configurable.thread_id",  # of LangGraph
)
"""What names one session."""
RUNS = (
    *("trajectory_id", "rollout_id", "dialogue_id", "dialog_id", "chat_id", "episode_id"),
    *("run_id", "episode", "trial_id", "simulation_id", "trial_name"),
)
"""What names a session, or a run of many."""
REWARDS = ("reward", "final_reward", "score", "return")
VERSIONS = ("version", "policy_version", "weight_version")
MODELS = ("model", "model_name", "agent_model")
LABELS = (
    *("reward", "final_reward", "total_reward", "max_reward", "score", "final_score", "success"),
    *("succeeded", "successful", "is_success", "is_successful", "passed", "is_passed", "pass"),
    *("correct", "is_correct", "resolved", "is_resolved", "solved", "is_solved", "outcome"),
    *("label", "won", "win", "return", "result", "status", "verdict", "grade", "final_status"),
    *("team_reward", "episode_reward", "episode_return", "cumulative_reward", "total_score"),
    *("overall_score", "rating"),
)
"""Names of rewards and outcomes."""
INNER = ("value", "score", "reward", "total", "overall", "final")
"""What a number is called in an object that has the name of a reward."""
NAMES = ("id", "name", "key")
"""What the name of a task is called in an object that has the name of one."""
EXPECTED = re.compile(
    r"expected.*|gold(en)?(_.*)?|references?(_.*)?|ground_?truth.*|target.*|solution.*|oracle.*"
    r"|demos?|demonstrations?|few_?shots?|examples?|evaluation_criteria|config|usage|.*_?prompt"
)
"""Objects and fields that say what a task expects, or how a run was set up."""
OUTCOMES = {
    **dict.fromkeys(("true", "yes", "pass", "passed", "won", "win", "success", "successful"), 1.0),
    **dict.fromkeys(("succeeded", "correct", "resolved", "solved", "ok", "right", "c"), 1.0),
    **dict.fromkeys(("false", "no", "fail", "failed", "failure", "lost", "loss", "lose"), 0.0),
    **dict.fromkeys(("unsuccessful", "incorrect", "unresolved", "unsolved", "wrong", "i"), 0.0),
}
NUMBER = re.compile(r"[-+]?(\d{1,15}\.?\d{0,17}|\.\d{1,17})(e[-+]?\d{1,2})?", re.I)
DEEPEST = 3
"""Levels of objects in which a field is looked for."""
TIMES = (
    *("timestamp", "time", "created", "created_at", "started_at", "start_time", "startTime"),
    *("completed_at", "end_time", "endTime", "ended_at", "finished_at"),
)
"""When a session was written."""
EXTENDED = (
    "another line goes on where it ends, or the reverse: if these are model calls of one session, "
    "give them the same session_id; else write a different one for each rollout"
)


def conversation(record: Record, messages: Sequence[Message], **known: Any) -> Conversation:
    """The conversation of a record and its messages; ``known`` is what the format says of it."""
    group = None if "group" in known else usual(record, GROUPS)
    named = known.get("trajectory")
    named = named or usual(record, (*TRAJECTORIES, *SESSIONS)).optional_name()
    taken: dict[str, str] = {}
    unsure: dict[str, Any] = {}
    steps = sum(each["role"] == "assistant" for each in messages)
    cut = record.get("finish_reason").value == "length"
    fields = {
        "trajectory": named or record.short(),
        "messages": messages,
        "truncated": cut or usual(record, ("truncated", "is_truncated")).flag(),
        "truncated_turns": [steps - 1] if cut else [],
        "times": times(record),
        "logprobs": digest(record.get("logprobs").value),
    }
    if group is not None:
        fields["group"] = (group.name() if group else "") or prompt_name(messages)
    if "reward" not in known:
        reward = usual(record, REWARDS)
        if isinstance(reward.value, str):
            value = number_of(reward.value)
            reward = reward.of(reward.value if value is None else value)
        if not reward or isinstance(reward.value, dict):
            try:
                reward = find(record, LABELS, _is_worth, "reward")
            except TableError as error:  # unless the caller names one
                unsure, reward = {"unsure": error}, none(record)
        if reward and path_of(reward, record) not in REWARDS:
            taken = {"reward": path_of(reward, record)}
            reward = reward.of(worth(reward.value))
        try:
            if isinstance(reward.value, str):
                of_words = f"{option('form', 'fields')} {option('outcome_map', {'solved': 1})}"
                hint = f"say what each word is worth: {of_words}"
                raise reward.error("it must be a number, not text", hint=hint)
            fields["reward"] = reward.optional_number()
        except TableError as error:  # unless the caller has others
            unsure, reward = {"unsure": error}, none(record)
        if reward and (most := maximum(reward, record)):
            taken = {"reward": f"{path_of(reward, record)}{most}"}
        rewards = record.get("rewards").items()
        fields["rewards"] = [each.optional_number() for each in rewards] or None
    if "agent" not in known:
        fields["agent"] = record.get("agent").optional_name()
    if "version" not in known:
        fields["version"] = version(record)
    whole = Conversation(**{**fields, **known})
    extra = ends(whole, named) if named or group or "group" in known else {}
    if "reward" not in known and reward:
        extra |= {"reward": last_name(reward)}
    return changed(whole, extra=extra | unsure | ({"fields": taken} if taken else {}))


def _is_worth(value: Any) -> bool:
    return worth(value) is not None


def version(record: Record) -> str | None:
    """Who acted: the model and the version, as far as the record names them."""
    names = [usual(record, each) for each in (MODELS, VERSIONS)]
    texts = [str(each.value) for each in names if isinstance(each.value, str | int)]
    return " ".join(dict.fromkeys(texts)) or None


def times(record: Record) -> tuple[str | float, ...]:
    """When a record and its messages were written, as it says it."""
    chat = record.value.get("messages") or record.value.get("conversations") or ()
    messages = chat if isinstance(chat, list) else ()
    places = [record.value, *(each for each in messages if isinstance(each, dict))]
    timed = (place for place in places if not place.keys().isdisjoint(TIMES))
    found = (place[name] for place in timed for name in TIMES if name in place)
    return tuple(each for each in found if isinstance(each, str | float))


def with_system(record: Record, messages: list[Message]) -> list[Message]:
    """The messages, and before them the system prompt that may stand beside them."""
    for system in map(record.get, ("system", "system_prompt", "instructions")):
        if system.value:
            return [{"role": "system", "content": content(system)[0]}, *messages]
    return messages


def usual(record: Record, names: Sequence[str]) -> Record:
    """The first of these entries of the record, its metadata or its info; else a null."""
    value = record.value if isinstance(record.value, dict) else record.mapping() if record else {}
    for part in ("", "metadata", "info"):
        inside = value.get(part) if part else value
        if isinstance(inside, dict) and not inside.keys().isdisjoint(_first_parts(tuple(names))):
            for name in names:
                known = name.partition(".")[0] in inside
                if known and (entry := at(record.get(part) if part else record, name)):
                    return entry
    return Record(None, record.path, record.line, names[0], record.beside)


@lru_cache(maxsize=64)
def _first_parts(names: tuple[str, ...]) -> frozenset[str]:
    """The first part of each path."""
    return frozenset(name.partition(".")[0] for name in names)


def last_name(record: Record) -> str:
    """What an entry is called, wherever it is."""
    return record.field.rpartition(".")[2]


def at(record: Record, name: str) -> Record:
    """The entry at a path; a null if something on it is no object."""
    if not isinstance(record.value, dict):
        return Record(None, record.path, record.line, record.field, record.beside)
    if "." not in name:
        return record.get(name)
    first, _, rest = name.partition(".")
    return at(record.get(first), rest) if rest else record.get(first)


def find(record: Record, names: Sequence[str], fits: Any, what: str = "") -> Record:
    """The field with one of these names that is nearest to the top; a null if there is none.

    Raises:
        TableError: if two messages or two rewards at one level differ.
    """
    level: list[tuple[str, Mapping[str, Any]]] = [("", record.mapping())]
    for _ in range(DEEPEST):
        found = []
        for path, inside in level:
            last = path.rpartition(".")[2]
            known = (*names, *INNER) if what == "reward" and last in names else names
            known = (*NAMES, *names) if what == "task" and last in names else known
            found += [(f"{path}.{n}", inside[n]) for n in known if n in inside and fits(inside[n])]
        said = [worth(v) if what == "reward" else v for _, v in found]
        said = [v if number is None else number for number, (_, v) in zip(said, found, strict=True)]
        other = next((f[0] for f, v in zip(found, said, strict=True) if v != said[0]), None)
        if other and what in ("messages", "reward"):
            first = found[0][0].removeprefix(".")
            raise record.error(
                f"{first} and {other.removeprefix('.')} both look like its {what}, and differ",
                hint=f"name one of them: {option(what, first)}",
            )
        if found:
            path, value = found[0]
            place = f"{record.field}{path}" if record.field else path.removeprefix(".")
            return record.of(value, place)
        level = [
            (f"{path}.{key}", value)
            for path, inside in level
            for key, value in inside.items()
            if isinstance(value, dict)
            and not EXPECTED.fullmatch(key)
            # The task has a name, but what it lists was not done.
            and (what not in ("messages", "actions", "reward") or key != "task")
        ]
    return none(record)


def path_of(found: Record, record: Record) -> str:
    """The path of a field in its record."""
    return found.field.removeprefix(record.field).removeprefix(".")


def maximum(reward: Record, record: Record) -> str:
    """What a record says is the most that a reward can be, which does not change it; or nothing."""
    above, _, name = path_of(reward, record).rpartition(".")
    inside = at(record, above).value if above else record.value
    for most in (f"max_{name}", f"{name}_max", "max_score", "max_points", "out_of"):
        if most != name and isinstance(inside, dict) and isinstance(inside.get(most), int | float):
            return f" (as it is; {most} is {inside[most]:g})"
    return ""


def none(record: Record) -> Record:
    """The record without a value."""
    return record.of(None)


def worth(value: Any, outcomes: Mapping[str, float] = OUTCOMES) -> float | None:
    """The number of a reward, true or false, or a word for an outcome; None for anything else."""
    if isinstance(value, str):
        word = value.strip().lower()
        known = outcomes.get(word, outcomes.get(value, OUTCOMES.get(word)))
        share = number_of(word) if known is None and word[:1] in ("0", "1") else None
        return share if share is not None and share <= 1 else known
    if isinstance(value, bool) or (isinstance(value, int | float) and abs(value) < 1e300):
        return float(value) if isfinite(value) else None
    return None


def number_of(text: str) -> float | None:
    """The number that a text is, if any."""
    try:
        found = float(text) if NUMBER.fullmatch(text.strip()) else None
    except ValueError:
        return None
    return found if found is not None and isfinite(found) else None


def ends(whole: Conversation, *names: str | None) -> dict[str, Any]:
    """What tells whether a conversation goes on where another of these names ends.

    Of a task, a rollout may end where another goes on; less often with the same reward.
    """
    mark, turns = hash((*names, whole.group, whole.reward)), []
    for place, each in enumerate(whole.messages):
        if each["role"] == "assistant":
            mark = hash((mark, whole.action(place)))
            turns.append(mark)
        else:
            mark = hash((mark, each["role"], text_of(each.get("content")).strip()))
    pairs = [(place == len(turns), turn) for place, turn in enumerate(turns, 1)]
    return {"parts": (pairs, EXTENDED)}


def prompt_name(messages: Sequence[Mapping[str, Any]]) -> str:
    """A name for the task of a conversation: a digest of the messages before the first turn."""
    digest = blake2b(digest_size=8)
    for each in messages:
        if each["role"] == "assistant":
            break
        digest.update(f"{each['role']}\0{each['content']}\0".encode(errors="replace"))
    return f"prompt {digest.hexdigest()}"
