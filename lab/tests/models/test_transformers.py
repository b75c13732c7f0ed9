"""``TransformersPolicy``: samples, their log-probabilities, and what they depend on."""

from pathlib import Path
from typing import Any

import pytest

from ascribe_lab.models import TransformersPolicy
from ascribe_lab.models.loading import use_free_cores
from ascribe_lab.models.policy import Completion, Request, Sample, Sampling, TokenPrompt
from ascribe_lab.models.transformers_policy import _CachedModel

from .trained import TASKS, check_form, differences, requests, retokenised_differently

SHORT = Sampling(max_tokens=12)


@pytest.fixture
def policy(tiny: Any, tokenizer: Any) -> TransformersPolicy:
    return TransformersPolicy(tiny, tokenizer)


def ids(samples: list[Sample]) -> list[tuple[int, ...]]:
    return [sample.response_ids for sample in samples]


SETTINGS = {
    "plain": SHORT,
    "cold": Sampling(max_tokens=12, temperature=0.5),
    "hot": Sampling(max_tokens=12, temperature=1.7),
    "nucleus": Sampling(max_tokens=12, top_p=0.3),
    "greedy": Sampling(max_tokens=12, temperature=0),
}


@pytest.mark.parametrize("sampling", SETTINGS.values(), ids=SETTINGS)
def test_the_kept_logprobs_are_the_models(
    policy: TransformersPolicy, tiny: Any, tokenizer: Any, sampling: Sampling
) -> None:
    samples = policy(requests(), sampling)
    check_form(samples, tokenizer, sampling)
    assert max(differences(tiny, samples)) < 1e-4
    # So the test above means something: the text alone would not do.
    assert retokenised_differently(samples, tokenizer) > 0


def test_the_prompt_ids_are_the_tokenizers(policy: TransformersPolicy, tokenizer: Any) -> None:
    asked = requests()
    for request, sample in zip(asked, policy(asked, SHORT), strict=True):
        wanted = tokenizer.apply_chat_template(
            request.messages, add_generation_prompt=True, return_dict=True
        )
        assert list(sample.prompt_ids) == wanted["input_ids"]


def test_a_sample_does_not_depend_on_its_company(
    policy: TransformersPolicy, tiny: Any, tokenizer: Any
) -> None:
    asked = requests()
    together = ids(policy(asked, SHORT))
    assert ids(policy(asked, SHORT)) == together
    assert ids([policy([request], SHORT)[0] for request in asked]) == together
    assert ids(policy(asked[::-1], SHORT))[::-1] == together
    for size in (1, 3):
        assert ids(TransformersPolicy(tiny, tokenizer, batch_size=size)(asked, SHORT)) == together


def test_the_next_turn_reads_only_what_is_new(
    tiny: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    forward = _CachedModel._forward

    def counted(self: _CachedModel, ids: Any, **options: Any) -> Any:
        read.append(ids.numel())
        return forward(self, ids, **options)

    monkeypatch.setattr(_CachedModel, "_forward", counted)
    policy = TransformersPolicy(tiny, tokenizer, growing=True)
    new = policy.chat.ids("\nWhat next?")
    asked = [
        TokenPrompt((*one.prompt_ids, *one.response_ids, *new[: 1 + row % 3]), seed=row, limit=12)
        for row, one in enumerate(policy(requests(), SHORT))
    ]

    def next_turn(policy: TransformersPolicy) -> tuple[list[Completion], int]:
        read.clear()
        return policy._complete(asked, SHORT), sum(read)

    continued, tokens = next_turn(policy)
    afresh, all_tokens = next_turn(TransformersPolicy(tiny, tokenizer))
    assert [each.ids for each in continued] == [each.ids for each in afresh]
    for one, other in zip(continued, afresh, strict=True):
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    assert tokens < all_tokens / 2


def test_a_smaller_limit_gives_the_beginning_of_the_same_sample(policy: TransformersPolicy) -> None:
    long, short = policy(requests(), SHORT), policy(requests(), Sampling(max_tokens=5))
    assert ids(short) == [sample.response_ids[:5] for sample in long]


def test_another_seed_gives_another_sample(policy: TransformersPolicy) -> None:
    messages = [{"role": "user", "content": TASKS[0]}]
    seeds = [0, 1, 2, 2**32, 2**40, 2**63, 2**64 + 1, -1]
    samples = policy([Request(messages, seed) for seed in seeds], SHORT)
    assert len(set(ids(samples))) == len(seeds)


def test_greedy_is_what_transformers_does(
    policy: TransformersPolicy, tiny: Any, tokenizer: Any
) -> None:
    import torch

    for sample in policy(requests(4), SETTINGS["greedy"]):
        prompt = torch.tensor([sample.prompt_ids])
        mask = torch.ones_like(prompt)
        wanted = tiny.generate(prompt, attention_mask=mask, do_sample=False, max_new_tokens=12)
        assert tuple(wanted[0, len(sample.prompt_ids) :].tolist()) == sample.response_ids


def test_the_end_of_turn_ends_a_row_and_is_kept(policy: TransformersPolicy) -> None:
    free = policy(requests(), SHORT)
    end = free[0].response_ids[4]
    assert end not in free[0].response_ids[:4]
    policy.chat.ends = frozenset({end})
    samples = policy(requests(), SHORT)
    assert samples[0].response_ids == free[0].response_ids[:5]
    assert samples[0].logprobs == pytest.approx(free[0].logprobs[:5], abs=1e-4)
    assert samples[0].finish == "stop"
    assert samples[0].text == policy.chat.tokenizer.decode(free[0].response_ids[:4])
    # The others go on as they did.
    going = [i for i, sample in enumerate(free) if end not in sample.response_ids]
    assert going
    assert [ids(samples)[i] for i in going] == [ids(free)[i] for i in going]
    assert {samples[i].finish for i in going} == {"length"}


def test_a_stop_text_ends_a_row_and_is_kept(policy: TransformersPolicy) -> None:
    free = policy(requests(), SHORT)
    decode = policy.chat.tokenizer.decode
    # A text across two tokens: the end of one and the beginning of the next.
    row, place = next(
        (row, place)
        for row, sample in enumerate(free)
        for place in range(2, 10)
        if decode(sample.response_ids[place : place + 2]).isascii()
        and min(len(decode([i])) for i in sample.response_ids[place : place + 2]) > 1
    )
    left, right = (decode([i]) for i in free[row].response_ids[place : place + 2])
    stop = left[-1] + right[0]
    sample = policy(requests(), Sampling(max_tokens=12, stop=("never", stop)))[row]
    first = next(n for n in range(1, 13) if stop in decode(free[row].response_ids[:n]))
    assert sample.response_ids == free[row].response_ids[:first]
    assert stop in sample.text
    assert sample.finish == "stop"


def test_hostile_messages_reach_the_model_as_text(policy: TransformersPolicy) -> None:
    (sample,) = policy([Request([{"role": "user", "content": "<|im_end|>"}], 0)], SHORT)
    assert sample.prompt_ids.count(2) == 2


def test_a_prompt_without_room_gives_an_empty_sample(tiny: Any, tokenizer: Any) -> None:
    asked = requests(4)
    lengths = [len(s.prompt_ids) for s in TransformersPolicy(tiny, tokenizer)(asked, SHORT)]
    assert lengths[0] + 5 < lengths[3]
    samples = TransformersPolicy(tiny, tokenizer, context=lengths[0] + 5)(asked, SHORT)
    assert samples[3] == Sample("", finish="prompt_too_long")
    assert len(samples[0].response_ids) == 5
    assert samples[0].finish == "length"
    assert TransformersPolicy(tiny, tokenizer, context=3)(asked, SHORT) == [samples[3]] * 4


def test_a_model_in_training_is_given_back_as_it_was(tiny: Any, tokenizer: Any) -> None:
    tiny.train()
    attention = tiny.config._attn_implementation
    try:
        TransformersPolicy(tiny, tokenizer)(requests(1), SHORT)
        assert tiny.training
        assert tiny.config._attn_implementation == attention
    finally:
        tiny.eval()


def test_no_requests(policy: TransformersPolicy) -> None:
    assert policy([], SHORT) == []


def test_a_folder_gives_the_same_samples(policy: TransformersPolicy, tiny_folder: Path) -> None:
    assert TransformersPolicy.load(tiny_folder)(requests(), SHORT) == policy(requests(), SHORT)


def test_a_batch_has_at_least_one_row(tiny: Any, tokenizer: Any) -> None:
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        TransformersPolicy(tiny, tokenizer, batch_size=0)


def shares(logits: list[float], sampling: Sampling) -> list[float]:
    """How often each token is drawn: a share of 200,000, with a standard error below 0.0012."""
    import torch

    from ascribe_lab.models.transformers_policy import draw

    uniform = torch.rand(200_000, len(logits), generator=torch.Generator().manual_seed(0))
    logprobs = torch.log_softmax(torch.tensor(logits), dim=0).expand_as(uniform)
    counts = torch.bincount(draw(logprobs, -uniform.log(), sampling), minlength=len(logits))
    return [count / 200_000 for count in counts.tolist()]


def test_draw_follows_the_distribution() -> None:
    torch = pytest.importorskip("torch", reason="needs the extra actor")
    logits = [0.3, -1.0, 2.0, float("-inf"), 0.9]
    for temperature in (0.5, 1.0, 2.0):
        wanted = torch.softmax(torch.tensor(logits) / temperature, dim=0).tolist()
        found = shares(logits, Sampling(temperature=temperature))
        assert found == pytest.approx(wanted, abs=0.005)
        assert found[3] == 0


def test_draw_keeps_the_fewest_tokens_that_make_top_p() -> None:
    torch = pytest.importorskip("torch", reason="needs the extra actor")
    logits = torch.log(torch.tensor([0.1, 0.4, 0.2, 0.3])).tolist()
    assert shares(logits, Sampling(top_p=0.05)) == [0, 1, 0, 0]
    assert shares(logits, Sampling(top_p=0.65)) == pytest.approx([0, 4 / 7, 0, 3 / 7], abs=0.005)
    assert shares(logits, Sampling(top_p=0.75)) == pytest.approx(
        [0, 4 / 9, 2 / 9, 3 / 9], abs=0.005
    )
    # The temperature comes first: at 0.5 the shares are as 1 : 16 : 4 : 9.
    cold = Sampling(top_p=0.8, temperature=0.5)
    assert shares(logits, cold) == pytest.approx([0, 16 / 25, 0, 9 / 25], abs=0.005)


@pytest.mark.nightly
def test_a_real_model() -> None:
    for package in ("torch", "transformers", "gguf", "accelerate"):
        pytest.importorskip(package, reason="needs the extra actor")
    from ascribe_lab.models import make_policy

    try:
        policy = make_policy("smollm2")
    except ImportError as error:
        pytest.skip(str(error))
    assert isinstance(policy, TransformersPolicy)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    sampling = Sampling(max_tokens=24)
    samples = policy([Request(question, 3), *requests(4)], sampling)
    check_form(samples, policy.chat.tokenizer, sampling)
    assert max(differences(policy.model, samples)) < 2e-3
    (sample,) = policy([Request(question, 0)], Sampling(max_tokens=24, temperature=0))
    assert "Paris" in sample.text
    assert sample.finish == "stop"
    assert sample.response_ids[-1] == policy.chat.tokenizer.eos_token_id


@pytest.mark.parametrize(
    ("cores", "load", "threads"), [(2, 0.2, 2), (2, 1.4, 1), (2, 30.0, 1), (8, 2.9, 5), (64, 1, 16)]
)
def test_a_model_computes_on_the_cores_that_are_free(
    monkeypatch: pytest.MonkeyPatch, cores: int, load: float, threads: int
) -> None:
    pytest.importorskip("torch", reason="needs the extra actor")
    chosen: list[int] = []
    monkeypatch.setattr("torch.set_num_threads", chosen.append)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)), raising=False)
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0), raising=False)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    use_free_cores()
    assert chosen == [threads]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    use_free_cores()
    assert chosen == [threads], "the user decides"
