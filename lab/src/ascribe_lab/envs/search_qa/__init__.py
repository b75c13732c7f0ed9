"""Search-QA: answer a question with the help of a search engine."""

from ascribe_lab.envs.search_qa.game import SearchQA

__all__ = ["SearchQA"]
