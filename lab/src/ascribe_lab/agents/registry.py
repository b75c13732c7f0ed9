"""The default agent of each environment, with the prompts that it uses, in up to three styles.

``paper`` has the parts of GiGPO's prompts (Appendix E.2), reworded: the task, the number of steps,
the last observations and actions, the present observation, the admissible actions, and the
instruction to think in ``<think>`` tags and to act in ``<action>`` tags. ``plain`` has less of each
and asks for no thought: for models that are too small to profit from one. ``choices`` gives every
admissible action a letter and asks for a letter: for models that cannot keep to a format. It makes
TextCraft and WebShop much easier, since it shows what the other styles leave to be found.

In TextCraft and search the first observation states the task, and later ones report on what the
agent did: so the first one is shown at every step. TextCraft's admissible actions are not shown, as
in the original: to find them is the task. Maths has one step.
"""

from dataclasses import replace
from typing import Any, Literal

from ascribe.steps.errors import InputError
from ascribe.steps.hints import nearest, unknown
from ascribe.steps.plugins import entry_points
from ascribe_lab.agents.agent import (
    Agent,
    FullHistory,
    LastTurns,
    Memory,
    Parser,
    SendText,
    Substitute,
)
from ascribe_lab.agents.parsers import ChosenLetter, SearchAnswer, ThinkAction, WholeText, as_tag
from ascribe_lab.agents.prompts import NOTHING, ChatPrompt, TextPrompt

Style = Literal["paper", "plain", "choices"]
"""``paper``: think, then act. ``plain``: short and without a thought, for small models.
``choices``: a letter for every admissible action."""

OTHER = "other"
"""The agent for environments that have none of their own."""

_THINK = (
    "Think about the situation first, inside <think></think> tags. "
    "Then give the one action of this step inside <action></action> tags."
)
_PAST = (
    "You have taken {taken} step(s) so far. "
    "These are the last {shown}, what you saw and what you did, oldest first:\n{history}\n\n"
)
_SHELL = (
    "An action is one bash command in this folder, such as python -m pytest -q, cat -n FILE or "
    "sed -i 's/old/new/' FILE; the last one is submit."
)
_TURN = "Saw: {observation}\nDid: {action}"


def any_words(action: str) -> str:
    """WebShop's search without the environment's words: to find good ones is the task."""
    return "search[any words]" if action.startswith("search[") else action


def _paper(game: str) -> TextPrompt:
    return TextPrompt(
        game + "\n\n{past}This is step {step}. You see:\n{observation}\n\n{choices}" + _THINK,
        past=_PAST,
        turn=_TURN,
        choices="These actions are possible now:\n{admissible}\n\n",
    )


AS_OBSERVED = TextPrompt("{observation}")
"""For environments whose observations are complete prompts."""

PAPER: dict[str, TextPrompt] = {
    "alfworld": _paper("You act in a household, told in words (ALFWorld). Your task: {task}"),
    "webshop": replace(
        _paper("You shop on a web site that is shown as text (WebShop). Your task: {task}"),
        show_choice=any_words,
    ),
    "sokoban": _paper(
        "You play Sokoban. Your task: {task}\n"
        "You move one field up, down, left or right. You push the box before you if the field "
        "behind it is free; you cannot pull."
    ),
    "ezpoints": _paper(
        "You play with cards, and write one symbol of a formula at each step. Your task: {task}"
    ),
    OTHER: _paper("You act in an environment that is told in words. Your task: {task}"),
    "textcraft": TextPrompt(
        "You craft items by recipes (TextCraft).\n{start}\n\n"
        "Your commands: get [count] [item]; inventory; craft [count] [item] using [count] [item], "
        "[count] [item]. Counts must be those of the recipe. What has a recipe must be crafted, "
        "the rest can be got.\n\n"
        "{past}This is step {step}. " + _THINK,
        past=_PAST + "The answer to your last command: {observation}\n\n",
        turn=_TURN,
    ),
    "search_qa": TextPrompt(
        "You answer a question, and may ask a search engine. The question: {start}\n\n"
        "{past}Think first, inside <think></think> tags. Then do one of two things, never both:\n"
        "- If you need to know more, write a query inside <search></search> tags.\n"
        "- If you know enough, write the answer inside <answer></answer> tags, in as few words as "
        "you can, such as <answer>Lisbon</answer>.",
        past="You have taken {taken} step(s) so far. Your queries are in <search></search> tags, "
        "what was found is in <information></information> tags, oldest first:\n"
        "{history}\n{observation}\n\n",
        show_action=as_tag,
    ),
    "desk": TextPrompt(
        "{task}\n\n{past}This is step {step}. Customer and tools say:\n{observation}\n\n" + _THINK,
        past=_PAST,
        turn=_TURN,
    ),
    "repository": TextPrompt(
        "You mend a small program from a shell. {task}\n\n"
        "{past}This is step {step}. The shell shows:\n{observation}\n\n" + _SHELL + " " + _THINK,
        past=_PAST,
        turn=_TURN,
    ),
    "maths": TextPrompt(
        "{observation}\n\nReason step by step. End with the final answer inside \\boxed{{}}."
    ),
    "team": AS_OBSERVED,
}
"""The prompts of the style ``paper``, by environment."""

_ACT = "Answer with one action and nothing else: <action>...</action>"
_PLAIN = TextPrompt(
    "Task: {task}\n{past}Now: {observation}\n{choices}" + _ACT,
    past="Before:\n{history}\n",
    turn="{observation}\n> {action}",
    choices="Possible actions:\n{admissible}\n",
)

PLAIN: dict[str, TextPrompt] = {
    **dict.fromkeys(("alfworld", "desk", "sokoban", "ezpoints", OTHER), _PLAIN),
    "webshop": replace(_PLAIN, show_choice=any_words),
    "textcraft": TextPrompt(
        "{start}\n{past}Other commands: get [count] [item]; inventory.\n" + _ACT,
        past="Before:\n{history}\n{observation}\n",
        turn="{observation}\n> {action}",
    ),
    "search_qa": TextPrompt(
        "Question: {start}\n{past}"
        "Answer with one of these and nothing else: <search>query</search> or <answer>...</answer>",
        past="{history}\n{observation}\n",
        show_action=as_tag,
    ),
    "repository": TextPrompt(
        "{task}\n{past}Now: {observation}\n" + _SHELL + " " + _ACT,
        past="Before:\n{history}\n",
        turn="{observation}\n> {action}",
        longest=400,
    ),
    "maths": TextPrompt("{observation}\nGive the final answer inside \\boxed{{}}."),
    "team": AS_OBSERVED,
}
"""The prompts of the style ``plain``, by environment."""


_LETTER = "Which action is best?\n{admissible}\n\nAnswer with one letter."
_CHOICES = TextPrompt(
    "{task}\n\n{past}{observation}\n\n{choices}",
    past="Before:\n{history}\n\n",
    turn="{observation}\n> {action}",
    choices=_LETTER,
    lettered=True,
)

CHOICES: dict[str, TextPrompt] = {
    **dict.fromkeys(("alfworld", "ezpoints", OTHER, "repository", "sokoban", "webshop"), _CHOICES),
    "textcraft": replace(
        _CHOICES,
        body="{start}\n\n{past}{choices}",
        past="Before:\n{history}\n{observation}\n\n",
    ),
}
"""The prompts of the style ``choices``, of environments that list their admissible actions."""


def _agent(name: str, prompt: TextPrompt) -> Agent:
    memories: dict[str, Memory] = {
        # What the customer has said is said once.
        "desk": FullHistory(),
        "search_qa": FullHistory(),
        # Its observations are one line each, and nothing else says what was gathered.
        "textcraft": LastTurns(10),
        # An agent sees what the environment shows, and no messages of other agents.
        "team": LastTurns(0),
    }
    parsers: dict[str, Parser] = {
        "search_qa": SearchAnswer(),
        "maths": WholeText(),
        "team": WholeText(),
    }
    substitutes = {
        # An empty response ends the turn of an agent of a team; the next agent is asked.
        "team": NOTHING,
        # The end of a response may be any command.
        "repository": "echo 'Give one command inside <action></action> tags.'; false",
    }
    if prompt.lettered:
        parsers[name] = ChosenLetter()
    return Agent(
        prompt,
        memories.get(name, LastTurns(2)),
        parsers.get(name, ThinkAction()),
        Substitute(substitutes[name]) if name in substitutes else SendText(),
    )


_CHAT_AGENT = Agent(ChatPrompt(), LastTurns(0), WholeText(), SendText())

AGENTS: dict[str, dict[str, Agent]] = {
    **{
        name: {
            style: _agent(name, prompts[name])
            for style, prompts in (("paper", PAPER), ("plain", PLAIN), ("choices", CHOICES))
            if name in prompts
        }
        for name in sorted(PAPER)
    },
    # Turns of traces are chats already, whatever the style.
    "pivots": {"paper": _CHAT_AGENT, "plain": _CHAT_AGENT},
}
"""The default agents by environment and style; ``other`` suits environments without their own."""


def agent_for(environment: str, style: str = "paper", **parts: Any) -> Agent:
    """The default agent of an environment, with parts exchanged.

    Args:
        environment: a key of ``AGENTS``; or another's, as ``package.module:factory`` or by its
            entry point of ``ascribe_lab.envs``, which gets the agent ``other``.
        style: ``paper``, ``plain`` or, where the environment lists its actions, ``choices``.
        parts: ``prompt``, ``memory``, ``parser`` or ``on_invalid`` in place of the default one.

    Raises:
        ValueError: if there is no such environment or style.

    Example:
        >>> from ascribe_lab.agents import agent_for
        >>> agent_for("ezpoints").memory
        LastTurns(count=2)
    """
    name = environment
    if name not in AGENTS and (":" in name or name in entry_points("ascribe_lab.envs", AGENTS)):
        name = OTHER
    if name not in AGENTS:
        raise InputError(
            f"there is no agent for {environment!r}",
            hint=(
                f"{nearest(name, AGENTS)}there are: {', '.join(AGENTS)}; "
                f"agent_for({OTHER!r}) suits any environment"
            ),
        )
    if style not in AGENTS[name]:
        raise unknown("style", style, AGENTS[name])
    return replace(AGENTS[name][style], **parts)
