r"""Team: several agents work on one question, and are paid once.

The question comes from an environment with one question and one answer. Every turn is the decision
of one agent, named in ``info["agent"]``. In ``voting`` each agent answers by itself, and the answer
with the most votes is the team's. In ``think_solve`` the ``thinker`` writes down its reasoning, the
``solver`` reads it and answers, and then answers once more without it, to measure what it earns.

The last turn pays the team's reward, and ``info["without"]`` says for each turn what the team would
have earned without that agent; None for the answer that only measures. Text that the question's
environment cannot read is no vote. ``docs/environments/games.md`` has the details.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from ascribe.steps.errors import InputError
from ascribe.steps.problems import replace_surrogates
from ascribe_lab.envs.maths import final_answer, last_number
from ascribe_lab.envs.protocol import Environment, Info, Outcome, Start, TextEnvironment, one_of

Topology = Literal["voting", "think_solve"]
Ties = Literal["first", "share"]

THINKER, SOLVER = "thinker", "solver"
ROLES = {
    THINKER: "Think this problem through step by step, for somebody else who solves it. Write the "
    "reasoning, not the final answer.",
    SOLVER: "Solve this problem.",
}
"""The instructions of the agents of ``think_solve``, which come before the question."""

FORM = r"Give the final answer inside \boxed{}."
LONGEST_REASONING = 8_000
"""Characters of the thinker's reasoning that the solver sees."""


@dataclass
class TeamEpisode:
    """The question, and the responses so far."""

    question: str
    seed: int
    task: int
    responses: list[str] = field(default_factory=list)
    judged: list["JudgedAnswer"] = field(default_factory=list)
    expert: str | None = None


@dataclass(frozen=True)
class JudgedAnswer:
    """What an answer is worth."""

    reward: float
    won: bool
    key: str | None
    """Equal for the same answer; None if it cannot be read."""


@dataclass(frozen=True)
class TeamTurn:
    """One decision of the protocol."""

    agent: str
    answers: bool
    """Whether it gives an answer that is judged; otherwise reasoning."""
    reads: bool = False
    """Whether it sees the reasoning."""


class Team(TextEnvironment[TeamEpisode]):
    """A team. See ``docs/environments/games.md``.

    Args:
        topology: ``voting``, or ``think_solve`` (a thinker, then a solver).
        agents: number of voters; they are called ``1``, ``2``, and so on.
        ties: if several answers have the most votes, the ``first`` voter among them decides (CCPO,
            B.3: a deterministic vote), or they ``share`` the vote, and the mean is paid.
        counterfactual: whether the solver also answers without the reasoning.
        roles: each agent's instruction before the question, by the agent's name; an empty text for
            none.
        form: instruction after the question, for agents that answer.
        environment: environment that the questions come from, with one question and one answer.
        options: options of that environment.
        expert: whether info has ``expert_action``.

    Raises:
        ValueError: if the environment has longer episodes, or a role names no agent of the team.
    """

    def __init__(
        self,
        *,
        topology: Topology = "voting",
        agents: int = 3,
        ties: Ties = "first",
        counterfactual: bool = True,
        roles: Mapping[str, str] | None = None,
        form: str = FORM,
        environment: str = "maths",
        options: Mapping[str, Any] | None = None,
        expert: bool = False,
    ) -> None:
        from ascribe_lab.envs import make

        one_of("topology", topology, get_args(Topology))
        one_of("ties", ties, get_args(Ties))
        if agents < 2:
            raise InputError(f"a team has at least 2 agents, not {agents}")
        self.topology, self.ties = topology, ties
        self.turns = _turns(topology, agents, counterfactual=counterfactual)
        self.members = tuple(dict.fromkeys(turn.agent for turn in self.turns))
        self.roles = {**dict.fromkeys(self.members, ""), **ROLES, **(roles or {})}
        if strangers := sorted(set(roles or {}) - set(self.members)):
            raise InputError(f"there is no agent {', '.join(strangers)} in the team")
        self.form = form
        asked = {**(options or {}), **({"expert": True} if expert else {})}
        self.inner: Environment = make(environment, **asked)
        if getattr(self.inner, "horizon", 1) != 1:
            raise InputError(
                f"{environment} has episodes of several steps", hint="a team needs one"
            )
        super().__init__(horizon=len(self.turns), expert=expert)
        self.tasks = self.inner.tasks
        self.example_actions = getattr(self.inner, "example_actions", None)

    def close(self) -> None:
        """Close the environment of the questions."""
        self.inner.close()

    def begin(self, task: int, generator: np.random.Generator) -> Start[TeamEpisode]:
        seed = int(generator.integers(2**62))
        question, info = self.inner.reset(seed=seed, options={"task": task})
        episode = TeamEpisode(question, seed, task, expert=info.get("expert_action"))
        return Start(episode, self._shown(episode), info["task"], info["task_family"])

    def act(self, episode: TeamEpisode, action: str) -> Outcome:
        turn = self.turns[len(episode.responses)]
        valid = bool(action.strip())
        episode.responses.append(action)
        if turn.answers:
            judged = self._judge(episode, action)
            episode.judged.append(judged)
            valid = judged.key is not None
        if len(episode.responses) < len(self.turns):
            return Outcome(self._shown(episode), valid=valid)
        reward, won = self._result(episode.judged)
        verdict = "The team is right." if won else "The team is wrong."
        return Outcome(verdict, reward=reward, terminated=True, won=won, valid=valid)

    def _judge(self, episode: TeamEpisode, answer: str) -> JudgedAnswer:
        self.inner.reset(seed=episode.seed, options={"task": episode.task})
        _, reward, _, _, info = self.inner.step(answer)
        key = ("right" if info["won"] else f"= {_key(answer)}") if info["valid"] else None
        return JudgedAnswer(float(reward), bool(info["won"]), key)

    def _result(self, judged: Sequence[JudgedAnswer]) -> tuple[float, bool]:
        """What the team earns, and whether it is right."""
        if self.topology == "think_solve":
            return judged[0].reward, judged[0].won
        return _vote(judged, self.ties)

    def _without(self, judged: Sequence[JudgedAnswer]) -> list[float | None] | None:
        if self.topology == "voting":
            others = ([*judged[:i], *judged[i + 1 :]] for i in range(len(judged)))
            return [_vote(voters, self.ties)[0] for voters in others]
        return [judged[1].reward, 0.0, None] if len(judged) > 1 else None

    def _shown(self, episode: TeamEpisode) -> str:
        """What the agent sees whose turn it is."""
        turn = self.turns[len(episode.responses)]
        parts = [self.roles[turn.agent], episode.question]
        if turn.reads:
            reasoning = replace_surrogates(episode.responses[0][:LONGEST_REASONING])
            parts.append(f"Reasoning:\n{reasoning}")
        if turn.answers:
            parts.append(self.form)
        return "\n\n".join(filter(None, parts))

    def more_info(self, episode: TeamEpisode) -> Info:
        if self._over:
            return {"agent": None, "without": self._without(episode.judged)}
        return {"agent": self.turns[len(episode.responses)].agent}

    def state_key(self, episode: TeamEpisode, observation: str) -> str:
        if len(episode.responses) == len(self.turns):
            return f"{episode.question}\n{observation}"
        return f"{self.turns[len(episode.responses)].agent}: {observation}"

    def expert_action(self, episode: TeamEpisode) -> str | None:
        return episode.expert


def _turns(topology: str, agents: int, *, counterfactual: bool) -> tuple[TeamTurn, ...]:
    if topology == "voting":
        return tuple(TeamTurn(str(number), answers=True) for number in range(1, agents + 1))
    alone = (TeamTurn(SOLVER, answers=True),) if counterfactual else ()
    return (TeamTurn(THINKER, answers=False), TeamTurn(SOLVER, answers=True, reads=True), *alone)


def _vote(judged: Sequence[JudgedAnswer], ties: Ties) -> tuple[float, bool]:
    """What the answer with the most votes earns, and whether it is right."""
    counts = Counter(one.key for one in judged if one.key is not None)
    if len({(one.key, one.reward) for one in judged if one.key is not None}) > len(counts):
        raise InputError("one answer has two rewards; the inner environment must judge it alike")
    most = max(counts.values(), default=0)
    winners = list({one.key: one for one in judged if one.key and counts[one.key] == most}.values())
    if not winners:
        return 0.0, False
    if ties == "first":
        winners = winners[:1]
    reward = float(np.mean([one.reward for one in winners]))
    return reward, all(one.won for one in winners)


def _key(answer: str) -> str:
    """Equal for equal answers."""
    text = final_answer(answer)
    if text is None:
        number = last_number(answer)
        text = answer if number is None else f"{number.normalize():f}"
    return re.sub(r"[\s,$]", "", text).casefold().rstrip(".")
