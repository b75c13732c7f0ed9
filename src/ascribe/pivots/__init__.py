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

from ascribe.pivots.candidates import (
    KINDS,
    Candidate,
    Origin,
    ReplayPoint,
    TurnFile,
    TurnFileError,
    candidate,
    read_turns,
    write_turns,
)
from ascribe.pivots.journal import Journal, JournalError
from ascribe.pivots.profile import (
    CostEstimate,
    Profiled,
    ProfileResponse,
    Reference,
    profile,
    read_responses,
    references,
    seed_of,
)
from ascribe.pivots.select import (
    LAMBDA_DIFF,
    NoSignal,
    PivotReport,
    Scored,
    Selection,
    profiles,
    random_set,
    report,
    score,
    select,
)
from ascribe.pivots.text_server import TextServer
from ascribe.pivots.traces import (
    Extracted,
    RolloutOptions,
    TraceError,
    TraceFault,
    TraceProblem,
    extract,
)
from ascribe.pivots.verifiers import VERIFIERS, Verdict, VerdictReason, Verifier, make_verifier
from ascribe.pivots.worker import ProfileTask, ProfilingError, profile_in_worker, run_profile

__all__ = [
    "KINDS",
    "LAMBDA_DIFF",
    "VERIFIERS",
    "Candidate",
    "CostEstimate",
    "Extracted",
    "Journal",
    "JournalError",
    "NoSignal",
    "Origin",
    "PivotReport",
    "ProfileResponse",
    "ProfileTask",
    "Profiled",
    "ProfilingError",
    "Reference",
    "ReplayPoint",
    "RolloutOptions",
    "Scored",
    "Selection",
    "TextServer",
    "TraceError",
    "TraceFault",
    "TraceProblem",
    "TurnFile",
    "TurnFileError",
    "Verdict",
    "VerdictReason",
    "Verifier",
    "candidate",
    "extract",
    "make_verifier",
    "profile",
    "profile_in_worker",
    "profiles",
    "random_set",
    "read_responses",
    "read_turns",
    "references",
    "report",
    "run_profile",
    "score",
    "seed_of",
    "select",
    "write_turns",
]
