"""Files of sessions to conversations, with a count of what was left out and why.

Sessions whose records alternate in a log are read twice: once to count the records of each and to
see what its rewards belong to, and again to hand out a session when its last record is there. So
only the open ones are held.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ascribe.sessions.copies import Copies, better, earned
from ascribe.sessions.messages import Conversation, changed
from ascribe.sessions.reading.advice import values
from ascribe.sessions.reading.fields import Fields, UnknownOutcomeError
from ascribe.sessions.reading.files import ARCHIVES, DOCUMENTS, SUFFIXES, OnBad, read_records
from ascribe.sessions.reading.format import Format, error, format_of, named
from ascribe.sessions.reading.names import TIMES, at, number_of, worth
from ascribe.sessions.reading.records import ABOUT, Record
from ascribe.sessions.reading.rewards import SessionRewards
from ascribe.sessions.reading.scores import Score, choose_name, latest
from ascribe.sessions.reading.states import Choice
from ascribe.sessions.reading.traces import seconds
from ascribe.sessions.tables import session_rewards
from ascribe.sessions.tasks import Questions
from ascribe.steps.balance import Balance
from ascribe.steps.errors import InputError
from ascribe.steps.files import Progress
from ascribe.steps.hints import option
from ascribe.steps.problems import Problem, ProblemKind, TableError, counted, one_line

FIRST = 3
"""Records of a file that are looked at to see its format: the first may be about the others."""
MOST_WORDS = 12
"""Unknown outcomes that an error names."""
RewardsOf = Literal["call", "session"]
"""What the rewards of a log belong to."""


@dataclass(frozen=True, kw_only=True)
class How:
    """How to read sessions where a file leaves it open; see ``SessionOptions``."""

    form: str | None = None
    group: str | None = None
    reward: str | None = None
    state: Choice | None = None
    rewards: RewardsOf | None = None
    copies: Literal["all", "once"] = "all"
    crashed: Literal["count", "drop"] = "count"
    skip_bad: bool = False
    same_task: bool = False
    messages: str | None = None
    actions: str | None = None
    observations: str | None = None
    session: str | None = None
    version: str | None = None
    outcome_map: Mapping[str, float] | None = None
    unrewarded: bool = False

    @cached_property
    def fields(self) -> Fields:
        """The fields that were named."""
        names = ("messages", "actions", "observations", "reward", "session", "version")
        named = {name: getattr(self, name) for name in names}
        return Fields(**named, task=self.group, outcomes=self.outcome_map or {})

    @property
    def asked(self) -> Format | None:
        """The format that was asked for, if any: by its name, or by the fields of messages."""
        if self.messages or self.actions:
            return replace(named("fields"), reads=self.fields)
        return None if self.form is None else named(self.form)


# Files.


class _Bad(NamedTuple):
    """A file that cannot be read."""

    path: Path
    reason: str
    error: TableError | None
    first: Record | None = None


@dataclass
class Documents:
    """Documents of JSON that were parsed to see their format, so that most are parsed once.

    Attributes:
        room: bytes of the files that may still be kept.
        parsed: the records of those that are kept.
        skip_bad: whether what cannot be read says nothing of the others.
    """

    room: int = 64 << 20
    parsed: dict[Path, Iterator[Record]] = field(default_factory=dict)
    skip_bad: bool = False

    def first(self, path: Path) -> list[Record]:
        """The first records of a file."""
        bad: list[TableError] = []
        lenient = self.skip_bad or path.name.endswith(ARCHIVES)  # of which one file may be bad
        records = read_records(path, bad.append) if lenient else read_records(path)
        first = list(islice(records, FIRST))
        if bad and not first:
            raise bad[0]
        if (
            path.suffix in DOCUMENTS
            and first
            and not bad
            and (size := path.stat().st_size) <= self.room
        ):
            self.room -= size
            self.parsed[path] = chain(first, records)
        return first

    def records(self, path: Path, bad: OnBad) -> Iterator[Record]:
        """The records of a file; see ``read_records``."""
        return self.parsed.pop(path, None) or read_records(path, bad)


def find_files(
    paths: Iterable[Path],
    how: How,
    balance: Balance,
    documents: Documents,
    rewards: Path | None = None,
) -> dict[str, list[Path]]:
    """The files to read, those of a folder by name, by their formats.

    Raises:
        TableError: for a file that cannot be read, unless it is to be read past.
        OSError: if a file cannot be opened.
    """
    asked = how.asked
    found: dict[str, list[Path]] = {}
    bad: list[_Bad] = []
    given = list(paths)
    once = _Once()
    for path in given:
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if each.is_dir():
                continue
            if rewards is not None and each.samefile(rewards):
                continue
            balance.see("file")
            if path.is_dir() and (kind := _not_for_us(each, path, asked)):
                balance.leave_out("file", kind, each.name)
            elif first := once.before(each):
                balance.leave_out("file", "the same bytes as another", f"{each.name}: {first.name}")
            elif (name := _read_as(each, asked, bad, documents, alone=each is path)) is not None:
                found.setdefault(name, []).append(each)
    # Some formats keep other files beside their sessions.
    beside = {*ABOUT, *(name for form in found for name in named(form).beside)}
    other = [one for one in bad if one.reason == "another format"]
    aside = [one for one in other if _is_beside(one.path, beside)]
    tables = [one for one in other if one.path.suffix in (".csv", ".tsv") and one.path not in given]
    bad = [one for one in bad if one not in (*aside, *tables)]
    for one in aside:
        balance.leave_out("file", "beside the sessions", one.path.name)
    for one in tables:
        balance.leave_out("file", "another kind of file", one.path.name)
    if bad and not (how.skip_bad and found):
        raise _refusal(bad, sum(map(len, found.values())), given, how)
    for one in bad:
        balance.leave_out("file", one.reason, one.path.name)
    if not found:
        raise error(f"{one_line(given[0])} holds no session of a known format")
    return found


def _not_for_us(path: Path, folder: Path, asked: Format | None) -> str:
    """Why a file of a folder is not opened; empty if it is."""
    if path.is_symlink():
        return "a symbolic link"
    if asked is not None and _is_beside(path, asked.beside):
        return "beside the sessions"
    hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
    return "" if path.name.endswith(SUFFIXES) and not hidden else "another kind of file"


def _is_beside(path: Path, names: Iterable[str]) -> bool:
    return any(path.match(name) for name in names)


class _Once:
    """Files that are an earlier one, or have its bytes; only those of one size are read.

    A file with one record says no more than its session, of which words alone prove nothing: two
    attempts may have answered the same, or have crashed alike.
    """

    def __init__(self) -> None:
        self.of_size: dict[int, list[Path]] = {}
        self.digests: dict[Path, bytes] = {}

    def before(self, path: Path) -> Path | None:
        others = self.of_size.setdefault(path.stat().st_size, [])
        same = [each for each in others if self._digest(each) == self._digest(path)]
        copied = same[:1] if same and _has_several(path) else []
        copied = [each for each in same if each.samefile(path)] or copied
        if not copied:
            others.append(path)
        return copied[0] if copied else None

    def _digest(self, path: Path) -> bytes:
        if path not in self.digests:
            digest = blake2b(digest_size=16)
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
            self.digests[path] = digest.digest()
        return self.digests[path]


def _has_several(path: Path) -> bool:
    """Whether a file has several records; also one that cannot be read, of which one is enough."""
    try:
        return len(list(islice(read_records(path), 2))) > 1
    except TableError:
        return True


def _read_as(
    path: Path, asked: Format | None, bad: list[_Bad], documents: Documents, *, alone: bool
) -> str | None:
    """The format to read a file as; None if it is bad, or of another format than was asked for."""
    try:
        some = documents.first(path)
    except TableError as problem:
        cut = any(each.kind is ProblemKind.CUT_OFF for each in problem.problems)
        bad.append(_Bad(path, "cut off" if cut else "damaged", problem))
        return None
    form = next(filter(None, map(format_of, some)), None)
    if asked is not None and some and (alone or form is None or form.name == asked.name):
        return asked.name
    if form is None or asked is not None:
        reason = "another format" if some else "no record"
        bad.append(_Bad(path, reason, None, next(iter(some), None)))
        return None
    return form.name


def _refusal(bad: Sequence[_Bad], good: int, given: Sequence[Path], how: How) -> TableError:
    """The error for files that cannot be read."""
    only = bad[0]
    if len(bad) == 1 and not good and len(given) == 1 and only.error is not None:
        return only.error
    if not good and all(each.reason in ("another format", "no record") for each in bad):
        first = next((each.first for each in bad if each.first), None)
        return error(f"{one_line(given[0])} holds no session of a known format", first, given[0])
    names = ", ".join(f"{one_line(each.path.name, 60)} ({each.reason})" for each in bad[:5])
    more = f" and {len(bad) - 5:,} more" if len(bad) > 5 else ""
    why = f"; the first says: {one_line(only.error.problems[0].detail, 200)}" if only.error else ""
    past = "" if how.skip_bad else f"{option('skip_bad', True)} reads past them, and says so"
    files = counted(len(bad) + good, "file")
    detail = f"{len(bad):,} of {files} cannot be read: {names}{more}{why}"
    problem = Problem(ProblemKind.UNREADABLE_FILE, detail, count=len(bad), hint=past)
    return TableError([problem])


# Records and sessions.


@dataclass
class Reader:
    """Reads the sessions of files of one format.

    Attributes:
        form: the format.
        how: the options.
        balance: what was seen, used and left out.
        documents: files that are parsed already.
        csv: rewards by the names of sessions.
        seen: names of sessions, and ends of conversations, that were there before.
        score: the name of the score that is the reward, of several.
        of_calls: whether rewards belong to calls, so that those of a session add up.
        owners: the session that a trace belongs to, or one whose records are in another.
        fields: where the first record of each file has its reward, of formats that leave it open.
        unread: the places of records that are not as their format has them.
    """

    form: Format
    how: How
    balance: Balance
    documents: Documents
    csv: SessionRewards | None = None
    seen: set[tuple[Any, ...]] = field(default_factory=set)
    score: str = ""
    of_calls: bool = False
    owners: dict[Hashable, Hashable] = field(default_factory=dict)
    fields: dict[Path, tuple[str, str]] = field(default_factory=dict)
    unread: set[str] = field(default_factory=set)
    also: dict[str, None] = field(default_factory=dict)
    """Formats of single records, of those that are told apart by their messages."""
    keys: list[str] = field(default_factory=list)
    """Of the first record."""
    named: list[tuple[Hashable, Hashable] | None] = field(default_factory=list)
    """The session and the trace of each record; None where they cannot be read."""

    def __post_init__(self) -> None:
        if isinstance(self.form.reads, Fields):
            self.form = replace(self.form, reads=self.form.reads.changed(self.how.fields))

    def records(self, file: Path, *, again: bool = False) -> Iterator[Record]:
        """The records of a file; what cannot be read is left out, if that was asked for."""

        def bad(problem: TableError) -> None:
            if not self.how.skip_bad:
                raise problem
            if not again:
                self.balance.see("record")
                self.balance.leave_out("record", _reason(problem), problem.problems[0].detail)

        for record in self.documents.records(file, bad):
            if record.member and not self.form.fits(record.value):
                if other := format_of(record):
                    detail = f"it holds {other.title}, other members {self.form.title}"
                    bad(record.error(detail, hint="unpack the archive"))
                elif not again:
                    self.balance.see("record")
                    self.balance.leave_out("record", "another format", record.place())
                continue
            try:
                if not isinstance(record.value, dict):
                    raise record.error("it must be an object")
                parts = list(self.form.split(record))
            except TableError as problem:
                bad(problem)
                continue
            if not again:
                self.balance.see("record", len(parts))
            yield from parts

    def sessions(self, files: Sequence[Path], progress: Progress) -> Iterator[list[Conversation]]:
        """The conversations of each session, or of each record if the format has no sessions."""
        form = self.form
        left = self._survey(files) if form.session is not None else Counter[Hashable]()
        open_sessions: defaultdict[Hashable, list[Record]] = defaultdict(list)
        pairs = iter(self.named)
        for number, file in enumerate(files):
            for record in self.records(file, again=form.session is not None):
                records = [record]
                try:
                    if form.session is not None:
                        name = self._owner(*(next(pairs) or session_and_trace(record, form)))
                        open_sessions[name].append(record)
                        left[name] -= 1
                        if left[name]:
                            continue
                        records = open_sessions.pop(name)
                    yield self._conversations(self._unique(records))
                except TableError as problem:
                    if isinstance(problem, UnknownOutcomeError) and not self.how.skip_bad:
                        raise self._with_others(problem, files) from problem
                    self._leave_out(problem, len(records))
                    self.unread |= {each.place() for each in records}
            progress((number + 1) / len(files))

    def _with_others(
        self, problem: UnknownOutcomeError, files: Sequence[Path]
    ) -> UnknownOutcomeError:
        """The error for an unknown outcome, with the other unknown ones of all files."""
        name = self.how.reward or problem.reward.field
        values = (at(each, name).value for file in files for each in self.records(file, again=True))
        texts = {one_line(v, 40): None for v in values if isinstance(v, str) and v.strip()}
        known = self.how.outcome_map or {}
        others = [each for each in texts if worth(each, known) is None and number_of(each) is None]
        others = [each for each in others if each != problem.word][:MOST_WORDS]
        return UnknownOutcomeError(problem.reward, problem.word, others)

    def _survey(self, files: Sequence[Path]) -> Counter[Hashable]:
        """How many records each session has; decides what rewards belong to, from all of them."""
        form = self.form
        count: Counter[tuple[Hashable, Hashable]] = Counter()
        owner: dict[str, Hashable] = {}
        pairs: dict[Hashable, tuple[Hashable, Hashable]] = {}
        scores: list[tuple[tuple[Hashable, Hashable], Score, bool]] = []
        for file in files:
            for place, record in enumerate(self.records(file)):
                self.named.append(None)
                try:
                    pair = session_and_trace(record, form)
                    self.named[-1] = pair = pairs.setdefault(pair, pair)
                    count[pair] += 1  # as when it is read again, whatever else is wrong with it
                    found = () if self.csv else self._scores(record)
                    whole = bool(found) and form.snapshots(record)
                    read = [(pair, _read(each, form, (file, place)), whole) for each in found]
                    name = record.get(form.identity).optional_name() if form.unique else None
                except TableError:
                    if self.how.skip_bad:  # left out when it is read again
                        continue
                    raise
                scores += read
                first = owner.setdefault(name, pair[0]) if name else pair[0]
                self.keys = self.keys or list(record.value)
                if first != pair[0]:
                    self.owners[pair[0]] = self.owners.get(first, first)
        for session, trace in count:
            if session is not None and trace is not None:
                # A trace with several sessions, such as an evaluation of many, is none of them.
                same = self.owners.get(trace, session) == session
                self.owners[trace] = session if same else None
        left: Counter[Hashable] = Counter()
        for pair, number in count.items():
            left[self._owner(*pair)] += number
        self._decide(scores)
        return left

    def _leave_out(self, problem: TableError, count: int) -> None:
        """Count records that are not as their format has them, unless they are to be refused."""
        if not self.how.skip_bad:
            raise problem
        detail = problem.problems[0].detail
        self.balance.leave_out("record", "not as its format", detail, count)

    def _decide(self, scores: Sequence[tuple[tuple[Hashable, Hashable], Score, bool]]) -> None:
        """Decide which score is the reward, and whether rewards belong to calls."""
        try:
            self.score = choose_name({score.name for _, score, _ in scores})
        except ValueError as problem:
            raise error(str(problem)) from problem
        of_session: defaultdict[Hashable, list[Score]] = defaultdict(list)
        for pair, score, whole in scores:
            if score.name == self.score and not whole:
                of_session[self._owner(*pair)].append(score)
        values = [[each.value for each in latest(found).values()] for found in of_session.values()]
        several = [each for each in values if len(each) > 1]
        differ = any(len(set(each)) > 1 for each in several)
        self.of_calls = self.how.rewards == "call" or (differ and self.how.rewards is None)
        self.balance.rewards = "calls" if self.of_calls else "session"
        self.balance.unsure = bool(several) and not differ and self.how.rewards is None

    def _scores(self, record: Record) -> list[Score]:
        """The scores that a record gives: all, or those of the name that was asked for."""
        found = list(self.form.scores(record))
        name = self.how.reward
        if name is None:
            return found
        named = [each for each in found if each.name == name]
        value = self.form.field(record, name)
        return named or ([Score(name, value)] if value else [])

    def _owner(self, session: Hashable, trace: Hashable) -> Hashable:
        return self.owners.get(session, session) or self.owners.get(trace) or trace

    def _unique(self, records: Sequence[Record]) -> Sequence[Record]:
        """The records without those that were written twice."""
        form = self.form
        if form.session is None:
            return records
        kept: dict[Hashable, Record] = {}
        for place, record in enumerate(records):
            name = record.get(form.identity).optional_name() if form.identity else None
            if name is None and form.identity and record.get("timestamp"):
                name = repr(record.value)  # of a copy, even the time is the same
            first = kept.setdefault(place if name is None else name, record)
            if first is record:
                continue
            same = first.value == record.value
            if form.unique:
                same = first.get(form.unique).value == record.get(form.unique).value
            if not same:
                detail = f"{first.place()} has the same name and other content"
                raise record.get(form.identity).error(detail, hint="keep one of them")
            self.balance.leave_out("record", "written twice", record.place())
        return list(kept.values())

    def _conversations(self, records: Sequence[Record]) -> list[Conversation]:
        """The conversations of a session, or of a record, with the fields that the caller named."""
        form, how, record = self.form, self.how, records[-1]
        self.keys = self.keys or [k for k, v in values(record) if not isinstance(v, dict | list)]
        if form.family and (own := format_of(records[0], form.family)):
            self.also[own.name] = None
        with record.refusing():
            conversations = list(form.reads(record if form.session is None else records))
        if how.group is not None:
            name = self._named(records, how.group, required=True).name()
            conversations = [changed(each, group=name, task=None) for each in conversations]
        if form.session is not None:
            conversations = self._rewarded(conversations, records)
        elif how.reward is not None and not isinstance(form.reads, Fields):
            value = self._named(records, how.reward)
            reward = self._number(value) if value else None
            conversations = [changed(e, reward=reward, rewards=None) for e in conversations]
        elif self.csv is None:
            self._check_field(conversations, record)
        if how.rewards == "call":
            steps = [(each, each.extra.get("rewards")) for each in conversations]
            conversations = [changed(e, reward=None, rewards=r) if r else e for e, r in steps]
        unsure = next((e.extra["unsure"] for e in conversations if "unsure" in e.extra), None)
        if unsure and how.reward is None and self.csv is None:
            raise unsure
        names = {"trajectory": how.session, "version": how.version}
        given: dict[str, Any] = {
            name: self._named(records, path, required=True).name()
            for name, path in names.items()
            if path
        }
        beside = _called(record)
        conversations = [
            changed(each, path=record.file, extra={**each.extra, "called": beside}, **given)
            for each in conversations
        ]
        for each in conversations[:1]:
            for what, path in each.extra.get("fields", {}).items():
                self.balance.fields.setdefault(what, Counter())[path] += 1
        with record.refusing():
            session_rewards(conversations, {})
            checked: set[int] = set()
            for each in conversations:
                each.check(checked)
                # Pairs of whether a conversation ends there, and where: none may end in another.
                parts, refusal = each.extra.get("parts", ((), ""))
                if any((not last, mark) in self.seen for last, mark in parts):
                    raise InputError(refusal)
                self.seen.update(parts)
        called = [each.trajectory for each in conversations]
        conversations = self._with_new_names(conversations, record)
        if self.csv is not None:
            conversations = list(map(self.csv.join, conversations, called))
        return conversations

    def _check_field(self, conversations: Sequence[Conversation], record: Record) -> None:
        """Refuse a reward that another field holds than in the records of its file before it."""
        for name in filter(None, (each.extra.get("reward") for each in conversations)):
            known, place = self.fields.setdefault(record.file, (name, record.place()))
            if name != known:
                detail = f"its reward is in {name}, that of {place} in {known}, a different number"
                raise record.error(detail, hint=f"name one of them: {option('reward', known)}")

    def _with_new_names(
        self, conversations: list[Conversation], record: Record
    ) -> list[Conversation]:
        """The conversations with names that no earlier session has, unless they go on with it."""
        named = any(each.extra.get("named") for each in conversations)
        for mark in (f" ({record.place()})", f" ({record.place()}, {len(self.seen)})"):
            names = ((f"{each.group}/{each.trajectory}",) for each in conversations)
            if named or self.seen.isdisjoint(names):
                break
            conversations = [
                changed(each, trajectory=f"{each.trajectory}{mark}") for each in conversations
            ]
        self.seen.update((f"{each.group}/{each.trajectory}",) for each in conversations)
        return conversations

    def _number(self, value: Record) -> float:
        """The number of a reward, which may be a word."""
        words = isinstance(value.value, str) and (
            self.how.outcome_map or self.form.score is Record.number
        )
        return self.how.fields.number(value) if words else self.form.score(value)

    def _named(self, records: Sequence[Record], name: str, *, required: bool = False) -> Record:
        """The first field of this name in the records of a session."""
        fields = [self.form.field(record, name) for record in records]
        found = next(filter(None, fields), fields[-1])
        self.keys = self.keys or list(records[-1].value)
        if not found and required:
            raise found.error("no such field", hint=f"there are: {listed(self.keys)}")
        return found

    def _rewarded(
        self, conversations: Sequence[Conversation], records: Sequence[Record]
    ) -> list[Conversation]:
        """The conversations of a session with the rewards of its records.

        They are the session's, or those of calls: of the last one of the record or its trace.
        """
        found: dict[Hashable, tuple[int, Score]] = {}
        for place, record in enumerate(records):
            for score in self._scores(record):
                if self.how.reward is None and score.name != self.score:
                    continue
                read = _read(score, self.form, (record.path, place))
                before = found.get(read.target)
                if before is None or latest([before[1], read])[read.target] is read:
                    found[read.target] = place, read
        silent = not any(each.steps for each in conversations)
        snapshots = all(map(self.form.snapshots, records))
        if silent or snapshots or not self.of_calls:
            given = [score for _, score in found.values()]
            differ = len({score.value for score in given}) > 1
            times = [_time(score, records[place]) for place, score in found.values() if differ]
            if differ and None not in times:  # some exports have the latest first
                order = sorted(range(len(given)), key=lambda n: times[n] or 0.0)
                given = [given[n] for n in order]
            values = [score.value for score in given]
            added = self.of_calls and not snapshots
            reward = None if not values else sum(values) if added else values[-1]
            return [changed(each, reward=reward) for each in conversations]
        last: dict[Hashable, tuple[int, int]] = {}
        for number, each in enumerate(conversations):
            if each.steps and "steps" in each.extra:
                rows = each.extra["steps"].items()
                last |= {("place", place): (number, step) for place, step in rows}
            elif each.steps:
                place = each.extra["record"]
                trace = session_and_trace(records[place], self.form)[1]
                names = [("id", each.id), ("place", place), ("trace", trace)]
                last |= {name: (number, -1) for name in names if name[1] is not None}
        steps = [[0.0] * len(each.steps) for each in conversations]
        for target, (place, score) in found.items():
            trace = session_and_trace(records[place], self.form)[1]
            candidates = (("id", target), ("place", place), ("trace", trace))
            owner = next((last[name] for name in candidates if name in last), None)
            if owner is None:
                how = f"{option('rewards', 'session')} takes the last one for the session's"
                detail = "its session has different rewards, and this one belongs to no response"
                raise records[place].error(detail, hint=how)
            conversation, step = owner
            steps[conversation][step] += score.value
        if not found:
            return list(conversations)
        return [changed(each, rewards=own) for each, own in zip(conversations, steps, strict=True)]


def _called(record: Record) -> dict[str, str]:
    """What may name the task of a record that has no name for it."""
    found = {name: record.value.get(name) for name in ("index", "idx", "name", "id")}
    found["its folder"] = record.file.parent.name
    return {name: str(value) for name, value in found.items() if isinstance(value, int | str)}


def session_and_trace(record: Record, form: Format) -> tuple[Hashable, Hashable]:
    """Names of different kinds differ; None is no name."""
    session = form.session(record) if form.session else None
    trace = form.trace(record) if form.trace else None
    if session is None and trace is None:  # a session of its own
        trace = record.file, record.line, record.field
    return (
        None if session is None else ("session", session),
        None if trace is None else ("trace", trace),
    )


def listed(keys: Iterable[str]) -> str:
    """The fields of a record, for a message."""
    return ", ".join(one_line(key, 40) for key in sorted(keys))


def _read(score: Score, form: Format, target: Hashable) -> Score:
    """A score with its number; without a target, that of its record."""
    chosen = target if score.target is None else score.target
    return score._replace(value=form.score(score.value), target=chosen)


def _time(score: Score, record: Record) -> float | None:
    """When a score was given, or else its record written, in seconds; None if neither says it."""
    if score.time is not None:
        return score.time
    with suppress(TableError):  # a time in another form
        return seconds(next(filter(None, map(record.get, TIMES)), record.of(None)))
    return None


def _reason(problem: TableError) -> str:
    cut = any(each.kind is ProblemKind.CUT_OFF for each in problem.problems)
    return "cut off" if cut else "damaged"


# Sessions of a table.


@dataclass
class Sessions:
    """Decides which sessions of a table count, over all tables of an import."""

    how: How
    balance: Balance
    copies: Copies
    questions: Questions = field(default_factory=Questions)
    unrewarded: bool | None = None

    def chosen(
        self, conversations: Sequence[Conversation]
    ) -> tuple[list[Conversation], list[bool]]:
        """The conversations of the sessions that count, and which ones these are.

        What is left out is counted.
        """
        if self.how.same_task:
            conversations = [changed(each, task=each.group) for each in conversations]
        if self.unrewarded is None:
            rewarded = any(e.reward is not None or e.step_rewards() for e in conversations)
            self.unrewarded = self.how.unrewarded and not rewarded
        if source := self.questions.name(conversations):
            self.balance.fields.setdefault("task", Counter())[source] += len(conversations)
        conversations = self.questions.rename(conversations)
        self.balance.split = self.questions.split
        sessions: dict[tuple[str, str], list[Conversation]] = {}
        for each in conversations:
            sessions.setdefault((each.group, each.trajectory), []).append(each)
        self.copies.see(sessions.values())
        kept: dict[int, list[Conversation]] = {}
        for session in sessions.values():
            self._choose(session, kept)
        for session in kept.values():
            self._count(session)
        names = {(each.group, each.trajectory) for session in kept.values() for each in session}
        used = [(each.group, each.trajectory) in names for each in conversations]
        return [each for each, is_used in zip(conversations, used, strict=True) if is_used], used

    def _choose(self, session: list[Conversation], kept: dict[int, list[Conversation]]) -> None:
        self.balance.see("session")
        self.balance.see("response", sum(len(each.steps) for each in session))
        rewarded = any(e.reward is not None or e.step_rewards() is not None for e in session)
        self.balance.see("reward", int(rewarded))
        crashed = any(each.crashed for each in session)
        excluded = next((each.excluded for each in session if each.excluded), "")
        if not excluded and not rewarded and not self.unrewarded:
            excluded = "no reward"
        elif not excluded and not session[0].group:
            excluded = "neither a response nor a task"
        elif not excluded and crashed and self.how.crashed == "drop":
            excluded = "crashed"
        if not excluded:
            why, first = self.copies.reason(session)
            if first is not session and earned(first) != earned(session):
                why += ", but another reward"
            if first is not session and why and id(first) in kept and better(session, first):
                self.copies.replace(first, session)
                self._leave_out(kept.pop(id(first)), why)
            elif why == "equal":
                self.balance.equal += 1
            else:
                excluded = why
        if excluded:
            self._leave_out(session, excluded)
        else:
            kept[id(session)] = session

    def _leave_out(self, session: Sequence[Conversation], reason: str) -> None:
        name = f"{session[0].group}/{session[0].trajectory}"
        self.balance.leave_out("session", reason, name)
        steps = sum(len(each.steps) for each in session)
        self.balance.leave_out("response", "of a session left out", count=steps)
        if reason != "no reward":
            rewarded = any(e.reward is not None or e.step_rewards() is not None for e in session)
            self.balance.leave_out("reward", "of a session left out", count=int(rewarded))

    def _count(self, session: Sequence[Conversation]) -> None:
        self.balance.crashed += any(each.crashed for each in session)
        self.balance.silent += not any(each.steps for each in session)
        of_steps = any(sum(r is not None for r in each.rewards or ()) > 1 for each in session)
        if of_steps or not self.balance.rewards:
            self.balance.rewards = "calls" if of_steps else "session"
        if version := next((each.version for each in session if each.version), None):
            self.balance.versions[version] += 1
