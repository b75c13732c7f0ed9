"""Texts of tokens are those of the tokenizer, whichever way they are made."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ascribe.sessions.decoding import decoder

TEXTS = ["You are in room 2 , and open the door.", "Größe: 3 µm — 日本 \U0001f600"]


def same_texts(tokenizer: Any, size: int) -> bool:
    """Random ids, most of which are no characters, and some of which no token has."""
    random, decode = np.random.default_rng(0), decoder(tokenizer)
    ids = [random.integers(0, size + 2, length).tolist() for length in (*range(12), *[80] * 100)]
    return all(decode(each) == tokenizer.decode(each) for each in ids)


def test_pieces_of_bytes_are_joined() -> None:
    pytest.importorskip("transformers")
    from tests.tiny_model import train_tokenizer

    tokenizer = train_tokenizer(TEXTS, 320)
    tokenizer.add_tokens(["</tool call>", "日本"])
    assert decoder(tokenizer) != tokenizer.decode
    assert same_texts(tokenizer, len(tokenizer))
    for text in TEXTS:
        assert decoder(tokenizer)(tokenizer(text)["input_ids"]) == text


def test_other_tokens_are_left_to_the_tokenizer() -> None:
    pytest.importorskip("transformers")
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    pieces = Tokenizer(models.Unigram())
    pieces.pre_tokenizer, pieces.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    pieces.train_from_iterator(TEXTS, trainers.UnigramTrainer(vocab_size=60, unk_token="?"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=pieces)
    assert decoder(tokenizer) == tokenizer.decode
    assert same_texts(tokenizer, 60)
    alone = SimpleNamespace(decode="".join)
    assert decoder(alone) is alone.decode
