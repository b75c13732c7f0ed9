"""Tasks that share a name: files of different benchmarks may both number theirs from 0."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ascribe.sessions.messages import Conversation, text_of
from ascribe.steps.starts import without_ids


@dataclass
class Questions:
    """The questions that sessions of each task begin with.

    Where each file asks one question under the name of a task, and files ask different ones, these
    are different tasks. If a file has several questions under one name, a simulated user may have
    worded them, and nothing is decided here. Where a benchmark says which task it is, that decides.

    Attributes:
        named: what a task with this name and question is called.
        first: the first task with each name, where a benchmark says which it is.
    """

    named: dict[tuple[str, str], str] = field(default_factory=dict)
    first: dict[str, str] = field(default_factory=dict)

    def rename(self, conversations: Sequence[Conversation]) -> list[Conversation]:
        """The conversations, with tasks that share a name told apart."""
        sessions: defaultdict[str, dict[tuple[Path, str], str]] = defaultdict(dict)
        for each in conversations:
            if each.task is not None and self.first.setdefault(each.group, each.task) != each.task:
                name = f"{each.group} ({each.path.stem if each.path else len(self.named) + 2})"
                self.named.setdefault((each.group, each.task), name)
            elif each.task is None and each.path is not None:
                of_task = sessions[each.group]
                if (each.path, each.trajectory) not in of_task:
                    of_task[each.path, each.trajectory] = question(each)
        for group, asked in sessions.items():
            self._tell_apart(group, asked)
        if not self.named:
            return list(conversations)
        return [
            replace(
                each, group=self.named.get((each.group, each.task or question(each)), each.group)
            )
            for each in conversations
        ]

    def _tell_apart(self, group: str, asked: dict[tuple[Path, str], str]) -> None:
        of_file: defaultdict[Path, list[str]] = defaultdict(list)
        for (path, _), text in asked.items():
            of_file[path].append(text)
        constant = all(len(set(texts)) == 1 for texts in of_file.values())
        repeated = any(len(texts) > 1 for texts in of_file.values())
        known = dict.fromkeys(texts[0] for texts in of_file.values())
        if not (constant and repeated and len(known) > 1):
            return
        for path, texts in of_file.items():
            if texts[0] != next(iter(known)):
                self.named.setdefault((group, texts[0]), f"{group} ({path.stem})")

    @property
    def split(self) -> dict[str, list[str]]:
        """The tasks that were told apart, and what they are called."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for (group, _), name in self.named.items():
            if name not in found[group]:
                found[group].append(name)
        return {group: [group, *names] for group, names in found.items()}


def question(each: Conversation) -> str:
    """The first message of the user, in its words and their order, without paths, dates and ids."""
    for message in each.messages:
        if message.get("role") == "user":
            return " ".join(without_ids(text_of(message.get("content"))).split())
    return ""
