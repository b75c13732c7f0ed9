"""What holds for the samples of every policy that asks a model."""

from collections.abc import Sequence
from typing import Any

from ascribe_lab.models.policy import Request, Sample, Sampling

TASKS = (
    "You are in the hall. There is a key on the desk.",
    "Count the apples, then say north or east.",
    "¿Dónde está la llave? 鍵はどこ? 🗝️",
    "You see a drawer.\n\n\tIt is closed. " * 6,
)


def requests(number: int = 8, seed: int = 0) -> list[Request]:
    """Requests of several lengths; some have the same messages and another seed."""
    return [
        Request([{"role": "user", "content": TASKS[i % len(TASKS)]}], seed=seed + i)
        for i in range(number)
    ]


def recomputed(model: Any, sample: Sample) -> Any:
    """The log-probabilities of a response by one plain forward pass, without cache or padding."""
    import torch

    ids = torch.tensor([sample.prompt_ids + sample.response_ids])
    with torch.no_grad():
        logits = model(input_ids=ids).logits[0, len(sample.prompt_ids) - 1 : -1]
    table = torch.log_softmax(logits.float(), dim=-1)
    return table[torch.arange(len(sample.response_ids)), list(sample.response_ids)].numpy()


def differences(model: Any, samples: Sequence[Sample]) -> list[float]:
    """How far the kept log-probabilities are from recomputed ones, token by token."""
    return [
        abs(float(kept) - float(again))
        for sample in samples
        for kept, again in zip(sample.logprobs, recomputed(model, sample), strict=True)
    ]


def check_form(samples: Sequence[Sample], tokenizer: Any, sampling: Sampling) -> None:
    """Ids, log-probabilities and text belong together."""
    for sample in samples:
        assert 1 <= len(sample.response_ids) <= sampling.max_tokens
        assert len(sample.logprobs) == len(sample.response_ids)
        ended = sample.response_ids[-1] == tokenizer.eos_token_id
        words = sample.response_ids[:-1] if ended else sample.response_ids
        assert tokenizer.decode(words) == sample.text


def retokenised_differently(samples: Sequence[Sample], tokenizer: Any) -> int:
    """How many samples would be trained on other ids if their text were tokenised again."""
    return sum(
        tuple(tokenizer(sample.text)["input_ids"])
        != tuple(i for i in sample.response_ids if i != tokenizer.eos_token_id)
        for sample in samples
    )
