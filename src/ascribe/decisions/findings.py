r"""Findings: events that separate won from lost attempts at the same task, one after the other.

An event is something that a session did: a tool called, refused, repeated, right after another one,
with this value, or as no other attempt did (``ascribe.groups.events``). With the outcomes e and the
events ζ without the effects of task and version (``ascribe.decisions.residuals``), for event j

    T_j = Σ ζ_j e / s_j,  difference = Σ ζ_j e / Σ ζ_j².

The event with the largest |T| of all is tested: e is permuted inside the strata, and p is the share
of permutations in which any event has a |T| as large (max-T; Westfall and Young 1993). s_j is the
standard deviation in the permutations; in the data, also at least that which is right where
sessions vary unlike each other (HC2). If p is small, the null model gets the effect of the event,
too, and the next one is sought among what is left. The first event that is not found ends this, so
that all findings together are as often false as one test.

Where sessions call X or else Y, both events part them alike, and outcomes cannot tell which one
matters. A finding then names the call that goes along with losing. It is chosen after the test, and
no other test is made: max-T adjusts the p of every event, so that all of those at the level
together are as often false as one test. The call has its own p, and is told only if it is as
certain, or in doubt, as the strongest. The null model gets the effects of both, so that neither is
told again.

Every sum runs over the events that sessions have, never over those that they have not.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ascribe.decisions.attempts import Attempts
from ascribe.decisions.contrasts import LEVEL, Contrast
from ascribe.decisions.decision import CALLING, EVENT, OTHERS, Decision, compare, mostly
from ascribe.decisions.residuals import NullModel, fit, permutations, telling
from ascribe.decisions.sides import LEAST_UNUSUAL, Sides
from ascribe.groups.events import FAILED, Calls, Usual, events
from ascribe.steps import segments
from ascribe.steps.arrays import Bools, Floats, Ints, Objects

DRAWN, MOST = 999, 20
"""Permutations of a test, and findings of a file."""
LEAST_LEFT = 2.0
"""Sum of squares of an event without the effects of task and version, below which these tell it."""
BEFORE, TELLING, KEPT = 10, 2.0, 0.5
"""A finding is predictable if less than the share ``KEPT`` of its difference is left beside the
events before it that tell the most: so many, with a |T| so large."""
NEARLY, ALIKE = 0.95, 0.85
"""Events part sessions alike if their columns correlate so much, whatever the sign, and the |T| of
one is so large a share of that of the strongest."""
ERRORS = 0.5
"""Share of the sessions that had an error before, of an event after an error."""
SIGNS = "a consequence of an error", "a consequence of what came before"


@dataclass(frozen=True, eq=False)
class Columns:
    """Events of sessions as columns of zeros and ones: the ones, event by event.

    Attributes:
        event: of each one, from 0, in rising order; every event has one.
        session: of each one.
        place: of each one, where the session first had the event.
        names: of the events.
    """

    event: Ints
    session: Ints
    place: Ints
    names: Objects

    @cached_property
    def starts(self) -> Ints:
        """The first one of each event."""
        return segments.first_rows(self.event, self.names.size)

    def keep(self, ones: Bools) -> "Columns":
        """The same without some ones, and without events that have none left."""
        left, event = np.unique(self.event[ones], return_inverse=True)
        return Columns(event, self.session[ones], self.place[ones], self.names[left])

    def column(self, event: int, sessions: int) -> Floats:
        """The column of an event."""
        return np.bincount(self.session[self.event == event], minlength=sessions).astype(np.float64)

    def sums(self, values: Floats) -> Floats:
        """The values of the sessions that have each event, added up."""
        sums: Floats = np.add.reduceat(values.take(self.session, 0, mode="clip"), self.starts)
        return sums

    def squares(self, model: NullModel, weight: Floats) -> Floats:
        """The sum of weight ζ² of each event."""
        stratum, strata = model.stratum[self.session], model.size.size
        cells, cell = np.unique(self.event * strata + stratum, return_inverse=True)
        event, stratum = np.divmod(cells, strata)
        mean = np.bincount(cell) / model.size[stratum]
        of_versions = self.sums(model.basis)
        fitted = mean[cell] + (model.basis[self.session] * of_versions[self.event]).sum(axis=1)
        ones = weight[self.session] * (1 - 2 * fitted)
        weighted = model.basis * weight[:, None]
        both = mean * model.means(weight)[stratum]
        both += 2 * (model.means(weighted)[stratum] * of_versions[event]).sum(axis=1)
        squares = np.bincount(self.event, ones)
        squares += np.bincount(event, both * mean * model.size[stratum])
        squares += ((of_versions @ (model.basis.T @ weighted)) * of_versions).sum(axis=1)
        return np.maximum(squares, 0.0)


def findings(attempts: Attempts, rng: np.random.Generator) -> list[Decision]:
    """What is found, and the first event that is not, each with a p value."""
    steps, version = attempts.steps, attempts.version
    version = np.zeros_like(attempts.stratum) if version is None else version
    inside = np.unique(steps.trajectory[~attempts.silent])
    inside = inside[telling(attempts.stratum[inside], version[inside])]
    found: list[Decision] = []
    if not inside.size:
        return found
    version, outcome = version[inside], attempts.outcome[inside]
    stratum = np.unique(attempts.stratum[inside], return_inverse=True)[1].ravel()
    model = null = fit(stratum, version)
    mixed = ~segments.constant(version.astype(np.float64), stratum, null.size.size)[stratum]
    versions = max(1, np.unique(version[mixed]).size)
    calls = attempts.calls
    usual = Usual.without_outcomes(calls, steps.group_of_trajectory)
    columns = _columns(attempts, calls, inside, version)
    refused = {f"{CALLING}`{tool}`" for tool in calls.tools[np.unique(calls.tool[calls.refused])]}

    def told(event: int, contrast: Contrast) -> Decision:
        """What is said of an event."""
        own, name = columns.column(event, inside.size), str(columns.names[event])
        places, ended = _moments(attempts, inside, columns, event)
        decision = compare(
            *(attempts, EVENT, places[inside]),
            Sides(np.ones_like(own, dtype=np.bool_), own > 0, stratum, null, versions),
            names=(name, _instead(columns, own, name)),
            rng=rng,
            found=replace(contrast, p=max(contrast.p, *(each.p for each in found), 0.0)),
        )
        earlier = columns.keep(columns.place < places[inside][columns.session])
        before = np.column_stack([_usual(calls, usual.share, places), ended])[inside]
        sign = "an ending" if decision.ending else _sign(earlier, model, outcome, own, before)
        beside = tuple(each.event.action for each in found)
        return replace(decision, sign=sign, beside=beside, refusals=name in refused)

    while columns.names.size and np.isfinite(null.stretch).all() and len(found) < MOST:
        best = _strongest(columns, model, outcome, rng)
        if not best:
            break
        event, decision = best[0][0], told(*best[0])
        for other in best[1:]:
            if bool((instead := told(*other)).doubt) == bool(decision.doubt):
                event, decision = other[0], instead
        found.append(decision)
        if decision.p > LEVEL:
            break
        for each in dict.fromkeys((best[0][0], event)):
            own = columns.column(each, inside.size)
            if (model.residuals(own) ** 2).sum() >= LEAST_LEFT:
                model = model.beside(own)
    return found


def _instead(columns: Columns, own: Floats, name: str) -> str:
    """The sessions without an event, and what all of them, or most, call in its place."""
    both, rest, others = columns.sums(own), columns.sums(1 - own), (1 - own).sum()
    mirrors = np.flatnonzero((rest >= ALIKE * others) & (both <= (1 - ALIKE) * own.sum())).tolist()
    mirrors = [each for each in mirrors if columns.names[each].startswith(CALLING)]
    if not mirrors or not name.startswith(CALLING):
        return OTHERS
    most = max(mirrors, key=rest.__getitem__)
    instead = f"with {columns.names[most].removeprefix(CALLING)} in its place"
    return f"those {instead}" if rest[most] == others else f"{OTHERS} (mostly {instead})"


def _columns(attempts: Attempts, calls: Calls, inside: Ints, version: Ints) -> Columns:
    """The events that enough of these sessions have, and enough have not, of their version."""
    named, steps = events(attempts.table, calls, wide=True, least=LEAST_UNUSUAL), attempts.steps
    rewritten = np.flatnonzero(attempts.rewritten)
    session, first = np.unique(steps.trajectory[rewritten], return_index=True)
    names = np.append(named.names, np.array(["a summary of the context"], dtype=object))
    event = np.append(named.event, np.full(session.size, named.names.size))
    # The shortest first: of events that the same sessions have, this is found.
    ranked = sorted(range(names.size), key=lambda number: (len(names[number]), names[number]))
    event, session = np.argsort(ranked)[event], np.append(named.session, session)
    place, order = np.append(named.place, rewritten[first]), np.lexsort((session, event))
    order = order[np.isin(session[order], inside)]
    session = np.searchsorted(inside, session[order])
    columns = Columns(event[order], session, place[order], names[ranked])
    label, versions = columns.event * (version.max() + 1) + version[session], version.max() + 1
    with_ = np.bincount(label, minlength=names.size * versions).reshape(-1, versions)
    unusual = np.minimum(with_, np.bincount(version) - with_).sum(axis=1) >= LEAST_UNUSUAL
    return columns.keep(unusual[columns.event])


def _strongest(
    columns: Columns, model: NullModel, outcome: Floats, rng: np.random.Generator
) -> list[tuple[int, Contrast]]:
    """The event that goes along with outcomes the most, compared with all in permutations.

    A second one is a call that goes along with losing and parts the sessions alike, if there is
    one. Without any event that can be tested there is none.
    """
    left = model.residuals(outcome)
    own = columns.squares(model, np.ones(outcome.size))
    robust = columns.squares(model, left**2 / np.maximum(1 - model.leverage, 1e-9))
    drawn = np.array(
        [
            columns.sums(row)
            for order in permutations(model.stratum, DRAWN, rng)
            for row in model.residuals((left * model.stretch)[order].T).T.copy()
        ]
    )
    spread = np.sqrt((drawn**2).mean(axis=0))
    able = (own >= LEAST_LEFT) & (spread > 1e-9 * max(1.0, float(np.abs(outcome).max())))
    if not able.any():
        return []
    top = np.sort((np.abs(drawn[:, able]) / spread[able]).max(axis=1))
    spread = np.maximum(np.sqrt(robust), spread)
    sums = columns.sums(left)
    score = np.where(able, np.abs(sums) / np.where(able, spread, 1.0), -1.0)
    ties = np.flatnonzero(score >= score.max() - 1e-9).tolist()
    # Better to do this than not to do that, but a refused call is no tool that was not called.
    best = min(ties, key=lambda event: ("refused" not in columns.names[event], sums[event] < 0))
    p = (1 + top.size - np.searchsorted(top, score - 1e-9)) / (1 + DRAWN)
    mirrored = np.abs(columns.sums(model.residuals(columns.column(best, outcome.size))))
    alike = able & (score >= NEARLY * score[best]) & (mirrored >= ALIKE * np.sqrt(own[best] * own))
    alike &= (sums < 0) & ((p <= max(p[best], LEVEL / 2)) | (p[best] > LEVEL))  # see _settled
    losing = [e for e in np.flatnonzero(alike).tolist() if columns.names[e].startswith(CALLING)]
    chosen = [best]
    if losing and best not in losing and "refused" not in columns.names[best]:
        chosen.append(min(losing, key=lambda event: (-round(float(score[event]), 9), event)))
    reach = float(top[math.ceil((1 - LEVEL) * (1 + DRAWN)) - 1])
    contrasts = []
    for event in chosen:
        has, by = columns.column(event, outcome.size) > 0, reach * spread[event]
        middle, low, high = (float((sums[event] + add) / own[event]) for add in (0.0, -by, by))
        means = float(outcome[has].mean()), float(outcome[~has].mean())
        contrasts.append((event, Contrast(middle, low, high, float(p[event]), *means)))
    return contrasts


def _moments(tried: Attempts, inside: Ints, columns: Columns, event: int) -> tuple[Ints, Bools]:
    """Where sessions have the event, others at the usual step; and which had ended before that."""
    starts, ones = tried.steps.starts, columns.event == event
    session, place = inside[columns.session[ones]], columns.place[ones]
    last = np.append(starts[1:], tried.steps.rows.size) - 1
    places = starts + int(np.median(place - starts[session]))
    places[session] = place
    return np.minimum(places, last), places > last


def _usual(calls: Calls, usual: Floats, places: Ints) -> Floats:
    """How many other attempts made the calls before these places: the rarest, and on average."""
    earlier = calls.new & (calls.place < places[calls.session])
    session, share, lowest = calls.session[earlier], usual[earlier], np.ones(calls.sessions)
    np.minimum.at(lowest, session, share)
    return np.column_stack([lowest, segments.mean(share, session, calls.sessions)])


def _sign(earlier: Columns, model: NullModel, outcome: Floats, own: Floats, usual: Floats) -> str:
    """Why an event may only show how a session was going; empty for a turn."""
    if not earlier.names.size:
        return ""
    has, errors = own > 0, earlier.names[earlier.event] == FAILED
    failed = np.isin(np.arange(has.size), earlier.session[errors])
    if mostly(float(failed[has].mean()), float(failed[~has].mean()), ERRORS):
        return SIGNS[0]
    left, squares = model.residuals(outcome), earlier.squares(model, np.ones(outcome.size))
    scale = np.sqrt(np.maximum(squares, LEAST_LEFT) * (left**2).mean())
    score = np.abs(earlier.sums(left)) / scale
    known = [at for at in np.argsort(-score, kind="stable")[:BEFORE] if score[at] > TELLING]
    before = [earlier.column(at, own.size) for at in known]
    columns = model.residuals(np.column_stack([own, *before, usual]))
    alone = columns[:, 0] @ left / (columns[:, 0] @ columns[:, 0])
    beside = np.linalg.lstsq(columns, left, rcond=1e-9)[0][0]
    return SIGNS[1] if beside / alone < KEPT else ""
