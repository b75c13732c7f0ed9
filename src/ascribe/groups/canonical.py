"""Rules that remove from a text what does not belong to the situation that it shows.

Texts are hostile: every pattern takes time linear in the text, and nesting is bounded.
"""

import re
import string
from collections.abc import Callable

NUMBER = re.compile(
    r"(?P<before>[^\s\d]{0,40}[ \t]{0,4})(?P<number>\d{1,300}(?:\.\d{1,300})?)"
    r"(?P<after>[ \t]{0,4}[^\s\d]{0,40})"
)
TIME = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d)?(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?)?"  # ISO dates
    r"|\b\d{1,2}:\d\d(?::\d\d)?(?:\.\d{1,9})?(?:\s?[ap]m\b)?",
    re.IGNORECASE,
)
DURATION = re.compile(
    r"\b(?:\d{1,9}h ?)?(?:\d{1,9}m ?)?\d{1,9}(?:\.\d{1,9})?"
    r"[ -]?(?:[nµum]?s|secs?|seconds?|(?:milli|micro)seconds?|mins?|minutes?|hrs?|hours?)\b",
    re.IGNORECASE,
)
ID = re.compile(
    r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b0x[0-9a-f]{1,32}\b"
    r"|\b[a-z]{2,12}[_-](?=[a-z]*\d)[a-z0-9]{16,}\b",  # call_..., req-...
    re.IGNORECASE,
)
HASH = re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{7,}\b", re.IGNORECASE)
TEMPORARY = re.compile(
    r"(?:/private)?/var/folders/\w+/\w+/T\b|\btmp(?:\.[A-Za-z0-9]{10}|[a-z0-9][a-z0-9_]{7})\b"
    r"|(?<=/tmp/)[\w-]{0,80}[-_.](?=[a-z]*\d)(?=\d*[a-z])[a-z0-9]{6,}\b",
    re.IGNORECASE,
)
FOLDER = re.compile(
    r"(?<![\w/.:#])/(?:[\w.+@#-]{1,80}/){1,20}(?=[\w.#])"
    r"|\b[A-Z]:\\(?:[^\\/\s]{1,80}\\){1,20}(?=[\w.#])"
)
TOKEN = re.compile(r"[\[{(\])}]|[,;|]\s*|[^\[\]{}(),;|]+")
ITEM = re.compile(r"(?:^|(?<=\s))(?=(?:an?|the|some)\s|\d|\[)")
SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
BULLET = re.compile(r"\s{0,40}[-*•]\s")
BRACKETS = {"[": "]", "{": "}", "(": ")"}
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


def context(match: re.Match[str]) -> str:
    """The words around a number."""
    before, after = (match[name].strip(PUNCTUATION).lower() for name in ("before", "after"))
    return f"{before} # {after}".strip()


def sorted_lists(text: str) -> str:
    """The text with the items of the lists in its sentences in rising order."""
    sentences = (SENTENCE.split(line) for line in text.split("\n"))
    return "\n".join(" ".join(map(_sorted_items, parts)) for parts in sentences)


def _sorted_items(line: str) -> str:
    """The line, or sentence, with the items of its lists in rising order."""
    frames: list[tuple[str, list[str], list[str]]] = [("", [], [])]  # bracket, items, present item
    for token in TOKEN.findall(line):
        bracket, items, item = frames[-1]
        if token in BRACKETS and len(frames) <= DEEPEST:
            if token == "[" and not bracket and item:  # [oak log] (2) [stick] (1)
                items.append("".join(item))
                item.clear()
            frames.append((token, [], []))
        elif token == BRACKETS.get(bracket):
            items.append("".join(item))
            frames.pop()
            inside = [one.strip() for one in items]
            inside = inside if bracket == "(" else sorted(inside)
            frames[-1][2].append(f"{bracket}{', '.join(inside)}{token}")
        elif token[0] in ",;|" and (token[-1].isspace() or bracket):
            items.append("".join(item))
            item.clear()
        else:
            item.append(token)
    for bracket, items, item in frames[:0:-1]:  # never closed
        frames[0][2].append(bracket + ", ".join([*items, "".join(item)]))
    _, items, item = frames[0]
    items.append("".join(item))
    return items[0] if len(items) == 1 else "; ".join(sorted(_without_head(items)))


def _without_head(items: list[str]) -> list[str]:
    """The items, with what leads to the first one ("you see", "Inventory:") as one of its own."""
    items = [re.sub(r"^and\s", "", item.strip().rstrip(".")) for item in items]
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
    lines = text.split("\n")
    at = [number for number, line in enumerate(lines) if BULLET.match(line)]
    for number, line in zip(at, sorted(lines[number] for number in at), strict=True):
        lines[number] = line
    return "\n".join(lines)


def status_of_tests(text: str) -> str:
    """Of the output of tests, which failed and which passed; another text as it is."""
    found = set(COUNT.findall(text))
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
    return "\n".join("".join(parts).strip() for parts in TITLE.findall(text)) or text


def error_class(text: str) -> str:
    """Of a text that reports an error, the last one's class; another text as it is."""
    found = ERROR.findall(text)
    return "".join(found[-1]) if found else text


def _without(pattern: re.Pattern[str], put: str = "#") -> Callable[[str], str]:
    return lambda text: pattern.sub(put, text)


def without_counter(text: str, words: str) -> str:
    """The text without the numbers in one context."""
    return NUMBER.sub(
        lambda at: f"{at['before']}#{at['after']}" if context(at) == words else at[0], text
    )


RULES: dict[str, Callable[[str], str]] = {
    "times": _without(TIME),
    "durations": _without(DURATION),
    "temporary": _without(TEMPORARY),
    "ids": _without(ID),
    "hashes": _without(HASH),
    "folders": _without(FOLDER, ""),
    "lists": sorted_lists,
    "bullets": sorted_bullets,
    "tests": status_of_tests,
    "titles": page_title,
    "errors": error_class,
}
"""Every rule by name, in the order in which a key applies them."""

NOISE = ("times", "durations", "temporary", "ids", "hashes")
"""Rules that remove what a clock or a generator wrote, and not the situation, as a rule."""
