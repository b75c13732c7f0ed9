"""PivotRL: from expert traces to the turns that are worth training on.

::

    found = extract(["traces.jsonl"])
    write_turns("candidates.jsonl", found.candidates)
    keep_profile(Order("candidates.jsonl", "answers.jsonl", "http://localhost:8000"))
    scored = score(found.candidates, read_answers("answers.jsonl"), make_verifier("tool_call"))
    pivots = select(scored, threshold=0.6)
"""

from ascribe.pivots.candidates import (
    Candidate,
    NotTurns,
    Origin,
    Scene,
    Turns,
    candidate,
    read_turns,
    write_turns,
)
from ascribe.pivots.estimate import Estimate
from ascribe.pivots.faults import TraceError, TraceFault, TraceProblem
from ascribe.pivots.journal import BrokenJournal, Journal
from ascribe.pivots.keeper import Order, ProfilingFailed, keep_profile, run_profile
from ascribe.pivots.profile import (
    Answer,
    Profiled,
    Reference,
    profile,
    read_answers,
    references,
    seed_of,
)
from ascribe.pivots.report import Report, report
from ascribe.pivots.select import (
    LAMBDA_DIFF,
    NoSignal,
    Scored,
    Selection,
    profiles,
    random_set,
    score,
    select,
)
from ascribe.pivots.text_server import TextServer
from ascribe.pivots.traces import Extracted, Play, extract
from ascribe.pivots.verifiers import VERIFIERS, Verdict, Verifier, Why, make_verifier

__all__ = [
    "LAMBDA_DIFF",
    "VERIFIERS",
    "Answer",
    "BrokenJournal",
    "Candidate",
    "Estimate",
    "Extracted",
    "Journal",
    "NoSignal",
    "NotTurns",
    "Order",
    "Origin",
    "Play",
    "Profiled",
    "ProfilingFailed",
    "Reference",
    "Report",
    "Scene",
    "Scored",
    "Selection",
    "TextServer",
    "TraceError",
    "TraceFault",
    "TraceProblem",
    "Turns",
    "Verdict",
    "Verifier",
    "Why",
    "candidate",
    "extract",
    "keep_profile",
    "make_verifier",
    "profile",
    "profiles",
    "random_set",
    "read_answers",
    "read_turns",
    "references",
    "report",
    "run_profile",
    "score",
    "seed_of",
    "select",
    "write_turns",
]
