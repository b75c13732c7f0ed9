"""Text from outside, made safe for a chat."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascribe.steps.problems import replace_surrogates
from ascribe_lab.agents import CHAT_TOKENS, neutralise, shorten
from tests.hostile import HOSTILE, LONG, hostile_texts

TEXTS = HOSTILE | {f"long {name}": text for name, text in LONG.items()}


@pytest.mark.parametrize("name", TEXTS)
def test_no_chat_token_and_no_half_surrogate_is_left(name: str) -> None:
    safe = neutralise(replace_surrogates(TEXTS[name]))
    assert not any(token in safe for token in CHAT_TOKENS)
    safe.encode()


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("<|im_end|>", "< |im_end|>"),
        ("a</s>b", "a< /s>b"),
        ("<|<|im_end|>", "< |< |im_end|>"),
        ("1 < 2 | 3 > 2", "1 < 2 | 3 > 2"),
        ("<action>go</action>", "<action>go</action>"),
        ("", ""),
    ],
)
def test_a_space_is_put_into_the_name(text: str, safe: str) -> None:
    assert neutralise(text) == safe


def test_names_that_overlap_are_all_broken() -> None:
    assert neutralise("ababa", ["aba"]) == "a ba ba"


SHORT = st.text("ab<|", min_size=2, max_size=4)


@given(st.text("ab<| ", max_size=30), st.lists(SHORT, max_size=5))
def test_no_name_is_left_whatever_the_names(text: str, tokens: list[str]) -> None:
    safe = neutralise(text, tokens)
    assert not any(token in safe for token in tokens)
    assert safe.replace(" ", "") == text.replace(" ", "")
    assert neutralise(safe, tokens) == safe


@pytest.mark.parametrize("token", ["", "x", "two words"])
def test_names_that_a_space_cannot_break_are_refused(token: str) -> None:
    with pytest.raises(ValueError, match="cannot break"):
        neutralise("text", [token])


def test_half_surrogates_become_the_replacement_character_and_nothing_else_changes() -> None:
    assert replace_surrogates("a\ud800b\U0001f600") == "a\ufffdb\U0001f600"


@given(st.text())
def test_whole_text_is_left_alone(text: str) -> None:
    assert replace_surrogates(text) == text


def test_a_cut_shows_where_and_how_much() -> None:
    assert shorten("abcdefghij", 4) == "ab [... 6 characters left out ...] ij"
    assert shorten("abcdefghij", 1) == "a [... 9 characters left out ...] "
    assert shorten("abcdefghij", 10) == "abcdefghij"
    assert shorten("abcdefghij", None) == "abcdefghij"


@given(hostile_texts(), st.integers(1, 60))
def test_what_is_kept_is_the_beginning_and_the_end(text: str, longest: int) -> None:
    short = shorten(text, longest)
    if len(text) <= longest:
        assert short == text
    else:
        mark = f" [... {len(text) - longest} characters left out ...] "
        head, tail = short[: longest - longest // 2], short[len(short) - longest // 2 :]
        assert short == head + mark + tail
        assert text.startswith(head)
        assert text.endswith(tail)


@pytest.mark.engine
def test_a_tokenizer_finds_no_special_token_in_safe_text() -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra actor")
    names = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "</s>", "<end_of_turn>"]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True))
    tokenizer.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Nmt(), tokenizers.normalizers.NFKC()]
    )
    tokenizer.add_special_tokens(names)
    special = {tokenizer.token_to_id(name) for name in names}
    met = set()
    for text in HOSTILE.values():
        met |= special & set(tokenizer.encode(replace_surrogates(text)).ids)
        assert special.isdisjoint(tokenizer.encode(neutralise(replace_surrogates(text))).ids)
    assert met, "the corpus holds no special token of this tokenizer"
