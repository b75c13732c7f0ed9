"""Other shapes of sessions, as lists of turns: under numbers, in tuples, or in one text.

Only what can be told from its form is changed; how it was read is said beside the field.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ascribe.sessions.reading.fields import ACTIONS, MESSAGES, OBSERVATIONS, QUESTIONS, TASKS
from ascribe.sessions.reading.names import EXPECTED, LABELS, MODELS, RUNS, SESSIONS
from ascribe.sessions.reading.nested import RUNS as SETS
from ascribe.sessions.reading.records import Record
from ascribe.sessions.reading.rows import NUMBERS
from ascribe.sessions.reading.turns import ACTION, ALIASES, SPEAKERS

DEEPEST = 4
LISTS = {*MESSAGES, *ACTIONS, *OBSERVATIONS}
COLUMNS = {*LISTS, *TASKS, *LABELS, *MODELS, *SESSIONS, *RUNS, *NUMBERS}
"""What a column of a table may be called."""
PROMPTS = ("prompt", *QUESTIONS)
ANSWERS = ("response", "completion", "generation", "output", "prediction", "model_output")
DONE = {*ACTION, *SPEAKERS[:5]}
SESSIONS_OF_ROWS, NUMBERS_OF_ROWS = {*SESSIONS, *RUNS}, {*NUMBERS}
CHATS = re.compile(r"^history$|^turns$|chat|dialog|conversation|message|exchange")
"""Names of lists in which two sides speak."""
NUMBERED = re.compile(r"(.*?)[ _-]?(\d{1,9})")
REACT = re.compile(
    r"^[ \t]*(thought|action input|action|observation|final answer|question)"
    r"[ \t]*(?:\d+[ \t]*)?:",
    re.I | re.M,
)
SPEAKER = re.compile(
    r"^[ \t*]*(human|user|customer|client|assistant|ai|bot|gpt|model|chatbot|agent|tool|function"
    r"|observation|environment|system)[ \t*]*:\**",
    re.I | re.M,
)


class Made(list[Any]):
    """Turns in another shape than they were written in; ``how`` is what was taken for what."""

    def __init__(self, turns: Sequence[Any], how: str) -> None:
        super().__init__(turns)
        self.how = how


def plain(value: Any, name: str = "", depth: int = DEEPEST) -> Any:
    """A value with lists of turns for what is one in another shape."""
    if isinstance(value, dict):
        if name in LISTS and (listed := _numbered(value)):
            return plain(listed, name, depth)
        if not depth:
            return value
        own = {key for key in value if not EXPECTED.fullmatch(key)}
        value = {k: plain(v, k, depth - 1) if k in own else v for k, v in value.items()}
        return value if name else _answered(value)
    if isinstance(value, str) and name in MESSAGES:
        return _react(value) or _spoken(value) or value
    if isinstance(value, list) and value and name in MESSAGES:
        value = _pairs(value, name) or _tuples(value) or _tasks(value)
    if isinstance(value, list) and depth and name in SETS:
        return [plain(each, "", depth - 1) for each in value]
    return value


def table(whole: Record) -> Record:
    """A document of rows, if it is a table: of pandas, by column, or with a list of columns."""
    value = whole.value
    if not isinstance(value, dict) or not value:
        return whole
    names, rows = value.get("columns"), value.get("data")
    wide = len(names) if isinstance(names, list) and isinstance(rows, list) and rows else 0
    if wide and all(isinstance(each, list) and len(each) == wide for each in rows or ()):
        return whole.of([dict(zip(map(str, names or ()), row, strict=True)) for row in rows or ()])
    lists = [each for each in value.values() if isinstance(each, list)]
    told = not {*TASKS, *SESSIONS, *RUNS}.isdisjoint(value)
    if len(lists) == len(value) > 1 and any(_are_lists(value.get(name), told) for name in LISTS):
        ones = [
            {_one(n): v for n, v in zip(value, e, strict=False)} for e in zip(*lists, strict=False)
        ]
        return whole.of(ones) if len({*map(len, lists)}) == 1 else whole
    first = next(iter(value.values()))
    index = [*first] if isinstance(first, dict) else []
    same = all(isinstance(each, dict) and [*each] == index for each in value.values())
    numbered = bool(index) and all(each.isdecimal() for each in index)
    if numbered and same and len(value.keys() & COLUMNS) > 1:
        return whole.of([{name: value[name][at] for name in value} for at in index])
    return whole


def _are_lists(value: Any, told: bool) -> bool:
    """Whether a column holds the turns of each session, which vectors are not.

    Lists of texts may be steps of one session, unless it is told what each belongs to.
    """
    whole = isinstance(value, list) and all(isinstance(each, list) and each for each in value)
    return whole and any(isinstance(e[0], str | dict | list if told else dict) for e in value)


def _one(name: str) -> str:
    return one if (one := name.removesuffix("s")) in COLUMNS and name not in LISTS else name


def _numbered(value: Mapping[str, Any]) -> list[Any]:
    """The entries of an object whose keys are numbered; several of a number are one entry."""
    keys = [NUMBERED.fullmatch(key) for key in value]
    found: dict[int, dict[str, Any]] = {}
    for key in keys:
        if key is None or key[1] in found.setdefault(int(key[2]), {}):
            return []
        found[int(key[2])][key[1]] = value[key[0]]
    alone = all(len(each) == 1 for each in found.values()) and len({k[1] for k in keys if k}) == 1
    entries = [found[number] for number in sorted(found)]
    return [v for each in entries for v in each.values()] if alone else entries


def _answered(value: dict[str, Any]) -> dict[str, Any]:
    """A record of a prompt, or of a task and a reward, and the responses to it as chats."""
    if not LISTS.isdisjoint(value) or not SESSIONS_OF_ROWS.isdisjoint(value):
        return value
    prompt = next((name for name in PROMPTS if isinstance(value.get(name), str)), "")
    parts = (value.get(name) for name in dict.fromkeys(("context", prompt, "input")))
    asked = "\n".join(each for each in parts if isinstance(each, str) and each)
    if not asked.strip() and ({*TASKS}.isdisjoint(value) or {*LABELS}.isdisjoint(value)):
        return value
    for name in (*SETS, *ANSWERS):
        said = value.get(name)
        if isinstance(said, str) and name in ANSWERS and NUMBERS_OF_ROWS.isdisjoint(value):
            return {**value, "messages": _asked(asked, said)}
        if isinstance(said, list) and said and all(isinstance(each, str) for each in said):
            return {**value, name: [_asked(asked, each) for each in said]}
    return value


def _asked(asked: str, said: str) -> list[dict[str, str]]:
    turns = (("user", asked), ("assistant", said))
    return [{"role": role, "content": text} for role, text in turns if text.strip()]


def _pairs(turns: Sequence[Any], name: str) -> list[Any]:
    """Pairs of a step and what it observed, or in a chat of what the two sides said.

    Other pairs of texts may be an action and its observation, or the reverse: they are no turns.
    """
    if not all(isinstance(each, list) and len(each) == 2 for each in turns):
        return []
    if all(isinstance(done, dict) for done, _ in turns):
        return Made([{**done, "observation": seen} for done, seen in turns], "step, observation")
    texts = all(isinstance(each, str | None) for pair in turns for each in pair)
    firsts = [str(said).strip() for said, _ in turns]
    if not texts or any(said.lower() in ALIASES for said in firsts):
        return []
    if not CHATS.search(name):
        return [{"first": first, "second": second} for first, second in turns]
    if not any(" " in each for each in firsts) or len(set(firsts)) < len(firsts):
        return []
    roles = ("user", "assistant")
    said = [{"role": r, "content": t} for pair in turns for r, t in zip(roles, pair, strict=True)]
    return Made([each for each in said if each["content"] is not None], "user, assistant")


def _tuples(turns: Sequence[Any]) -> list[Any]:
    """Steps of Gym: an observation, the action, the reward, and what is seen of the next step."""
    if not all(isinstance(each, list) and 3 <= len(each) <= 6 for each in turns):
        return []
    if any(not isinstance(each[2], int | float) or isinstance(each[2], bool) for each in turns):
        return []
    names = ("observation", "action", "reward")
    return Made([dict(zip(names, each, strict=False)) for each in turns], ", ".join(names))


def _tasks(turns: list[Any]) -> list[Any]:
    """Steps of which the first says what is asked, or that are the texts of agents."""
    if not isinstance(turns[0], dict) or turns[0].keys() & DONE:
        return turns
    made = []
    for each in turns:
        told = each if isinstance(each, dict) and not each.keys() & DONE else {}
        roles = {"task": "user", "system_prompt": "system", "raw": told.get("agent")}
        said = next((name for name in roles if isinstance(told.get(name), str)), "")
        role = roles.get(said)
        made.append({"role": role, "content": told[said]} if isinstance(role, str) else each)
    return made


def _react(text: str) -> list[Any]:
    """The steps in a text of thoughts, actions and observations."""
    before, *parts = REACT.split(text)
    kinds = [each.lower() for each in parts[::2]]
    if before.strip() or "action" not in kinds or kinds.count("question") > 1:
        return []
    turns: list[dict[str, Any]] = []
    thought: dict[str, str] = {}
    for kind, said in zip(kinds, map(str.strip, parts[1::2]), strict=True):
        if kind == "question":
            turns.append({"role": "user", "content": said})
        elif kind == "thought":
            thought = {"thought": "\n".join([*thought.values(), said])}
        elif kind in ("action", "final answer"):
            turns.append({**thought, "action": said if kind == "action" else f"{kind}: {said}"})
            thought = {}
        elif not turns or "action" not in turns[-1]:
            return []
        elif kind == "action input":
            turns[-1]["action"] += f" {said}"
        else:
            seen = turns[-1].get("observation")
            turns[-1]["observation"] = said if seen is None else f"{seen}\n{said}"
    turns += [{"action": said} for said in thought.values()]
    return Made(turns, "a text with Thought, Action, Observation")


def _spoken(text: str) -> list[Any]:
    """The messages in a text in which each begins with who speaks."""
    before, *parts = SPEAKER.split(text)
    roles = {ALIASES[each.lower()] for each in parts[::2]}
    if before.strip() or "assistant" not in roles or len(roles) < 2:
        return []
    said = zip(parts[::2], parts[1::2], strict=True)
    turns = [{"role": who.lower(), "content": text.strip()} for who, text in said]
    return Made(turns, "a text, each message after who speaks")
