"""PivotRL: from expert traces to the turns that are worth training on.

::

    extracted = extract(["traces.jsonl"])
    write_turns("candidates.jsonl", extracted.candidates)
    task = ProfileTask("candidates.jsonl", "responses.jsonl", "http://localhost:8000")
    profile_in_worker(task)
    responses = read_responses("responses.jsonl")
    scored = score(extracted.candidates, responses, make_verifier("tool_call"))
    pivots = select(scored, threshold=0.6)
"""

from ascribe_lab.pivots.candidates import Candidate, Origin, candidate, read_turns, write_turns
from ascribe_lab.pivots.profile import (
    ProfileTask,
    Reference,
    profile,
    profile_in_worker,
    read_responses,
)
from ascribe_lab.pivots.scores import step_scores
from ascribe_lab.pivots.select import LAMBDA_DIFF, report, score, select, write_pivots
from ascribe_lab.pivots.traces import extract
from ascribe_lab.pivots.verifiers import VERIFIERS, make_verifier

__all__ = [
    "LAMBDA_DIFF",
    "VERIFIERS",
    "Candidate",
    "Origin",
    "ProfileTask",
    "Reference",
    "candidate",
    "extract",
    "make_verifier",
    "profile",
    "profile_in_worker",
    "read_responses",
    "read_turns",
    "report",
    "score",
    "select",
    "step_scores",
    "write_pivots",
    "write_turns",
]
