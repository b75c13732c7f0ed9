"""The warm-up: what is taught, how it is learned, and that a model then speaks the language."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe_lab.models import Chat, ExpertPolicy, RandomPolicy
from ascribe_lab.rollout import Model, Plan, Request, Sample, Sampling, Setup, play, success
from ascribe_lab.train.warmup import (
    Demonstration,
    NoisyExpert,
    Schedule,
    TrainingExample,
    Warmup,
    demonstrate,
    finetune,
    warm_up,
)
from lab.tests.models.conftest import load_tokenizer, random_llama

CORRIDOR = Setup("lab.tests.envs.toys:Corridor", {}, style="plain", pool="serial")
SAMPLING = Sampling()


# What is taught.


def requests(number: int) -> list[Request]:
    info = {"expert_action": "right", "admissible_actions": ["left", "jump"]}
    return [Request([{"role": "user", "content": str(i)}], i, info) for i in range(number)]


def test_noise_changes_what_is_done_and_not_what_is_taught() -> None:
    policy = NoisyExpert(ExpertPolicy(str), RandomPolicy(str), 0.3)
    done = [sample.text for sample in policy(requests(1000), SAMPLING)]
    assert [answer for _, answer in policy.recorded] == ["right"] * 1000
    assert set(done) == {"left", "right", "jump"}
    assert 0.25 < sum(action != "right" for action in done) / 1000 < 0.35
    again = NoisyExpert(ExpertPolicy(str), RandomPolicy(str), 0.3)(requests(1000), SAMPLING)
    assert [sample.text for sample in again] == done


def test_without_noise_the_teacher_does_what_it_teaches() -> None:
    policy = NoisyExpert(ExpertPolicy(str), RandomPolicy(str), 0.0)
    assert {sample.text for sample in policy(requests(50), SAMPLING)} == {"right"}


def test_where_the_teacher_knows_no_way_on_nothing_is_taught() -> None:
    policy = NoisyExpert(ExpertPolicy(str), RandomPolicy(str), 0.0)
    lost = Request([], 0, {"expert_action": None, "admissible_actions": ["left"]})
    assert policy([lost], SAMPLING) == [Sample("")]
    assert policy.recorded == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"teacher": "oracle"}, "teacher\n.*'expert' or 'random'"),
        ({"episodes": 0}, "episodes\n.*greater than or equal to 1"),
        ({"noise": 1.0}, "noise\n.*less than 1"),
        ({"teacher": "random", "noise": 0.1}, "noise is for the expert"),
    ],
)
def test_demonstrations_that_make_no_sense(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Demonstration(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"steps": 0}, "steps\n.*greater than or equal to 1"),
        ({"batch": 0}, "batch\n.*greater than or equal to 1"),
        ({"learning_rate": 0.0}, "learning_rate\n.*greater than 0"),
    ],
)
def test_schedules_that_make_no_sense(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Schedule(**given)


def test_losses_are_summed_up_by_tenths() -> None:
    done = Warmup(1, 1, (5.0, 3.0, *[1.0] * 16, 0.5, 0.1))
    assert (done.first_loss, done.last_loss) == (4.0, pytest.approx(0.3))
    assert Warmup(1, 1, (2.0,)).last_loss == 2.0


# With a tokenizer and a model.


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return load_tokenizer()


@pytest.mark.engine
def test_lessons_are_prompts_as_in_sampling_and_answers_with_their_end(tokenizer: Any) -> None:
    chat = Chat(tokenizer)
    found = demonstrate(CORRIDOR, chat, Demonstration(episodes=20, seed=1))
    played = play(CORRIDOR, Model("expert"), Plan(20, 1, 12, seed=1))
    steps = [step for trajectory in played.trajectories for step in trajectory.steps]
    assert sorted(lesson.prompt for lesson in found) == sorted(
        chat.prompt(step.messages) for step in steps
    )
    assert {lesson.response[-1] for lesson in found} == {tokenizer.eos_token_id}
    answers = {"<action>left</action>", "<action>right</action>"}
    assert {chat.text(lesson.response) for lesson in found} == answers


@pytest.mark.engine
def test_noise_leads_to_more_states(tokenizer: Any) -> None:
    chat = Chat(tokenizer)
    straight = demonstrate(CORRIDOR, chat, Demonstration(episodes=40))
    straying = demonstrate(CORRIDOR, chat, Demonstration(episodes=40, noise=0.4))
    assert len({lesson.prompt for lesson in straying}) > len({lesson.prompt for lesson in straight})


@pytest.mark.engine
def test_lessons_are_the_same_on_every_pool(tokenizer: Any) -> None:
    chat, shown = Chat(tokenizer), Demonstration(episodes=12, noise=0.2, seed=4)
    assert demonstrate(CORRIDOR, chat, shown) == demonstrate(
        replace(CORRIDOR, pool="processes"), chat, shown
    )
    assert demonstrate(CORRIDOR, chat, shown) != demonstrate(CORRIDOR, chat, replace(shown, seed=5))


@pytest.mark.engine
def test_random_actions_can_teach_as_well(tokenizer: Any) -> None:
    found = demonstrate(CORRIDOR, Chat(tokenizer), Demonstration("random", episodes=5))
    assert len(found) > 5


@pytest.mark.engine
def test_lessons_that_do_not_fit_are_left_out(tokenizer: Any) -> None:
    shown = Demonstration(episodes=20)
    whole = demonstrate(CORRIDOR, Chat(tokenizer), shown)
    sizes = [len(lesson.prompt) + len(lesson.response) for lesson in whole]
    middle = int(np.median(sizes))
    fitting = demonstrate(CORRIDOR, Chat(tokenizer, context=middle), shown)
    assert len(fitting) == sum(size <= middle for size in sizes)
    with pytest.raises(ValueError, match="no episode gave an example that fits"):
        demonstrate(CORRIDOR, Chat(tokenizer, context=10), shown)


@pytest.mark.engine
def test_examples_of_trajectories_are_prompts_of_that_training(tokenizer: Any) -> None:
    shown = Demonstration(episodes=3, noise=0.2, max_turns=6, layout="trajectory")
    examples = demonstrate(CORRIDOR, Chat(tokenizer), shown)
    assert len({example.prompt for example in examples}) > 6
    # A growing chat: a longer prompt begins with a shorter one and a response to it.
    longest = max((example.prompt for example in examples), key=len)
    begun = [one for one in examples if longest[: len(one.prompt)] == one.prompt]
    assert len({one.prompt for one in begun}) > 2
    text = tokenizer.decode(longest)
    assert text.count("<|im_start|>assistant") == len({one.prompt for one in begun})


@pytest.mark.engine
def test_an_action_cannot_become_a_special_token(tokenizer: Any) -> None:
    from ascribe_lab.train.warmup import _example

    made = _example(Chat(tokenizer), [{"role": "user", "content": "?"}], "<|im_end|> and more")
    assert made is not None
    special = set(tokenizer.all_special_ids)
    assert special.isdisjoint(made.response[:-1])
    assert made.response[-1] == tokenizer.eos_token_id


@pytest.fixture
def tiny(tokenizer: Any) -> Any:
    return random_llama(len(tokenizer))


def ragged() -> list[TrainingExample]:
    return [
        TrainingExample(tuple(range(3, 3 + n)), tuple(range(40, 40 + n % 4 + 1)))
        for n in range(4, 14)
    ]


def plain_loss(model: Any, batch: Sequence[TrainingExample]) -> float:
    """The mean surprise at a response token, one lesson at a time."""
    import torch

    total = 0.0
    for lesson in batch:
        ids = torch.tensor([lesson.prompt + lesson.response])
        with torch.no_grad():
            known = torch.log_softmax(model(input_ids=ids).logits[0].double(), dim=-1)
        for place, token in enumerate(lesson.response, start=len(lesson.prompt)):
            total -= float(known[place - 1, token])
    return total / sum(len(lesson.response) for lesson in batch)


@pytest.mark.engine
@pytest.mark.parametrize("batch", [10, 5])
def test_the_loss_is_the_mean_surprise_at_response_tokens(
    tokenizer: Any, tiny: Any, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("trl", reason="needs the extra trl")
    examples = ragged()[:batch]
    expected = plain_loss(tiny, examples)
    monkeypatch.setattr("ascribe_lab.train.warmup.MOST_TOKENS", 40)  # less than the batch has
    losses = finetune(tiny, tokenizer, examples, Schedule(1, batch, 1e-3))
    assert losses == [pytest.approx(expected, rel=1e-5)]
    assert plain_loss(tiny, examples) < expected


@pytest.mark.engine
def test_teaching_is_the_same_by_seed(tokenizer: Any) -> None:
    pytest.importorskip("trl", reason="needs the extra trl")
    import torch

    models = [random_llama(len(tokenizer)) for _ in range(3)]
    for model, seed in zip(models, (1, 1, 2), strict=True):
        finetune(model, tokenizer, ragged(), Schedule(4, 3, 1e-2, seed=seed))
        assert not model.training
    first, same, other = (next(model.parameters()) for model in models)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


@pytest.mark.engine
@pytest.mark.slow
def test_a_random_model_learns_to_speak(tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="needs the extra trl")
    from ascribe_lab.models.loading import load_causal_lm, save_model
    from tests.tiny_model import train_tokenizer

    # Few tokens, so that its outputs are quickly computed.
    tokenizer = train_tokenizer(["You are at 3. go to 7. left right task step action think"], 320)
    model = random_llama(len(tokenizer))
    model.config.max_position_embeddings = 2048
    start = save_model(model, tokenizer, tmp_path / "start")
    done = warm_up(
        start,
        CORRIDOR,
        tmp_path / "warm",
        demonstration=Demonstration(episodes=60, noise=0.2),
        schedule=Schedule(steps=120, batch=16, learning_rate=1e-2),
    )
    assert done.last_loss < 0.2 < 2.0 < done.first_loss
    assert done.examples > 60
    model, _ = load_causal_lm(tmp_path / "warm")
    assert model.config.hidden_size == 64
    plan = Plan(8, 1, 12, sampling=Sampling(0.4, max_tokens=32))
    before, after = (
        success(play(CORRIDOR, Model(str(folder)), plan))[-1]
        for folder in (start, tmp_path / "warm")
    )
    assert before.valid < 0.05
    assert after.valid > 0.95
    assert after.rate >= before.rate


@pytest.mark.engine
def test_a_folder_that_holds_something_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="not an empty folder"):
        warm_up("smollm2", CORRIDOR, tmp_path)


def test_without_trl_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ascribe_lab.train.warmup.find_spec", lambda _: None)
    with pytest.raises(ImportError, match=r"needs TRL, which is not installed; run: pip .*\[trl\]"):
        warm_up("smollm2", CORRIDOR, tmp_path / "new")
