"""``SearchQA``: the environment. Actions are ``search[query]`` and ``answer[text]``."""

import json
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import numpy as np

from ascribe.steps.errors import InputError
from ascribe_lab.envs.bm25 import LONGEST_QUERY
from ascribe_lab.envs.protocol import Outcome, Start, TextEnvironment
from ascribe_lab.envs.search_qa.data import (
    Library,
    RemoteLibrary,
    exact_match,
    load_documents,
    load_questions,
    render,
)
from ascribe_lab.envs.search_qa.demo import demo
from ascribe_lab.envs.texts import bracketed, clean

NEITHER = "That was neither a search nor an answer."
NOTHING = "<information>Nothing was found.</information>"


@dataclass
class Inquiry:
    """An episode: everything that changes while a question is worked on."""

    question: int
    searches: int = 0
    read: list[str] = field(default_factory=list)
    """Hashes of the passages that were found, each once."""
    answered: bool = False


class SearchQA(TextEnvironment[Inquiry]):
    """Answer a question; searching first is allowed, and needed.

    Args:
        file: JSON lines with ``question`` and ``golden_answers``; None for the demo's questions.
        retriever: address of a search engine with Search-R1's interface.
        corpus: JSON lines with ``id`` and ``contents``, to search in this process instead. Without
            retriever and corpus, the demo's documents are searched.
        topk: number of passages that a search shows.
        timeout: time limit for a request to the retriever, in seconds.
        horizon: number of actions after which an episode is truncated.
        expert: whether info has ``expert_action``.

    The reward is 1 for an answer that equals a golden one after normalisation, else 0.

    Raises:
        ValueError: if options exclude each other, or a file is malformed.
        MissingExtraError: without the extra ``search_qa``, unless a retriever is named.
    """

    file_options = frozenset({"topk", "horizon", "expert"})

    def __init__(
        self,
        *,
        file: str | Path | None = None,
        retriever: str | None = None,
        corpus: str | Path | None = None,
        topk: int = 3,
        timeout: float = 30.0,
        horizon: int = 4,
        expert: bool = False,
    ) -> None:
        super().__init__(horizon=horizon, expert=expert)
        if topk < 1:
            raise InputError(f"topk must be at least 1, not {topk}")
        if retriever is not None and corpus is not None:
            raise InputError("name a retriever or a corpus, not both")
        if file is not None and retriever is None and corpus is None:
            raise InputError("questions from a file need a retriever or a corpus to search")
        self.questions = demo().questions if file is None else load_questions(file)
        self.retrieve: Library | RemoteLibrary = (
            RemoteLibrary(retriever, timeout=timeout)
            if retriever is not None
            else _library(None if corpus is None else str(corpus))
        )
        self.topk = topk
        self.tasks = len(self.questions)
        asked = [f"search[{question.text}]" for question in self.questions[:4]]
        self.example_actions = [*asked, "answer[yes]", "answer[no]"]

    def begin(self, task: int, generator: np.random.Generator) -> Start[Inquiry]:  # noqa: ARG002
        question = self.questions[task]
        return Start(Inquiry(task), question.text, question.text, question.family)

    def act(self, episode: Inquiry, action: str) -> Outcome:
        kind, argument = bracketed(action)
        argument = clean(argument)
        if kind == "search":
            return Outcome(self._search(episode, argument))
        if kind == "answer":
            episode.answered = True
            won = exact_match(argument, self.questions[episode.question].answers)
            return Outcome("", float(won), terminated=True, won=won)
        return Outcome(NEITHER, valid=False)

    def _search(self, inquiry: Inquiry, query: str) -> str:
        passages = self.retrieve(query[:LONGEST_QUERY], self.topk)
        inquiry.searches += 1
        hashes = (blake2b(text.encode(), digest_size=8).hexdigest() for text in passages)
        inquiry.read = list(dict.fromkeys([*inquiry.read, *hashes]))
        return render(passages) if passages else NOTHING

    def state_key(self, episode: Inquiry, observation: str) -> str:  # noqa: ARG002
        """The question and the passages read so far, in whatever order and by whatever query."""
        return json.dumps([episode.question, sorted(episode.read), episode.answered])

    def expert_action(self, episode: Inquiry) -> str:
        """The searches that lead to the answer, then the answer."""
        question = self.questions[episode.question]
        searches = (question.searches or (question.text,))[: self.horizon - 1]
        if episode.searches < len(searches):
            return f"search[{searches[episode.searches]}]"
        return f"answer[{question.answers[0]}]"

    def right_action(self, episode: Inquiry) -> str:
        """The answer, whether or not anything was searched for."""
        return f"answer[{self.questions[episode.question].answers[0]}]"


@lru_cache(maxsize=4)
def _library(corpus: str | None) -> Library:
    """The documents of a file, or the demo's; one library for all environments of a process."""
    return Library(demo().documents if corpus is None else load_documents(corpus))
