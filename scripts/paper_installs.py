"""Install what each paper's page says, and dry-run every file of ``examples/papers`` there.

    python scripts/paper_installs.py FOLDER [EXTRAS ...]

makes an environment in FOLDER for each engine and set of extras, or takes the one that is there;
with EXTRAS, such as ``trl,maths``, for those alone.
PyTorch comes first, in its build for the CPU of ``scripts/locks``: if the index has none, name a
place that has it by PIP_FIND_LINKS. vLLM is left out, for a dry run does not need it. The script
needs uv, a network, 10 GB, and for ALFWorld a C++ compiler.
"""

import os
import re
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
PAPERS = ROOT / "examples" / "papers"
LINE = re.compile(
    r"""\./lab\[(\w+),(\w+)\]"`(?: \(or ([`\w, ]+)\))?, then `(ascribe [a-z ]*train)"""
)
"""On a paper's page: its engine, an environment, other environments, and its command."""
CALLS = """
import sys
from typer.testing import CliRunner
from ascribe.cli import app
words, files = sys.argv[1].split(), sys.argv[2:]
failed = 0
for file in files:
    done = CliRunner().invoke(app, [*words, file, "--dry-run"])
    if done.exit_code:
        failed += 1
        print(f"{file}: {done.output[-500:]} {done.exception!r}")
sys.exit(failed)
"""


def page(paper: str) -> tuple[str, set[str], str]:
    """The engine, the environments and the command that the page of a paper names."""
    file = ROOT / "docs" / ("pivots.md" if paper == "pivotrl" else f"estimators/{paper}.md")
    found = LINE.search(file.read_text(encoding="utf-8"))
    if found is None:
        sys.exit(f"{file} does not say how to run the paper's files")
    engine, first, others, command = found.groups()
    return engine, {first, *re.findall(r"`(\w+)`", others or "")}, command.removeprefix("ascribe ")


def environment(file: Path) -> str:
    """The extra that a file's environment needs: its name (CCPO's teams play ``maths``)."""
    config = yaml.safe_load(file.read_text(encoding="utf-8"))
    if "environment" in config and "name" in config["environment"]:
        name, options = config["environment"]["name"], config["environment"].get("options", {})
        return str(options.get("environment", "maths") if name == "team" else name)
    return environment(file.parent / config["extends"])


def make(folder: Path, extras: str) -> None:
    """An environment with PyTorch for the CPU, the library and the laboratory with its extras."""
    lock = (ROOT / "scripts/locks/trl.txt").read_text(encoding="utf-8")
    torch = re.findall(r"^torch==\S+", lock, re.MULTILINE)
    uv = [sys.executable, "-m", "uv"]
    links = [f"--find-links={each}" for each in os.environ.get("PIP_FIND_LINKS", "").split()]
    install = [*uv, "pip", "install", "--quiet", f"--python={folder}/bin/python", *links]
    subprocess.run([*uv, "venv", "--quiet", folder], check=True)
    subprocess.run([*install, *torch], check=True)
    subprocess.run([*install, ".", f"./lab[{extras}]"], cwd=ROOT, check=True)
    if cuda := [each.name for each in folder.glob("lib/*/site-packages/nvidia*")]:
        sys.exit(f"{extras} brings {cuda}")


def main() -> None:
    """Print a line for each environment; end with an error if a file fails."""
    files = defaultdict(list)
    for file in sorted(PAPERS.glob("*/[!_]*.yaml")):
        engine, environments, command = page(file.parent.name)
        extra = environment(file)
        if extra not in environments:
            sys.exit(f"{file} needs {extra}, which its page does not name")
        words = f"{command} --engine {engine}"
        files[f"{engine},{extra}", words].append(str(file.relative_to(ROOT)))
    failed = 0
    for (extras, words), those in files.items():
        if sys.argv[2:] and extras not in sys.argv[2:]:
            continue
        folder = Path(sys.argv[1], extras).absolute()
        start = time.perf_counter()
        if not folder.exists():
            make(folder, extras)
        spent = time.perf_counter() - start
        command = [folder / "bin/python", "-c", CALLS, words, *those]
        done = subprocess.run(command, cwd=ROOT, check=False)
        failed += done.returncode
        print(f"{extras}: {len(those)} files, {done.returncode} failed; installed in {spent:.0f} s")
    sys.exit(failed)


if __name__ == "__main__":
    main()
