"""Sessions in records that only have fields: which one holds what, by name or by usual names.

A session is messages, or actions with observations; beside them a task, a reward, a session's name
and a version. A field is looked for at the top of the record, then in its objects, then in theirs.
What a task expects of the agent is never what the agent did.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import PurePosixPath
from typing import Any

from ascribe.sessions.messages import Conversation, changed
from ascribe.sessions.reading import names
from ascribe.sessions.reading.names import (
    CONTAINER,
    LABELS,
    at,
    conversation,
    find,
    none,
    number_of,
    path_of,
    prompt_name,
    with_system,
    worth,
)
from ascribe.sessions.reading.records import Message, Record, canonical
from ascribe.sessions.reading.turns import (
    ACTION,
    OBSERVATION,
    agents_of,
    is_call,
    is_turn,
    left_out,
    messages_of,
    step_rewards,
)
from ascribe.steps.hints import option
from ascribe.steps.problems import TableError, one_line

MESSAGES = (
    *("messages", "history", "trajectory", "traj", "conversation", "conversations", "turns"),
    *("steps", "transcript", "chat", "dialog", "dialogue", "chat_history", "message_history"),
    *("interaction", "interactions", "interaction_history", "log", "logs", "events", "rollout"),
    *("trace", "traces", "episode", "chat_completions", "conversation_history", "full_history"),
    *("transitions", "chat_log", "message_log", "event_log", "exchanges", "actions_taken"),
    *("intermediate_steps", "scratchpad", "agent_scratchpad", "react", "tasks_output"),
    "contents",
)
ACTIONS = ("actions", "action_history", "commands", "action_list", "acts", "tool_calls")
CALLS = (*ACTIONS, "calls")
"""Lists of actions that may have what was observed beside each; ``calls`` are no actions else."""
OBSERVATIONS = ("observations", "observation_history", "obs", "outputs", "results", "feedbacks")
TASKS = (
    *(
        CONTAINER,
        "task_id",
        "instance_id",
        "example_id",
        "problem_id",
        "question_id",
        "question_ID",
    ),
    *("prompt_id", "sample_id", "case_id", "test_id", "task_name", "scenario_id", "scenario"),
    *("qid", "game_id", "puzzle_id", "level_id", "issue_id", "item_id", "query_id", "task_key"),
    *("ticket_id", "group", "task", "ticket", "env_id", "game_file", "problem", "question"),
    *("query", "instruction", "goal", "prompt", "problem_statement", "case", "game", "issue"),
)
QUESTIONS = ("query", "question", "instruction", "problem_statement", "problem", "goal", "input")
SESSIONS = (
    *(*names.SESSIONS, *names.RUNS, "trace_id", "trajectory", "trial", "rollout", "attempt"),
    *("seed", "run", "id", "uuid"),
)
VERSIONS = (
    *("model", "model_name", "agent_model", "model_name_or_path", "llm", "agent_version"),
    *("version", "policy_version", "weight_version", "policy", "agent_name", "system_name"),
    *("agent", "checkpoint", "model_id"),
)
ENDS = ("terminals", "dones", "done", "terminated", "terminations", "truncations")
"""Lists that say of each step whether an episode ends there."""
EARNED = re.compile(r"(?!max|min|mean|avg|average).*_(reward|return|score)", re.I)
"""What else looks like the reward of a session whose steps have rewards."""
SLACK = 1e-6
MARKS = re.compile(
    r"[-_.](range[-_].*|fs[-_]?\d+|run[-_]?\d+|trial[-_]?\d+|seed[-_]?\d+|part[-_]?\d+|"
    r"shard[-_]?\d+|results?|trajectories|\d{4}-\d\d-\d\d.*|\d{8,}.*)$"
)
"""What a file's name says of the run, the range of tasks and the date, and not of the agent."""


@dataclass(frozen=True)
class Fields:
    """The fields of a session, each the path of one; None: one with a usual name.

    Attributes:
        messages: the messages, or steps with an action and an observation each.
        actions: the actions, if there are no messages.
        observations: what was observed after each action.
        task: the name of the task.
        question: what the task asks: of two with one name and different questions, each is a task.
        reward: the final reward, a number, true or false, or a word of ``outcomes``.
        session: the name of the session.
        version: who acted.
        crashed: a field that is there if the session crashed.
        named: whether a file is named after who acted, if nothing else says it.
        outcomes: words for rewards beside those of ``OUTCOMES``.

    Example:
        >>> from ascribe.sessions.reading.fields import Fields
        >>> Fields(messages="state.history", reward="state.success")
        Fields(messages='state.history', reward='state.success')
    """

    messages: str | None = None
    actions: str | None = None
    observations: str | None = None
    task: str | None = None
    question: str | None = None
    reward: str | None = None
    session: str | None = None
    version: str | None = None
    crashed: str | None = None
    named: bool = False
    outcomes: Mapping[str, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        """The fields that were given."""
        given = (f"{name}={value!r}" for name, value in vars(self).items() if value)
        return f"Fields({', '.join(given)})"

    def changed(self, by: "Fields") -> "Fields":
        """These fields, with others where those are given."""
        return replace(self, **{name: value for name, value in vars(by).items() if value})

    def __call__(self, record: Record) -> Iterator[Conversation]:
        """The conversations of one record, with the names that were taken in their extra."""
        taken: dict[str, str] = {}

        def one(what: str, usual: Sequence[str], fits: Any = lambda _: True) -> Record:
            given = getattr(self, what)
            found = at(record, given) if given else find(record, usual, fits, what)
            if found:
                taken[what] = path_of(found, record)
            return found

        turns = one("messages", MESSAGES, _are_turns) if not self.actions else none(record)
        if turns:
            messages = messages_of(turns)
            if how := getattr(turns.value, "how", ""):
                taken["messages"] += f" (as {how})"
            if left := left_out(turns):
                taken["messages"] += f" (without {', '.join(left)})"
        elif turns := none(record) if self.actions else find(record, CALLS, _are_steps):
            taken["messages"] = path_of(turns, record)
            messages = messages_of(turns)
        else:
            actions = one("actions", ACTIONS, _is_list)
            if not actions:
                raise record.error(
                    "it has no messages and no actions with a usual name",
                    hint=f"name the field: {option('messages', 'FIELD')} or "
                    f"{option('actions', 'FIELD')}",
                )
            observations = one("observations", OBSERVATIONS, _is_list)
        question = _text(one("question", QUESTIONS, _is_text))
        if not turns:
            order = (
                None if self.observations else _order(actions.value, observations.value, question)
            )
            messages = list(
                _acted(actions, observations, before=order is not None and BEFORE in order)
            )
            if order:
                taken["observations"] += f" ({order})"
        if question and messages and not any(m["role"] == "user" for m in messages[:2]):
            messages = [{"role": "user", "content": question}, *messages]
        task = one("task", TASKS, _is_name)
        group = _short(task) if task else prompt_name(messages)
        if not task and messages and messages[0]["role"] in ("assistant", "tool"):
            taken["task"] = "nothing: all that begin without a prompt are one task"
        version = self._version(record, one("version", VERSIONS, _is_label))
        reward = one("reward", LABELS, self._is_reward)
        rewards = None if reward else self._of_steps(record, turns, messages)
        if reward:
            taken["reward"] += names.maximum(reward, record)
        elif rewards:
            taken["reward"] = f"the steps of {path_of(turns, record)}" if turns else "rewards"
        name = one("session", SESSIONS, _is_name)
        digest = blake2b(question.encode(errors="replace"), digest_size=8)
        whole = conversation(
            record,
            with_system(record, messages) if _has_system(record) else messages,
            group=group,
            task=f"{group} {digest.hexdigest()}" if task and question else None,
            trajectory=record.key or (_short(name) if name else record.short()),
            version=version,
            reward=self.number(reward) if reward else None,
            rewards=rewards,
            crashed=bool(self.crashed and at(record, self.crashed)),
            **agents_of(messages),
        )
        yield changed(whole, extra={**whole.extra, "fields": taken})

    def _version(self, record: Record, found: Record) -> str | None:
        if not found and record.beside:
            beside = replace(record, value=dict(record.beside), beside=None)
            found = find(beside, VERSIONS, _is_label, "version")
        if found:
            return _short(found)
        return version_of(record) if self.named else None

    def _of_steps(
        self, record: Record, turns: Record, messages: Sequence[Message]
    ) -> list[float | None] | None:
        """The rewards of steps, in them or in a list beside them, unless another field differs."""
        found = step_rewards(turns, messages) if turns else None
        listed, steps = record.value.get("rewards"), sum(e["role"] == "assistant" for e in messages)
        if not found and isinstance(listed, list) and len(listed) == steps:
            ends = [e for n in ENDS if isinstance(e := record.value.get(n), list)]
            if any(each[:-1].count(True) or each[:-1].count(1) for each in ends):
                raise record.error("it holds several episodes", hint="write each as a record")
            numbers = [worth(each) for each in listed]
            found = None if None in numbers else numbers
        total = sum(each or 0.0 for each in found or ())
        for name, value in record.value.items() if found else ():
            said = worth(value) if EARNED.fullmatch(name) else None
            if said is not None and abs(said - total) > SLACK:
                what = f"its steps earn {total:g}, and {name} says {said:g}"
                raise record.error(what, hint=f"name the reward: {option('reward', name)}")
        return found

    def _is_reward(self, value: Any) -> bool:
        return worth(value, self.outcomes) is not None

    def number(self, reward: Record) -> float:
        """The number of a reward."""
        value = worth(reward.value, self.outcomes)
        if value is None and isinstance(reward.value, str):
            value = number_of(reward.value)
        if value is not None:
            return value
        if isinstance(reward.value, str):
            word = one_line(reward.value, 40)
            raise UnknownOutcomeError(reward, word)
        return reward.number()


class UnknownOutcomeError(TableError):
    """The error for a word that is not known as a reward; ``others`` are further ones."""

    def __init__(self, reward: Record, word: str, others: Sequence[str] = ()) -> None:
        words = dict.fromkeys((word, *others), "NUMBER")
        what = "what they are" if others else "what it is"
        hint = f"say {what} worth: {option('outcome_map', words)}"
        super().__init__(reward.error(f"the outcome {word!r} is not known", hint=hint).problems)
        self.reward, self.word = reward, word


def version_of(record: Record) -> str:
    """Who acted, from the name of the file without the run, the range of tasks and the date."""
    name = PurePosixPath(record.member or record.path.name).name
    for suffix in (".gz", ".zst", ".jsonl", ".ndjson", ".json", ".traj", ".csv", ".parquet"):
        name = name.removesuffix(suffix)
    while (shorter := MARKS.sub("", name)) != name and shorter:
        name = shorter
    return name


def _has_system(record: Record) -> bool:
    prompts = (record.value.get(name) for name in ("system", "system_prompt", "instructions"))
    return all(isinstance(each, str | None) for each in prompts)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


def _are_turns(value: Any) -> bool:
    return isinstance(value, list) and any(map(is_turn, value[:3]))


def _are_steps(value: Any) -> bool:
    """Whether actions have what was observed beside them."""
    return isinstance(value, list) and any(
        is_call(each)
        or (
            isinstance(each, dict)
            and each.keys() & {*ACTION}
            and each.keys() & {*OBSERVATION}
            and len(each.keys() & {*ACTION, *OBSERVATION}) > 1
        )
        for each in value[:3]
    )


def _is_text(value: Any) -> bool:
    return (isinstance(value, str) and bool(value.strip())) or (
        isinstance(value, list) and bool(value) and all(isinstance(each, str) for each in value)
    )


def _is_name(value: Any) -> bool:
    return (isinstance(value, int) and not isinstance(value, bool)) or _is_text(value)


def _is_label(value: Any) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool) and value != ""


def _text(record: Record) -> str:
    lines = record.value if isinstance(record.value, list) else [record.value or ""]
    return "\n".join(map(canonical, lines))


def _short(record: Record) -> str:
    """A name; of a long text, its beginning and a digest."""
    text = " ".join((_text(record) if record.value else record.name()).split())
    if len(text) <= 80:
        return text
    return f"{text[:60]} {blake2b(text.encode(errors='replace'), digest_size=4).hexdigest()}"


BEFORE, AFTER = "each before its action", "each after its action"


def _order(actions: Sequence[Any], observations: Any, question: str) -> str | None:
    """Whether observations come before their actions, as in Gym, and how sure that is."""
    if not isinstance(observations, list):
        return None
    if len(observations) == len(actions) + 1:
        return BEFORE
    first = canonical(observations[0]).strip() if observations else ""
    if question and (question.strip() in first or (first and first in question)):
        return BEFORE
    return AFTER if len(observations) < len(actions) else f"{AFTER}: taken, as nothing says it"


def _acted(actions: Record, observations: Record, *, before: bool) -> Iterator[Message]:
    """Actions, each with what was observed before or after it."""
    done, seen = actions.items(), observations.items()
    for place in range(max(len(done), len(seen))):
        turn = [{"role": "assistant", "content": canonical(e.value)} for e in done[place:][:1]]
        role = "user" if before and not place else "tool"
        shown = [{"role": role, "content": canonical(e.value)} for e in seen[place:][:1]]
        yield from (*shown, *turn) if before else (*turn, *shown)
