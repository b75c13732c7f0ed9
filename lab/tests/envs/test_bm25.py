"""The search engine: scores by the formula, in an order that never changes."""

import sys
from concurrent.futures import ThreadPoolExecutor
from math import log
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("snowballstemmer", reason="needs the extra search_qa")

from ascribe_lab.envs import MissingExtraError
from ascribe_lab.envs.bm25 import BM25, LONGEST_QUERY, stem, words

VOCABULARY = ["red", "shirts", "cotton", "the", "running", "shoes", "of", "wool", "hat"]
TEXTS = st.lists(st.sampled_from(VOCABULARY), max_size=12).map(" ".join)


def by_loops(texts: list[str], query: str, k1: float, b: float) -> list[float]:
    """The formula of the module, term by term."""
    documents = [[stem(word) for word in words(text)] for text in texts]
    mean_length = max(sum(map(len, documents)) / len(documents), 1.0)
    scores = []
    for document in documents:
        score = 0.0
        for term in (stem(word) for word in words(query)):
            holders = sum(term in other for other in documents)
            idf = log(1 + (len(documents) - holders + 0.5) / (holders + 0.5))
            frequency = document.count(term)
            damping = k1 * (1 - b + b * len(document) / mean_length)
            score += idf * frequency / (frequency + damping)
        scores.append(score)
    return scores


@given(
    st.lists(TEXTS, min_size=1, max_size=8),
    TEXTS,
    st.sampled_from([(0.9, 0.4), (1.2, 0.75), (0.5, 0.0)]),
)
def test_scores_are_those_of_the_formula(texts, query, parameters):
    k1, b = parameters
    expected = by_loops(texts, query, k1, b)
    found = BM25(texts, k1=k1, b=b).search(query, len(texts))
    assert sorted(number for number, _ in found) == [n for n, s in enumerate(expected) if s > 0]
    for number, score in found:
        assert score == pytest.approx(expected[number], rel=1e-12)


@given(st.lists(TEXTS, min_size=1, max_size=30), TEXTS, st.integers(0, 35))
def test_a_limit_cuts_the_same_order(texts, query, limit):
    index = BM25(texts)
    everything = index.search(query, len(texts))
    assert everything == sorted(everything, key=lambda hit: (-hit[1], hit[0]))
    assert index.search(query, limit) == everything[:limit]


@settings(max_examples=100)
@given(st.lists(TEXTS, min_size=1, max_size=10), st.permutations(VOCABULARY))
def test_the_order_of_the_query_does_not_matter(texts, shuffled):
    index = BM25(texts)
    assert index.search(" ".join(shuffled), 10) == index.search(" ".join(VOCABULARY), 10)


def test_of_equal_documents_the_earlier_comes_first():
    index = BM25(["red hat"] * 20)
    assert [number for number, _ in index.search("hat", 5)] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Women's shoe, 3.1 inch", ["women", "shoe", "3.1", "inch"]),
        ("don't-stop d.o.n. 4K", ["don't", "stop", "d.o.n", "4k"]),
        ("of the and", []),
        ("<script>alert(1)</script>", ["script", "alert", "1", "script"]),
        ("Größe 46 靴", ["größe", "46", "靴"]),
        ("snake_case", ["snake", "case"]),
        ("", []),
    ],
)
def test_words(text, expected):
    assert words(text) == expected


@pytest.mark.parametrize(
    ("word", "expected"),
    [("relational", "relat"), ("shirts", "shirt"), ("running", "run"), ("generously", "gener")],
)
def test_stems_are_porters(word, expected):
    assert stem(word) == expected


def test_stems_bring_forms_together():
    assert BM25(["a pair of running shoes", "wool hat"]).search("run shoe", 2)[0][0] == 0


@pytest.mark.parametrize("texts", [[], [""], ["the of"]])
def test_nothing_to_find(texts):
    index = BM25(texts)
    assert len(index) == len(texts)
    assert index.search("red", 3) == []
    assert index.search("", 3) == []


@pytest.mark.parametrize(
    "query",
    ["x" * 1_000_000, "[" * 1_000_000, "a." * 500_000, "\ud800\x00\x1b[2J", "red " * 250_000],
)
def test_strange_queries_are_answered_soon(query):
    index = BM25(["red shirt", "x"])
    start = process_time()
    index.search(query, 10)
    assert process_time() - start < 5


def test_only_the_start_of_a_long_query_counts():
    assert BM25(["red shirt"]).search(" " * LONGEST_QUERY + "red", 1) == []


def test_threads_can_share_an_index():
    texts = [f"word{number}ing things{number % 7}" for number in range(300)]
    index = BM25(texts)
    queries = [f"word{number}ing things{number % 5}" for number in range(300)]
    expected = [index.search(query, 5) for query in queries]
    stem.cache_clear()
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda query: index.search(query, 5), queries)) == expected


def test_without_the_stemmer_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "snowballstemmer", None)
    stem.cache_clear()
    with pytest.raises(MissingExtraError, match=r"\[search_qa\]"):
        BM25(["red"])
