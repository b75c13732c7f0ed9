"""Rules that remove from a text what does not belong to the situation that it shows.

Texts are hostile: every pattern takes time linear in the text, and nesting is bounded. Most texts
have nothing to remove. So a pattern begins with the letters that it may begin with, where that is
possible, which makes it several times as fast; others are tried after a test for what they need.
"""

import re
import string
from collections.abc import Callable, Iterator
from functools import lru_cache

NUMBER = re.compile(r"(\d{1,300}(?:\.\d{1,300})?)[ \t]{0,4}[^\s\d]{0,40}")
"""A number, and the word after it."""
LONGEST_WORD, MOST_SPACES = 40, 4
"""Letters of a word beside a number, and of the space between."""
TIME = re.compile(
    r"\d(?:\d{3}-\d\d-\d\d"  # ISO dates
    r"(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)?"
    r"|(?<=\b\d)\d?:\d\d(?::\d\d)?(?:\.\d{1,9})?(?:\s?[ap]m\b)?)",
    re.IGNORECASE,
)
DURATION = re.compile(
    r"\d(?<=\b\d)\d{0,8}(?:h ?(?:\d{1,9}m ?)?\d{1,9}(?:\.\d{1,9})?|m ?\d{1,9}(?:\.\d{1,9})?"
    r"|(?:\.\d{1,9})?)"
    r"[ -]?(?:[nµum]?s|secs?|seconds?|(?:milli|micro)seconds?|mins?|minutes?|hrs?|hours?)\b",
    re.IGNORECASE,
)
ID = re.compile(
    r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b0x[0-9a-f]{1,32}\b"
    r"|\b[a-z]{2,12}[_-](?=[a-z]*\d)[a-z0-9]{16,}\b",  # call_..., req-...
    re.IGNORECASE,
)
HASH = re.compile(r"[0-9a-fA-F](?<=\b(?=[a-fA-F]*\d)(?=\d*[a-fA-F])[0-9a-fA-F])[0-9a-fA-F]{6,}\b")
TEMPORARY = re.compile(
    r"(?:/private)?/var/folders/\w+/\w+/T\b|\btmp(?:\.[A-Za-z0-9]{10}|[a-z0-9][a-z0-9_]{7})\b"
    r"|(?<=/tmp/)[\w-]{0,80}[-_.](?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{6,}\b",
    re.IGNORECASE,
)
FOLDER = re.compile(
    r"[/A-Z](?:(?<=(?<![\w/.:#])/)(?:[\w.+@#-]{1,80}/){1,20}(?=[\w.#])"
    r"|(?<=\b[A-Z]):\\(?:[^\\/\s]{1,80}\\){1,20}(?=[\w.#]))"
)
TOKEN = re.compile(r"[\[{(\])}]|[,;|]\s*|[^\[\]{}(),;|]+")
ITEM = re.compile(r"(?:^|(?<=\s))(?=(?:an?|the|some)\s|\d|\[)")
SENTENCE = re.compile(r"\s(?<=[.!?]\s)\s*(?=[A-Z])")
ENDED = re.compile(r"[.!?]\s")
"""What a text of several sentences has somewhere."""
AND = re.compile(r"^and\s")
LISTED = re.compile(r"[\[{(,;|]")
"""What a list has somewhere."""
BULLET = re.compile(r"\s{0,40}[-*•]\s")
BULLETED = re.compile(r"[-*•]\s")
BRACKETS = {"[": "]", "{": "}", "(": ")"}
MARKS = frozenset("[]{}(),;|")
DEEPEST = 8
"""Brackets in more brackets than these are letters like any other."""
PUNCTUATION = string.punctuation + string.whitespace

COUNT = re.compile(
    r"\b\d{1,9} (?:passed|failed|passing|failing|errors?|tests?|total)\b|^--- (?:PASS|FAIL)\b"
    r"|\bno tests ran\b",
    re.MULTILINE,
)
"""What the output of a test runner has somewhere."""
STATUS = re.compile(
    r"^[ \t]{0,8}(?:(?:--- |test )?(?P<status>PASS(?:ED)?|FAIL(?:ED)?|ERROR|(?:not )?ok|[✓✔✕✗×])"
    r"(?::|\b|(?<=\W))[ \t]{1,4}(?P<name>\S[^\n]{0,200})"
    r"|(?:test )?(?P<test>\S{1,200}(?: \([^)\n]{1,100}\))?)[ \t.]{1,8}"
    r"(?P<result>PASSED|FAILED|FAIL|ERROR|ok)\b[^\n]{0,40}$"
    r"|_{3,80} (?P<failed>\S[^\n]{0,200}?) _{3,80}$)",
    re.MULTILINE,
)
"""A test and whether it failed, as pytest, unittest, jest, go, cargo and TAP write it."""
REASON = re.compile(r" - | \(\d|\t|  |$")
"""What follows the name of a test."""
TITLE = re.compile(
    r"<title[^>]{0,200}>\s{0,40}([^<]{1,300})|^\W{0,4}(?:(?:page|current|tab) )?(?:title|url)"
    r" ?[:=] {0,4}(\S[^\n]{0,300})|\bRootWebArea '([^'\n]{1,300})'",
    re.IGNORECASE | re.MULTILINE,
)
ERROR = re.compile(
    r"^(?:E {1,8})?(?:\w{1,60}\.){0,8}(\w{0,60}(?:Error|Exception))\b|\b(command not found)\b",
    re.MULTILINE,
)


def _one_of(*words: str) -> Callable[[str], bool]:
    """Whether a text has one of these words, in letters of any size."""

    def needs(text: str) -> bool:
        if not text.isascii():  # other letters may stand for these
            return True
        lower = text.lower()
        return any(word in lower for word in words)

    return needs


def _matches(pattern: str, *words: str) -> Callable[[str], object]:
    """Whether a text has one of these words, or what matches a pattern of ASCII."""
    search, has_word = re.compile(pattern).search, _one_of(*words)
    return lambda text: search(text) or has_word(text)


_counts = re.compile(r"\d (?:(?:pass|fail)(?:ed|ing)|error|test|total)").search
_may_have_title = _one_of("title", "url", "rootwebarea")


def numbers(text: str) -> Iterator[tuple[re.Match[str], str]]:
    """The numbers of a text, each with the words around it; no word is beside two of them.

    Of each match, the number is the first group.
    """
    end = 0
    for found in NUMBER.finditer(text):
        start = found.start()
        shown = text[max(end, start - LONGEST_WORD - MOST_SPACES) : start]
        end = found.end()
        yield found, _around(shown, text[found.end(1) : end])


@lru_cache(maxsize=4096)
def _around(shown: str, after: str) -> str:
    """The words around a number, of which ``shown`` ends in the first."""
    before = shown.rstrip(" \t")
    near = before and len(shown) - len(before) <= MOST_SPACES and not before[-1].isspace()
    before = before.rsplit(None, 1)[-1][-LONGEST_WORD:] if near else ""
    words = f"{before.strip(PUNCTUATION).lower()} # {after.strip(PUNCTUATION).lower()}"
    return words.strip()


def sorted_lists(text: str) -> str:
    """The text with the items of the lists in its sentences in rising order."""
    return "\n".join(map(_sorted_line, text.split("\n")))


@lru_cache(maxsize=1024)  # as of a system prompt in many texts
def _sorted_line(line: str) -> str:
    """The line with the items of the lists in its sentences in rising order."""
    if not ENDED.search(line):
        return _sorted_items(line)
    return " ".join(map(_sorted_items, SENTENCE.split(line)))


def _sorted_items(line: str) -> str:
    """The line, or sentence, with the items of its lists in rising order."""
    return _sorted_list(line) if LISTED.search(line) else line


@lru_cache(maxsize=1024)  # texts that differ in a time share most of their sentences
def _sorted_list(line: str) -> str:
    """The items of a sentence that has some in rising order."""
    bracket, items, item = "", list[str](), ""  # items, present item
    outer: list[tuple[str, list[str], str]] = []
    for token in TOKEN.findall(line):
        kind = token[0]
        if kind not in MARKS:
            item += token
        elif kind in ",;|":
            if bracket or token[-1].isspace():
                items.append(item)
                item = ""
            else:
                item += token
        elif kind in BRACKETS and len(outer) < DEEPEST:
            if kind == "[" and not bracket and item:  # [oak log] (2) [stick] (1)
                items.append(item)
                item = ""
            outer.append((bracket, items, item))
            bracket, items, item = kind, [], ""
        elif bracket and kind == BRACKETS[bracket]:
            inside = [one.strip() for one in (*items, item)]
            if bracket != "(":
                inside.sort()
            closed = f"{bracket}{', '.join(inside)}{kind}"
            bracket, items, item = outer.pop()
            item += closed
        else:
            item += token
    if outer:  # never closed
        frames = [*outer[1:], (bracket, items, item)]
        _, items, item = outer[0]
        item += "".join(each + ", ".join([*inside, last]) for each, inside, last in frames[::-1])
    items.append(item)
    return items[0] if len(items) == 1 else "; ".join(sorted(_without_head(items)))


def _without_head(items: list[str]) -> list[str]:
    """The items, with what leads to the first one ("you see", "Inventory:") as one of its own."""
    items = [item.strip().rstrip(".") for item in items]
    items = [AND.sub("", item) if item.startswith("and") else item for item in items]
    if sum(item.count(": ") for item in items) == 1:
        return [part for item in items for part in item.split(": ") if part]
    first = len(items)  # from here on, all are items
    while first and ITEM.match(items[first - 1]):
        first -= 1
    if 0 < first < len(items):
        items[first - 1 : first] = [part.strip() for part in ITEM.split(items[first - 1], 1)]
    return [item for item in items if item]


def sorted_bullets(text: str) -> str:
    """The text with the lines that begin with a bullet in rising order."""
    if not BULLETED.search(text):
        return text
    lines = text.split("\n")
    at = [number for number, line in enumerate(lines) if BULLET.match(line)]
    for number, line in zip(at, sorted(lines[number] for number in at), strict=True):
        lines[number] = line
    return "\n".join(lines)


def status_of_tests(text: str) -> str:
    """Of the output of tests, which failed and which passed; another text as it is."""
    may = any(word in text for word in ("pass", "fail", "error", "test", "total", "--- "))
    counted = may and (any(m in text for m in ("--- P", "--- F", "no tests")) or _counts(text))
    found = set(COUNT.findall(text)) if counted else set()
    if not found:
        return text
    for match in STATUS.finditer(text):
        status = match["status"] or match["result"] or "FAILED"
        name = match["name"] or match["test"] or match["failed"]
        word = "passed" if status.upper() in {"PASS", "PASSED", "OK", "✓", "✔"} else "failed"
        found.add(f"{word} {REASON.split(name, maxsplit=1)[0].strip()}")
    return "\n".join(sorted(found))


def page_title(text: str) -> str:
    """Of a web page, its title and address; another text as it is."""
    if not _may_have_title(text):
        return text
    return "\n".join("".join(parts).strip() for parts in TITLE.findall(text)) or text


def error_class(text: str) -> str:
    """Of a text that reports an error, the last one's class; another text as it is."""
    may_report = any(word in text for word in ("Error", "Exception", "command not found"))
    found = ERROR.findall(text) if may_report else []
    return "".join(found[-1]) if found else text


def _without(
    pattern: re.Pattern[str], put: str = "#", needs: Callable[[str], object] = bool
) -> Callable[[str], str]:
    """A rule that puts something in the place of what matches; ``needs`` is true if any may."""
    return lambda text: pattern.sub(put, text) if needs(text) else text


def without_counter(text: str, words: str) -> str:
    """The text without the numbers in one context."""
    parts, end = [], 0
    for found, context in numbers(text):
        if context == words:
            parts += [text[end : found.start()], "#"]
            end = found.end(1)
    return "".join([*parts, text[end:]])


RULES: dict[str, Callable[[str], str]] = {
    "times": _without(TIME),
    "durations": _without(DURATION),
    "temporary": _without(TEMPORARY, needs=_one_of("tmp", "/var/folders/")),
    "ids": _without(ID, needs=_matches(r"[-_][0-9a-zA-Z]{12}", "0x")),
    "hashes": _without(HASH),
    "folders": _without(FOLDER, "", lambda text: "/" in text or "\\" in text),
    "lists": sorted_lists,
    "bullets": sorted_bullets,
    "tests": status_of_tests,
    "titles": page_title,
    "errors": error_class,
}
"""Every rule by name, in the order in which a key applies them."""

NOISE = ("times", "durations", "temporary", "ids", "hashes")
"""Rules that remove what a clock or a generator wrote, and not the situation, as a rule."""
