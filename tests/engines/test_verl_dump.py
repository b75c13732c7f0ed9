"""verl's own dump of rollouts, decoded and written by verl, is imported with its turns."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ascribe.sessions.reading import import_files
from tests.engines.needs import NEEDS_VERL
from tests.sessions import make_samples as samples
from tests.sessions.test_formats import assert_attempts

pytestmark = [pytest.mark.engine, NEEDS_VERL, pytest.mark.filterwarnings("ignore")]


def tokenizer() -> Any:
    """Bytes as tokens, with the special tokens of ChatML."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    plain = Tokenizer(models.BPE({byte: index for index, byte in enumerate(alphabet)}, []))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<|pad|>")
    fast.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    return fast


def chatml(attempt: int) -> tuple[str, str]:
    """A prompt and a response of several turns, as Qwen's chat template writes them."""
    prompt = "".join(
        f"<|im_start|>{m['role']}\n{m['content']}<|im_end|>\n" for m in samples.prompt()
    )
    response = ""
    for assistant, result in samples.turns(attempt):
        for call in assistant.get("tool_calls", []):
            function = call["function"]
            value = {"name": function["name"], "arguments": json.loads(function["arguments"])}
            response += f"<tool_call>\n{json.dumps(value)}\n</tool_call>"
        response += f"{assistant['content'] or ''}<|im_end|>\n"
        if result is not None:
            response += f"<|im_start|>user\n<tool_response>\n{result['content']}\n</tool_response>"
            response += "<|im_end|>\n<|im_start|>assistant\n"
    return f"{prompt}<|im_start|>assistant\n", response.removesuffix("\n")


def test_the_dump_of_verl_is_read_turn_by_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from verl.trainer.ppo.v1 import trainer_base

    words = tokenizer()
    prompts, responses = zip(*map(chatml, range(len(samples.ATTEMPTS))), strict=True)

    def nested(texts: tuple[str, ...]) -> Any:
        rows = [torch.tensor(words(text)["input_ids"]) for text in texts]
        return torch.nested.nested_tensor(rows, layout=torch.jagged)

    scores = [[0.0, reward] for _, _, reward in samples.ATTEMPTS]
    batch = {
        "uid": np.array(["sample"] * len(prompts)),
        "prompts": nested(prompts),
        "responses": nested(responses),
        "rm_scores": torch.tensor(scores),
    }
    monkeypatch.setattr(trainer_base.tq, "kv_batch_get", lambda **_: dict(batch))
    abstract = dict.fromkeys(trainer_base.PPOTrainer.__abstractmethods__, lambda _: None)
    trainer = object.__new__(type("Dumping", (trainer_base.PPOTrainer,), abstract))
    trainer.tokenizer, trainer.global_steps = words, 7
    trainer._init_dump_executor()
    keys = [f"sample_{attempt}_0" for attempt in range(len(prompts))]
    trainer._log_rollout_data(SimpleNamespace(keys=keys, partition_id="train"), {}, str(tmp_path))
    trainer._shutdown_dump_executor()

    assert "<|im_start|>" not in (tmp_path / "7.jsonl").read_text()
    imported = import_files([tmp_path / "7.jsonl"])
    assert imported.format == "verl"
    assert_attempts(imported)
    assert list(imported.table.group.values) == ["7/sample"]
    assert set(imported.table.iteration) == {7}
