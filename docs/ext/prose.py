"""Check the prose of pages: the house's words, and proselint if it is installed.

    pip install proselint
    python docs/ext/prose.py README.md docs/*.md docs/*/*.md

CI looks for the house's words alone.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

HOUSE = {
    r"nobody|everybody|anybody|somebody": "no agent, each agent, or whoever it is",
    r"lonely": "alone in their state",
    r"for ever": "forever",
    r"anew": "again",
    r"belongs? into": "belongs in",
    r"blow[ns]? up": "amplifies",
    r"(?:model|policy|agent) (?:said|told)": "responded, wrote",
    r"given up": "failed",
    r"as text:": "nothing: formulas are rendered",
}
"""Words that pages do not use, and what to write."""
REFUSED = {
    "typography": "Markdown has straight quotes and three dots, and Sphinx sets them",
    "lexical_illusions": "a heading and its first words, or two pieces of code, are no repetition",
    "spelling.consistency": "fields of data keep their spelling",
    "weasel_words.very": "a matter of taste; few are left",
}
"""Checks of proselint that are not followed, and why."""
CODE = re.compile(r"^```.*?^```$|^\$\$.*?\$\$|`[^`\n]+`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


def prose(page: str) -> str:
    """The page without code, formulas and addresses, with the same lines."""
    return CODE.sub(lambda code: "X" + "\n" * code[0].count("\n"), page)


def house_faults(page: str) -> list[str]:
    """Each word that the house does not use, with its line and what to write."""
    return [
        f"{text.count(chr(10), 0, match.start()) + 1}: {match[0]!r}, write: {better}"
        for text in [prose(page)]
        for pattern, better in HOUSE.items()
        for match in re.finditer(rf"\b(?:{pattern})\b", text, re.IGNORECASE)
    ]


def main() -> None:
    """Print what is found in the pages on the command line; a word of the list is an error."""
    refused = False
    for name in sys.argv[1:]:
        text = Path(name).read_text(encoding="utf-8")
        faults = house_faults(text)
        refused |= bool(faults)
        if shutil.which("proselint"):
            done = subprocess.run(
                ["proselint", "check", "--output-format", "json"],
                input=prose(text),
                stdout=subprocess.PIPE,
                encoding="utf-8",
                check=False,
            )
            (found,) = json.loads(done.stdout)["result"].values()
            faults += [
                f"{each['pos'][0]}: {each['message']}"
                for each in found["diagnostics"]
                if not each["check_path"].startswith(tuple(REFUSED))
            ]
        for fault in faults:
            print(f"{name}:{fault}")
    sys.exit(int(refused))


if __name__ == "__main__":
    main()
