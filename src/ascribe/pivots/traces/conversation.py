"""``Conversation``: a trace on its way from someone's format to plain messages and turns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ascribe.agents.clean import replace_surrogates
from ascribe.groups.responses import ToolCallError, name_and_arguments
from ascribe.pivots.calls import response, safe, tools_told, written
from ascribe.pivots.candidates import Candidate, Message, Origin, candidate
from ascribe.pivots.faults import TraceFault
from ascribe.steps.strict_json import canonical, loads


class Unreadable(ValueError):  # noqa: N818 (named for what is wrong)
    """A trace has no right reading."""

    def __init__(self, fault: TraceFault, detail: str) -> None:
        super().__init__(detail)
        self.fault, self.detail = fault, detail


@dataclass
class Conversation:
    """Messages that every chat template knows: system, user and assistant.

    What tools answered becomes a user message, answers in a row one message. Calls are written into
    the assistant's text. The tools are told at the end of the system message.
    """

    tools: tuple[str, ...] = ()
    messages: list[Message] = field(default_factory=list)
    turns: list[tuple[int, str]] = field(default_factory=list)
    """Where a demonstrated turn is among the messages, and what it says."""
    skipped: list[tuple[TraceFault, str]] = field(default_factory=list)
    _after_tool: bool = False

    def __post_init__(self) -> None:
        if self.tools:
            self.messages.append({"role": "system", "content": tools_told(self.tools)})

    def system(self, text: str) -> None:
        """An instruction; the first goes before what is told of tools."""
        if self.tools and len(self.messages) == 1:
            told = self.messages[0]["content"]
            self.messages[0] = {"role": "system", "content": f"{safe(text)}\n\n{told}"}
        else:
            self._add("system", safe(text))

    def user(self, text: str) -> None:
        """What the user said."""
        self._add("user", safe(text))

    def tool(self, text: str) -> None:
        """What a tool answered."""
        if self._after_tool:
            before = self.messages[-1]["content"]
            self.messages[-1] = {"role": "user", "content": f"{before}\n{response(text)}"}
        else:
            self._add("user", response(text))
        self._after_tool = True

    def assistant(self, text: str, calls: Sequence[Any] = (), *, demonstrated: bool = True) -> None:
        """A turn of the assistant.

        Args:
            text: what it said.
            calls: the tools that it called, in the form of OpenAI or ShareGPT.
            demonstrated: whether the turn is to be learned from.

        Raises:
            Unreadable: if a call is none.
        """
        try:
            told = [written(*name_and_arguments(call)) for call in calls]
        except ToolCallError as error:
            raise Unreadable(TraceFault.BAD_TOOL_CALL, str(error)) from error
        action = "\n".join([*([replace_surrogates(text)] if text.strip() else []), *told])
        number = sum(message["role"] == "assistant" for message in self.messages)
        if demonstrated:
            if not action:
                self.skipped.append((TraceFault.EMPTY_TURN, f"turn {number} holds nothing"))
            elif all(message["role"] == "system" for message in self.messages):
                self.skipped.append((TraceFault.NO_HISTORY, f"turn {number} opens the trace"))
            else:
                self.turns.append((len(self.messages), action))
        self._add("assistant", safe(action))

    def candidates(self, file: str, trace: str) -> Iterator[Candidate]:
        """A candidate for each demonstrated turn."""
        roles = [message["role"] for message in self.messages]
        for place, action in self.turns:
            origin = Origin(file, trace, roles[:place].count("assistant"), roles.count("assistant"))
            yield candidate(self.messages[:place], action, origin, self.tools)

    def _add(self, role: str, text: str) -> None:
        self.messages.append({"role": role, "content": text})
        self._after_tool = False


def functions(value: Any) -> tuple[str, ...]:
    """The tools of a trace, each as canonical JSON with its name; also from JSON text of a list.

    Raises:
        Unreadable: if they are none.
    """
    if isinstance(value, str):
        try:
            value = loads(value) if value.strip() else None
        except ValueError as error:
            raise Unreadable(TraceFault.BAD_TOOLS, f"they are not JSON: {error}") from error
    if value is None:
        return ()
    if not isinstance(value, list):
        raise Unreadable(TraceFault.BAD_TOOLS, "they are not a list")
    return tuple(_function(tool) for tool in value)


def _function(tool: Any) -> str:
    if isinstance(tool, dict) and isinstance(tool.get("function"), dict):
        tool = tool["function"]
    if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not tool["name"]:
        raise Unreadable(TraceFault.BAD_TOOLS, "one has no name")
    if not isinstance(tool.get("parameters", {}), dict):
        raise Unreadable(TraceFault.BAD_TOOLS, "the parameters of one are not a schema")
    return replace_surrogates(canonical(tool))


def text_of(content: Any) -> str:
    """The text of a message: text, nothing, or parts of the type text.

    Raises:
        Unreadable: for anything else, such as an image.
    """
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
        for part in content
    ):
        return "\n".join(part["text"] for part in content)
    raise Unreadable(TraceFault.BAD_CONTENT, f"a content is {type(content).__name__}")
