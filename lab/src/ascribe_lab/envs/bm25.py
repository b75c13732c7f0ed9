"""Full-text search: BM25 over an inverted index of numpy arrays, with Porter stems and stop words.

The score of a document for a query is

    sum over terms t of  n_t · idf_t · f_t / (f_t + k1 (1 - b + b · length / mean length))
    idf_t = ln(1 + (N - N_t + 1/2) / (N_t + 1/2))

where t occurs n_t times in the query, f_t times in the document and in N_t of N documents. This is
Lucene's form, with the parameters that Pyserini (and so WebShop) uses.
"""

import re
from array import array
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

import numpy as np

from ascribe_lab.envs.protocol import MissingExtraError

_STOP = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then "
    "there these they this to was will with"
)
STOP_WORDS = frozenset(_STOP.split())
"""The English stop words of Lucene."""

LONGEST_QUERY = 10_000
"""Characters of a query that are read; the rest is ignored, so that no query can stall a search."""

LONGEST_WORD = 255
WORD = re.compile(r"[^\W_]+(?:['’.][^\W_]+)*")


def words(text: str) -> list[str]:
    """The words of a text in lower case, without stop words and without a possessive ``'s``."""
    tokens = (token[:LONGEST_WORD] for token in WORD.findall(text.lower()))
    plain = (token.removesuffix("'s").removesuffix("’s") for token in tokens)
    return [word for word in plain if word not in STOP_WORDS]


@lru_cache(maxsize=1 << 16)
def stem(word: str) -> str:
    """The Porter stem of a word in lower case."""
    try:
        import snowballstemmer
    except ImportError as error:
        raise MissingExtraError("snowballstemmer", "search_qa") from error
    # A stemmer holds the word it works on, so threads cannot share one: each word gets its own.
    stemmed: str = snowballstemmer.stemmer("porter").stemWord(word)
    return stemmed


class BM25:
    """A searchable list of texts.

    Args:
        texts: the documents; they are known by their place in the list.
        k1: how soon further occurrences of a term stop counting.
        b: how much long documents are penalised, from 0 to 1.
    """

    def __init__(self, texts: Iterable[str], *, k1: float = 0.9, b: float = 0.4) -> None:
        self._vocabulary: dict[str, int] = {}
        term_of_occurrence, lengths = array("q"), array("q")
        for text in texts:
            terms = [stem(word) for word in words(text)]
            term_of_occurrence.extend(
                self._vocabulary.setdefault(term, len(self._vocabulary)) for term in terms
            )
            lengths.append(len(terms))
        self._size = len(lengths)
        length = np.array(lengths, dtype=np.int64)
        document_of_occurrence = np.repeat(np.arange(self._size), length)
        # One posting for each pair of term and document, ordered by term, then by document.
        pairs, frequency = np.unique(
            np.array(term_of_occurrence, dtype=np.int64) * max(self._size, 1)
            + document_of_occurrence,
            return_counts=True,
        )
        term, self._documents = np.divmod(pairs, max(self._size, 1))
        holders = np.bincount(term, minlength=len(self._vocabulary))
        self._starts = np.concatenate(([0], np.cumsum(holders)))
        idf = np.log1p((self._size - holders + 0.5) / (holders + 0.5))
        mean_length = max(float(length.mean()), 1.0) if self._size else 1.0
        damping = k1 * (1 - b + b * length[self._documents] / mean_length)
        self._weights = idf[term] * frequency / (frequency + damping)

    def __len__(self) -> int:
        return self._size

    def search(self, query: str, limit: int) -> list[tuple[int, float]]:
        """The best documents with their scores, best first; of equal ones the earlier first.

        Documents that share no term with the query are never returned.
        """
        scores = np.zeros(self._size)
        # In one order, so that queries of the same words give the same scores to the last bit.
        stems = (stem(word) for word in words(query[:LONGEST_QUERY]))
        terms = Counter(self._vocabulary[one] for one in stems if one in self._vocabulary)
        for term, count in sorted(terms.items()):
            postings = slice(self._starts[term], self._starts[term + 1])
            scores[self._documents[postings]] += count * self._weights[postings]
        if 0 < limit < self._size:
            floor = np.partition(scores, -limit)[-limit]
            candidates = np.flatnonzero((scores > 0) & (scores >= floor))
        else:
            candidates = np.flatnonzero(scores > 0)
        best = candidates[np.argsort(-scores[candidates], kind="stable")]
        return [(int(number), float(scores[number])) for number in islice(best, max(limit, 0))]
