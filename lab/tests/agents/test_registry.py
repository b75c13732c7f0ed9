"""The default agents of the environments."""

import pytest

from ascribe_lab.agents import (
    AGENTS,
    FullHistory,
    LastTurns,
    TextPrompt,
    Turn,
    View,
    agent_for,
)
from ascribe_lab.agents.parsers import ResponseParser
from ascribe_lab.envs import ENVIRONMENTS, make

ONE_TURN = ("maths", "team", "pivots")
"""Whose prompts have no past, and ask for no thought."""

ALL = [(name, style) for name, styles in AGENTS.items() for style in styles]


LISTED = ("alfworld", "webshop", "sokoban", "ezpoints", "textcraft", "repository", "other")
"""Whose environments list the admissible actions."""


def test_every_environment_has_an_agent_in_its_styles() -> None:
    assert set(AGENTS) == {*ENVIRONMENTS, "other"}
    for name, styles in AGENTS.items():
        assert list(styles) == ["paper", "plain", *(["choices"] if name in LISTED else [])]
        parts = {(agent.memory, agent.parser) for agent in list(styles.values())[:2]}
        assert parts == {(styles["paper"].memory, styles["paper"].parser)}


@pytest.mark.parametrize("name", LISTED)
def test_a_letter_chooses_an_action(name: str) -> None:
    agent = agent_for(name, "choices")
    view = View("t", "o", admissible=["GO THERE", "STAY"])
    assert "A. GO THERE\nB. STAY\n" in agent.messages(view)[0]["content"]
    for response in ("B", " B.", "B. STAY", "B) go there", "STAY"):
        assert agent.decide(response, view).action == "STAY", response
        assert agent.decide(response, view).valid
    for response in ("C", "Z. fly"):
        decision = agent.decide(response, view)
        assert (decision.valid, decision.problem) == (False, "no_such_choice")
    assert agent.decide("A box is here", view).action == "A box is here"
    many = View("t", "o", admissible=[f"number {n}" for n in range(28)])
    said = agent.messages(many)[0]["content"]
    assert "Z. number 25\nnumber 26\nnumber 27\n" in said


@pytest.mark.parametrize(("name", "style"), ALL)
def test_the_first_prompt_shows_what_is_there_to_see(name: str, style: str) -> None:
    (message,) = agent_for(name, style).messages(View("THE TASK", "START"))
    assert message["role"] == "user"
    assert message["content"].count("START") == 1
    assert ("<think>" in message["content"]) == (style == "paper" and name not in ONE_TURN)


@pytest.mark.parametrize(("name", "style"), [pair for pair in ALL if pair[0] not in ONE_TURN])
def test_later_prompts_show_what_the_agent_needs(name: str, style: str) -> None:
    agent = agent_for(name, style)
    past = [Turn("START", "RESPONSE", "FIRST"), Turn("MIDDLE", "", "SECOND")]
    later = agent.messages(View("THE TASK", "NOW", past))[0]["content"]
    for needed in ("NOW", "MIDDLE", "FIRST", "SECOND"):
        assert needed in later
    assert "THE TASK" in later or later.count("START") == 1


@pytest.mark.parametrize("style", ["paper", "plain"])
@pytest.mark.parametrize("name", ["alfworld", "webshop", "sokoban", "ezpoints", "other"])
def test_admissible_actions_are_shown(name: str, style: str) -> None:
    view = View("t", "o", admissible=["GO THERE", "STAY"])
    assert "GO THERE\nSTAY" in agent_for(name, style).messages(view)[0]["content"]


@pytest.mark.parametrize("style", ["paper", "plain"])
def test_search_shows_queries_in_their_tags(style: str) -> None:
    view = View("q", "found", [Turn("q", "...", "search[who?]"), Turn("found", "...", "noise")])
    said = agent_for("search_qa", style).messages(view)[0]["content"]
    assert "<search>who?</search>\nfound\nnoise\nfound" in said


@pytest.mark.parametrize("style", ["paper", "plain"])
def test_webshop_does_not_tell_what_to_search_for(style: str) -> None:
    view = View("t", "o", admissible=["search[red shoes]", "click[red]"])
    said = agent_for("webshop", style).messages(view)[0]["content"]
    assert "search[any words]\nclick[red]" in said
    assert "shoes" not in said


def test_histories_are_those_of_the_papers() -> None:
    assert agent_for("alfworld").memory == agent_for("webshop").memory == LastTurns(2)
    assert agent_for("search_qa").memory == FullHistory()


def test_parts_can_be_exchanged() -> None:
    prompt = TextPrompt("{observation}")
    agent = agent_for("alfworld", "plain", prompt=prompt, memory=FullHistory())
    assert (agent.prompt, agent.memory) == (prompt, FullHistory())
    assert agent.parser == agent_for("alfworld").parser


def test_an_environment_of_the_users_own_gets_the_agent_for_all() -> None:
    assert agent_for("my.module:Game", "plain") == AGENTS["other"]["plain"]


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ValueError, match="no agent for 'chess'; there are: alfworld, desk, ezpoints"
    ):
        agent_for("chess")
    with pytest.raises(ValueError, match="no style 'long'; there are: paper, plain"):
        agent_for("maths", "long")


@pytest.mark.parametrize("style", ["paper", "plain", "choices"])
@pytest.mark.parametrize("name", ["ezpoints", "sokoban"])
def test_an_expert_that_speaks_through_the_parser_wins(name: str, style: str) -> None:
    agent, environment = agent_for(name, style), make(name, expert=True)
    observation, info = environment.reset(seed=3)
    turns: list[Turn] = []
    over = False
    while not over:
        view = View(info["task"], observation, turns, info["admissible_actions"])
        assert observation in agent.messages(view)[0]["content"]
        assert isinstance(agent.parser, ResponseParser)
        answer = agent.parser.render(info["expert_action"], "the expert says so")
        decision = agent.decide(answer, view)
        assert decision.valid
        assert decision.action == info["expert_action"]
        turns.append(Turn(observation, answer, decision.action))
        observation, _, terminated, truncated, info = environment.step(decision.action)
        over = terminated or truncated
    assert info["won"]
