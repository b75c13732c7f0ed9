"""Policies without a model, and policies by name."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from ascribe_lab.models import (
    ExpertPolicy,
    FaultyPolicy,
    RandomPolicy,
    TransformersPolicy,
    make_policy,
    write_smollm2,
)
from ascribe_lab.models.policy import Request, Sample, Sampling, SamplingPolicy

ANY = Sampling()
ACTIONS = ["go north", "look", "take key"]


def answers(policy: SamplingPolicy, info: dict[str, Any], seeds: range = range(300)) -> list[str]:
    return [sample.text for sample in policy([Request([], seed, info) for seed in seeds], ANY)]


def test_random_takes_every_admissible_action_about_as_often() -> None:
    texts = answers(RandomPolicy(), {"admissible_actions": ACTIONS, "example_actions": ["no"]})
    counts = Counter(texts)
    assert set(counts) == {f"<action>{action}</action>" for action in ACTIONS}
    # 100 each, give or take five standard deviations of 8.
    assert min(counts.values()) > 60


def test_random_follows_the_seed_alone() -> None:
    info = {"admissible_actions": ACTIONS}
    texts = answers(RandomPolicy(), info)
    assert answers(RandomPolicy(), info) == texts
    assert answers(RandomPolicy(), info, range(100, 200)) == texts[100:200]


@pytest.mark.parametrize("admissible", [None, []])
def test_random_falls_back_to_examples(admissible: Any) -> None:
    info = {"admissible_actions": admissible, "example_actions": ["search[mug]"]}
    assert answers(RandomPolicy(), info, range(2)) == ["<action>search[mug]</action>"] * 2


def test_random_needs_an_action() -> None:
    with pytest.raises(ValueError, match="names no action"):
        answers(RandomPolicy(), {"admissible_actions": None})


def test_the_expert() -> None:
    assert answers(ExpertPolicy(), {"expert_action": "look"}, range(1)) == ["<action>look</action>"]
    assert answers(ExpertPolicy(), {"expert_action": None}, range(1)) == [""]
    with pytest.raises(ValueError, match="make it with expert=True"):
        answers(ExpertPolicy(), {})


@pytest.mark.parametrize("kind", [RandomPolicy, ExpertPolicy])
def test_how_an_action_is_put(kind: Any) -> None:
    policy = kind(write=lambda action: f"Action: {action}")
    info = {"admissible_actions": ["look"], "expert_action": "look"}
    assert policy([Request([], 0, info)], ANY) == [Sample("Action: look")]
    policy.close()


def test_faulty_takes_the_experts_action_or_any() -> None:
    info = {"admissible_actions": ACTIONS, "expert_action": "open door"}
    texts = answers(FaultyPolicy(), info)
    counts = Counter(texts)
    assert set(counts) == {f"<action>{action}</action>" for action in [*ACTIONS, "open door"]}
    # 150, give or take five standard deviations of 9.
    assert 105 < counts["<action>open door</action>"] < 195
    assert answers(FaultyPolicy(), info, range(100, 200)) == texts[100:200]


def test_scripted_policies_by_name() -> None:
    assert isinstance(make_policy("random"), RandomPolicy)
    policy = make_policy("expert", write=str.upper)
    assert answers(policy, {"expert_action": "look"}, range(1)) == ["LOOK"]


def test_a_folder_by_name(tiny_folder: Path) -> None:
    import torch

    policy = make_policy(tiny_folder, dtype="bfloat16", context=100)
    assert isinstance(policy, TransformersPolicy)
    assert policy.model.dtype == torch.bfloat16
    assert policy.chat.context == 100
    (sample,) = policy([Request([{"role": "user", "content": "Go."}], 0)], Sampling(max_tokens=3))
    assert len(sample.logprobs) == 3


def test_a_folder_that_has_the_model_is_left_alone(tiny_folder: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in tiny_folder.iterdir()}
    assert write_smollm2(tiny_folder) == tiny_folder
    assert {path: path.stat().st_mtime_ns for path in tiny_folder.iterdir()} == before


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("nobody", {}, "there is no policy 'nobody'.*random, expert, faulty, smollm2"),
        ("random", {"backend": "abacus"}, "there is no backend 'abacus'.*transformers, vllm"),
        ("http://localhost:1", {}, "a server needs tokenizer="),
        ("smollm2", {"backend": "vllm"}, "vllm reads folders.*write_smollm2"),
        ("smollm2", {"dtype": "float99"}, "no type 'float99'; did you mean float32"),
        ("smollm2", {"dtype": "nn"}, "there is no type 'nn'"),
    ],
)
def test_what_cannot_be_made(model: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_policy(model, **options)


def test_a_type_that_torch_lacks_is_refused(tiny_folder: Path) -> None:
    with pytest.raises(ValueError, match="no type 'float99'; did you mean float32"):
        make_policy(tiny_folder, dtype="float99")


@pytest.mark.parametrize("backend", ["transformers", "vllm"])
def test_only_safetensors_are_read(tmp_path: Path, backend: str) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    if backend == "transformers":
        pytest.importorskip("torch", reason="needs the extra actor")
    with pytest.raises(FileNotFoundError, match=r"holds no \*\.safetensors"):
        make_policy(tmp_path, backend=backend)
