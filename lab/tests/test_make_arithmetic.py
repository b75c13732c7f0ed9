"""The script that writes questions with whole numbers."""

import subprocess
import sys
from pathlib import Path

from ascribe_lab.envs import make

SCRIPT = Path(__file__).parents[2] / "scripts" / "make_arithmetic.py"


def write(file: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    words = [sys.executable, str(SCRIPT), "--out", str(file), *options]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_the_questions_are_right_and_each_is_another(tmp_path: Path) -> None:
    file = tmp_path / "questions.jsonl"
    assert write(file, "--count", "200", "--seed", "3").returncode == 0
    maths = make("maths", file=file, judge="number", expert=True)
    assert maths.tasks == 200
    asked = set()
    for task in range(200):
        question, info = maths.reset(options={"task": task})
        words = question.removeprefix("What is ").removesuffix("?")
        for word, sign in (("plus", "+"), ("minus", "-"), ("times", "*")):
            words = words.replace(word, sign)
        first, *rest = words.split()
        value = int(first)
        for sign, number in zip(rest[::2], map(int, rest[1::2]), strict=True):
            value = {"+": value + number, "-": value - number, "*": value * number}[sign]
        assert info["expert_action"] == rf"\boxed{{{value}}}"
        assert maths.step(f"It is {value}.")[1] == 1.0
        asked.add(question)
    assert len(asked) == 200


def test_the_same_seed_gives_the_same_questions(tmp_path: Path) -> None:
    texts = []
    for number, seed in enumerate("001"):
        file = tmp_path / f"{number}.jsonl"
        write(file, "--count", "50", "--seed", seed)
        texts.append(file.read_text())
    assert texts[0] == texts[1] != texts[2]


def test_more_than_there_are_is_refused(tmp_path: Path) -> None:
    done = write(tmp_path / "few.jsonl", "--count", "1000", "--largest", "2")
    assert done.returncode == 1
    assert "there are not 1000 different questions" in done.stderr
