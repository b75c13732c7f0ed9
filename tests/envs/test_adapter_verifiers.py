"""``verifiers``: a real MultiTurnEnv, one message at a time."""

import asyncio
from functools import partial
from typing import Any

import pytest

from ascribe.envs.adapters.verifiers import VerifiersEnvironment
from ascribe.envs.contract import check_environment
from ascribe.envs.faults import Fault
from tests.envs.pages import assert_example_prints_what_the_page_shows

vf = pytest.importorskip("verifiers", reason="needs the extra verifiers")
datasets = pytest.importorskip("datasets", reason="needs the extra verifiers")
pytestmark = pytest.mark.engine

WORDS = ["apple", "pear", "banana"]


def rows() -> Any:
    return datasets.Dataset.from_list(
        [
            {"question": f"A fruit with {len(word)} letters.", "answer": word, "info": {"n": n}}
            for n, word in enumerate(WORDS)
        ]
    )


class Riddle(vf.MultiTurnEnv):
    """Name the fruit; a wrong word gets its first letter as a hint, ``give up`` ends it."""

    cleaned = 0

    async def setup_state(self, state: Any) -> None:
        state["tried"] = 0

    async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
        state["tried"] += 1
        if messages[-1]["content"] == "give up":
            state["final_env_response"] = [vf.UserMessage(content=f"It was {state['answer']}.")]
            return state["final_env_response"]
        return [vf.UserMessage(content=f"No. It begins with {state['answer'][0]}.")]

    @vf.stop
    async def found(self, state: Any) -> bool:
        said = [step["completion"][-1]["content"] for step in state["trajectory"]]
        return bool(said) and said[-1] == state["answer"]

    @vf.cleanup
    async def count(self, state: Any) -> None:
        self.cleaned += 1


async def right(completion: Any, answer: str, **_: Any) -> float:
    said = [message["content"] for message in completion if message["role"] == "assistant"]
    return float(bool(said) and said[-1] == answer)


def riddle(max_turns: int = 5, **options: Any) -> Any:
    rubric = vf.Rubric(funcs=[right])
    return Riddle(dataset=rows(), rubric=rubric, max_turns=max_turns, env_id="riddle", **options)


def make(**options: Any) -> VerifiersEnvironment:
    return VerifiersEnvironment(riddle, **{"horizon": 8, "example_actions": WORDS, **options})


def test_a_multi_turn_environment_keeps_the_contract() -> None:
    report = check_environment(make)
    assert {finding.fault for finding in report.findings} == {Fault.BY_REPLAY}
    assert report.kept


def test_a_riddle_is_solved_in_two_turns() -> None:
    env = make()
    observation, info = env.reset(options={"task": 1})
    assert env.tasks == 3
    assert observation == info["task"] == "A fruit with 4 letters."
    assert info["task_family"] == "riddle"
    observation, reward, terminated, truncated, info = env.step("kiwi")
    assert (observation, reward, terminated, truncated) == (
        "No. It begins with p.",
        0.0,
        False,
        False,
    )
    observation, reward, terminated, truncated, info = env.step("pear")
    assert (observation, reward, terminated, truncated) == ("", 1.0, True, False)
    assert info["won"] is True
    env.close()


def test_the_environment_may_have_the_last_word() -> None:
    env = make()
    env.reset(options={"task": 2})
    observation, reward, terminated, _, info = env.step("give up")
    assert (observation, reward, terminated, info["won"]) == ("It was banana.", 0.0, True, False)
    env.close()


def test_its_own_limit_is_a_truncation() -> None:
    env = make()
    env.reset(options={"task": 0})
    ends = [env.step("kiwi")[2:4] for _ in range(5)]
    assert ends == [(False, False)] * 4 + [(False, True)]
    env.close()


def test_the_same_rollout_in_verifiers_own_loop_earns_the_same() -> None:
    """What Ascribe plays step by step, against ``MultiTurnEnv.rollout`` with a scripted model."""
    script = ["kiwi", "apple"]
    own, said = riddle(), iter(script)

    async def scripted(state: Any, prompt: Any, **_: Any) -> Any:
        from ascribe.envs.adapters.verifiers import _response

        return _response(next(said))

    async def whole() -> Any:
        from ascribe.envs.adapters.verifiers import _no_client

        own.get_model_response = scripted
        state = await own.rollout(dict(own.get_dataset()[0]), _no_client(), "scripted")
        await own.rubric.score_rollout(state)
        return state

    state = asyncio.run(whole())
    env = make()
    env.reset(options={"task": 0})
    steps = [env.step(action) for action in script]
    assert steps[-1][1] == state["reward"] == 1.0
    assert steps[-1][2] is True
    assert state["stop_condition"] == "found"
    replies = [message["content"] for message in state["completion"] if message["role"] == "user"]
    assert [step[0] for step in steps[:-1]] == replies
    env.close()


def test_an_environment_of_one_turn_ends_by_itself() -> None:
    single = vf.SingleTurnEnv(dataset=rows(), rubric=vf.Rubric(funcs=[right]))
    env = VerifiersEnvironment(single, horizon=3)
    env.reset(options={"task": 0})
    _, reward, terminated, truncated, info = env.step("apple")
    assert (reward, terminated, truncated, info["won"]) == (1.0, True, False, True)
    env.close()


def test_every_episode_is_cleaned_up_once() -> None:
    inner = riddle()
    env = VerifiersEnvironment(inner, horizon=8)
    env.reset(seed=0)
    env.reset(seed=1)
    assert inner.cleaned == 1, "the episode that was left"
    while not any(env.step("kiwi")[2:4]):
        pass
    assert inner.cleaned == 2
    env.close()
    env.close()
    assert inner.cleaned == 2


def test_it_works_inside_another_event_loop() -> None:
    async def play() -> str:
        env = make()
        observation, _ = env.reset(seed=0)
        env.close()
        return observation

    assert asyncio.run(play()).startswith("A fruit")


def test_the_state_is_the_whole_chat() -> None:
    env = make()
    states = []
    for actions in (["kiwi", "fig"], ["fig", "kiwi"], ["kiwi", "fig"]):
        env.reset(options={"task": 0})
        states.append([env.step(action)[4]["state"] for action in actions])
    assert states[0] == states[2]
    assert not set(states[0]) & set(states[1])
    env.close()


def test_an_environment_that_hangs_is_given_up() -> None:
    class Slow(Riddle):
        async def env_response(self, messages: Any, state: Any, **_: Any) -> Any:
            await asyncio.sleep(60)

    env = VerifiersEnvironment(partial(Slow, dataset=rows()), horizon=8, timeout=0.2)
    env.reset(seed=0)
    with pytest.raises(TimeoutError):
        env.step("kiwi")
    env.close()


def group_reward(completions: list[Any], **_: Any) -> list[float]:
    return [0.0] * len(completions)


def test_what_text_cannot_drive_is_refused() -> None:
    tool = vf.Tool(name="look", description="", parameters={})
    with pytest.raises(ValueError, match="tools"):
        VerifiersEnvironment(partial(riddle, tool_defs=[tool]), horizon=8)
    with pytest.raises(ValueError, match="groups"):
        VerifiersEnvironment(
            partial(Riddle, dataset=rows(), rubric=vf.Rubric(funcs=[group_reward])), horizon=8
        )
    with pytest.raises(TypeError, match="MultiTurnEnv"):
        VerifiersEnvironment(object, horizon=8)
    with pytest.raises(ValueError, match="split"):
        make(split="test")
    with pytest.raises(ValueError, match="no task 3"):
        make().reset(options={"task": 3})


def test_the_example_of_the_page() -> None:
    assert_example_prints_what_the_page_shows("verifiers")
