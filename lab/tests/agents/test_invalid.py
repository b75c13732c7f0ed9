"""What is carried out in place of an action that is not there."""

import pytest

from ascribe_lab.agents import (
    Agent,
    AgentDecision,
    Parsed,
    SendText,
    Substitute,
    ThinkAction,
    View,
    agent_for,
)
from ascribe_lab.agents.agent import OnInvalid
from tests.hostile import HOSTILE

VIEW = View("task", "now", admissible=["look"])
ANSWER = "I do not know what to do, so I go to the fridge"


@pytest.mark.parametrize(
    ("policy", "action"),
    [
        (SendText(), ANSWER[-30:]),
        (SendText(6), "fridge"),
        (SendText(1000), ANSWER),
        (Substitute("look"), "look"),
    ],
)
def test_policies(policy: OnInvalid, action: str) -> None:
    agent = agent_for("alfworld", on_invalid=policy)
    assert agent.decide(ANSWER, VIEW) == AgentDecision(action, False, "no_action")


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_sent_can_be_written(name: str) -> None:
    decision = SendText()(HOSTILE[name], Parsed(None, problem="no_action"), VIEW)
    assert decision.action is not None
    decision.action.encode()


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, not 0"):
        SendText(0)


def test_the_environment_judges_actions_that_are_not_admissible() -> None:
    decided = agent_for("alfworld").decide("<action>fly</action>", VIEW)
    assert decided == AgentDecision("fly", valid=True)


def test_an_action_with_a_problem_is_carried_out_and_invalid() -> None:
    agent = agent_for("alfworld", parser=ThinkAction(needs_thought=True))
    assert agent.decide("<action>look</action>", VIEW) == AgentDecision("look", False, "no_thought")


def test_a_users_own_policy() -> None:
    def first_admissible(response: str, parsed: Parsed, view: View) -> AgentDecision:
        return AgentDecision(view.admissible[0], valid=False, problem=parsed.problem)

    default = agent_for("alfworld")
    agent = Agent(default.prompt, default.memory, default.parser, first_admissible)
    assert agent.decide("", VIEW) == AgentDecision("look", False, "empty_answer")
