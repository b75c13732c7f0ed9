"""Fingerprints by a frozen sentence encoder."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ascribe.fingerprints.sentence import PACKAGE, _encoder, sentence

pytestmark = pytest.mark.slow

TEXTS = [
    "You open the door.",
    "The door is now open.",
    "",
    "A recipe for soup.",
    "A recipe for soup.",
]


@pytest.fixture(scope="module", autouse=True)
def _installed() -> None:
    for package in ("torch", "transformers", PACKAGE):
        pytest.importorskip(package, reason="needs the extra sentence")


def test_texts_that_mean_alike_lie_close_together() -> None:
    found = sentence(TEXTS)
    assert found.shape == (5, 384)
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), [1, 1, 0, 1, 1], atol=1e-6)
    assert found[0] @ found[1] > 0.6 > found[0] @ found[3]
    assert np.array_equal(found[3], found[4])


def test_batches_and_order_make_no_difference() -> None:
    found = sentence(TEXTS)
    np.testing.assert_allclose(found, sentence(TEXTS, batch_size=1), atol=1e-6)
    np.testing.assert_allclose(found[::-1], sentence(TEXTS[::-1]), atol=1e-6)
    assert sentence([]).shape == (0, 384)


def test_what_comes_after_256_word_pieces_is_not_read() -> None:
    # 254 words, and a piece for the beginning and the end.
    long = " ".join(["door"] * 254)
    whole, cut = sentence([f"{long} key", long])
    np.testing.assert_allclose(whole, cut, atol=1e-6)
    whole, cut = sentence([f"{long[5:]} key", long[5:]])
    assert np.abs(whole - cut).max() > 1e-4


def test_it_is_what_the_package_itself_computes() -> None:
    pytest.importorskip("sentence_transformers")
    package = pytest.importorskip(PACKAGE)
    own = package.load_model(device="cpu").encode([text for text in TEXTS if text])
    np.testing.assert_allclose(sentence([text for text in TEXTS if text]), own, atol=1e-5)


def test_a_missing_package_names_the_extra(monkeypatch: Any) -> None:
    _encoder.cache_clear()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ImportError, match=r"\[sentence\]"):
        sentence(TEXTS)


def test_other_weights_are_refused(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.setattr("ascribe.fingerprints.sentence.package_folder", lambda *_: tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_bytes(b"other weights")
    with pytest.raises(ValueError, match="is not the file"):
        _encoder.__wrapped__()
