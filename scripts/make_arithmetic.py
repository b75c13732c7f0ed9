"""Write questions with whole numbers for the environment ``maths``, in GSM8K's format.

    python scripts/make_arithmetic.py --out arithmetic.jsonl --seed 0

Sums, differences and products of two or three small numbers; no question occurs twice. The
answers show the calculation in one line and end with ``#### 42``.
"""

import argparse
import json
import sys
from pathlib import Path
from random import Random

SIGNS = {"+": "plus", "-": "minus", "*": "times"}


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON lines")
    parser.add_argument("--seed", type=int, default=0, help="seed of the questions")
    parser.add_argument("--count", type=int, default=1000, help="number of questions")
    parser.add_argument("--largest", type=int, default=20, help="largest number")
    options = parser.parse_args()
    try:
        rows = questions(options.count, options.largest, Random(options.seed))
    except ValueError as error:
        sys.exit(f"make_arithmetic.py: {error}")
    text = "".join(json.dumps(row) + "\n" for row in rows)
    options.out.write_text(text, encoding="utf-8")


def questions(count: int, largest: int, random: Random) -> list[dict[str, str]]:
    """This many different questions."""
    rows: dict[str, dict[str, str]] = {}
    tries = 0
    while len(rows) < count:
        if tries > 100 * count:
            raise ValueError(f"there are not {count} different questions up to {largest}")
        tries += 1
        length = random.choice((2, 2, 3))
        numbers = [random.randint(1, largest) for _ in range(length)]
        signs = [random.choice("+-*") if length == 2 else random.choice("+-") for _ in numbers[1:]]
        row = question(numbers, signs)
        rows.setdefault(row["question"], row)
    return list(rows.values())


def question(numbers: list[int], signs: list[str]) -> dict[str, str]:
    """A question and its answer, computed from left to right."""
    asked, worked, result = str(numbers[0]), str(numbers[0]), numbers[0]
    for sign, number in zip(signs, numbers[1:], strict=True):
        asked += f" {SIGNS[sign]} {number}"
        worked += f" {sign} {number}"
        result = {"+": result + number, "-": result - number, "*": result * number}[sign]
    return {
        "question": f"What is {asked}?",
        "answer": f"{worked} = {result}\n#### {result}",
    }


if __name__ == "__main__":
    main()
