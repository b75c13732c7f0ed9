"""The tokens that end a turn, and which episodes are truncated."""

from types import SimpleNamespace
from typing import Any

import pytest

from ascribe.sessions.endings import end_tokens, is_truncated

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
)
TAIL = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }} {% endfor %}</s>"


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    pytest.importorskip("transformers")
    from tests.tiny_model import train_tokenizer

    made = train_tokenizer(["user assistant ascribe?"], 300)
    made.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>", "</s>"]})
    made.eos_token = "<|endoftext|>"
    made.add_tokens(["</tool_call>"])
    return made


def test_end_tokens_are_those_of_tokenizer_config_and_template(tokenizer: Any) -> None:
    im_end, s = tokenizer.convert_tokens_to_ids(["<|im_end|>", "</s>"])
    own = {tokenizer.eos_token_id}
    tokenizer.chat_template = None
    assert end_tokens(tokenizer) == own
    assert end_tokens(tokenizer, SimpleNamespace(eos_token_id=None)) == own
    assert end_tokens(tokenizer, SimpleNamespace(eos_token_id=s)) == own | {s}
    assert end_tokens(tokenizer, SimpleNamespace(eos_token_id=[s, 7])) == own | {s, 7}
    tokenizer.chat_template = CHATML
    assert end_tokens(tokenizer) == own | {im_end}
    tokenizer.chat_template = TAIL
    assert end_tokens(tokenizer) == own | {s}
    # Not special, or not shown: no end.
    tokenizer.chat_template = CHATML.replace("<|im_end|>", "</tool_call>")
    assert end_tokens(tokenizer) == own
    tokenizer.chat_template = CHATML.replace("m['content']", "''")
    assert end_tokens(tokenizer) == own


def test_an_episode_is_truncated_by_any_limit() -> None:
    ends = {9}
    assert not is_truncated([1, 2, 9], [1, 1, 1], ends, unanswered=False)
    # An environment's last words after the turn do not cut it.
    assert not is_truncated([1, 9, 3], [1, 1, 0], ends, unanswered=False)
    assert is_truncated([1, 2, 3], [1, 1, 1], ends, unanswered=False)
    assert is_truncated([1, 2, 9], [1, 1, 1], ends, unanswered=True)
    assert is_truncated([4, 9], [0, 0], ends, unanswered=False)
