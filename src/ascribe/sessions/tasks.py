"""Tasks that share a name: files of different benchmarks may both number theirs from 0."""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ascribe.sessions.messages import Conversation, text_of
from ascribe.steps.starts import without_ids

UNNAMED = re.compile(r"prompt [0-9a-f]{16}")
"""The name of a task that only has a prompt."""


@dataclass
class Questions:
    """The questions that sessions of each task begin with.

    Where each file asks one question under the name of a task, and files ask different ones, these
    are different tasks. If a file has several questions under one name, a simulated user may have
    worded them, and nothing is decided here. Where a benchmark says which task it is, that decides.

    Attributes:
        named: what a task with this name and question is called.
        first: the first task with each name, where a benchmark says which it is.
        asked: the questions of each name in each file, with how many sessions have them; of earlier
            tables, too, since a file may begin in one and end in another.
        taken: every name that a task has or was given.
    """

    named: dict[tuple[str, str], str] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)
    asked: dict[str, dict[Path, Counter[str]]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)
    called: dict[str, str] = field(default_factory=dict)
    """Names of tasks that are known by their prompt alone."""

    def name(self, conversations: Sequence[Conversation]) -> str:
        """Find names for the tasks without one, where each prompt comes with one name of its own.

        Returns what names them: a field, or the folder of a file.
        """
        unnamed = [each for each in conversations if UNNAMED.fullmatch(each.group)]
        unnamed = [each for each in unnamed if each.group not in self.called]
        for source in unnamed[0].extra.get("called", ()) if unnamed else ():
            found = {(e.group, e.extra.get("called", {}).get(source)) for e in unnamed}
            groups, names = ({pair[side] for pair in found} for side in (0, 1))
            repeated = len({(each.group, each.trajectory) for each in unnamed}) > len(groups) > 1
            if repeated and len(found) == len(groups) == len(names) and all(names):
                self.called |= {group: str(name) for group, name in found}
                return str(source)
        return ""

    def rename(self, conversations: Sequence[Conversation]) -> list[Conversation]:
        """The conversations, with tasks that share a name told apart."""
        if self.called:
            conversations = [
                replace(each, group=self.called.get(each.group, each.group))
                for each in conversations
            ]
        sessions: defaultdict[str, dict[tuple[Path, str], str]] = defaultdict(dict)
        self.taken.update(each.group for each in conversations)
        for each in conversations:
            if each.task is not None and self.first.setdefault(each.group, each.task) != each.task:
                self._name(each.group, each.task, each.path)
            elif each.task is None and each.path is not None:
                of_task = sessions[each.group]
                if (each.path, each.trajectory) not in of_task:
                    of_task[each.path, each.trajectory] = question(each)
        for group, questions in sessions.items():
            of_file = self.asked.setdefault(group, {})
            for (path, _), text in questions.items():
                of_file.setdefault(path, Counter())[text] += 1
            self._tell_apart(group, of_file)
        if not self.named:
            return list(conversations)
        return [
            replace(
                each, group=self.named.get((each.group, each.task or question(each)), each.group)
            )
            for each in conversations
        ]

    def _tell_apart(self, group: str, of_file: Mapping[Path, Counter[str]]) -> None:
        constant = all(len(texts) == 1 for texts in of_file.values())
        repeated = any(texts.total() > 1 for texts in of_file.values())
        known = list(dict.fromkeys(text for texts in of_file.values() for text in texts))
        if not (constant and repeated and len(known) > 1):
            return
        for path, texts in of_file.items():
            for text in texts:
                if text != known[0]:
                    self._name(group, text, path)

    def _name(self, group: str, told: str, path: Path | None) -> None:
        """Give a task of this name a name of its own, after its file."""
        if (group, told) in self.named:
            return
        place, number = path.stem if path else "other", 1
        name = f"{group} ({place})"
        while name in self.taken:  # files of different folders may be called the same
            number += 1
            name = f"{group} ({place}, {number})"
        self.taken.add(name)
        self.named[group, told] = name

    @property
    def split(self) -> dict[str, list[str]]:
        """The tasks that were told apart, and what they are called."""
        found: dict[str, list[str]] = {}
        for (group, _), name in self.named.items():
            found.setdefault(group, [group]).append(name)
        return {group: list(dict.fromkeys(names)) for group, names in found.items()}


def question(each: Conversation) -> str:
    """The first message of the user, in its words and their order, without paths, dates and ids."""
    for message in each.messages:
        if message.get("role") == "user":
            return " ".join(without_ids(text_of(message.get("content"))).split())
    return ""
