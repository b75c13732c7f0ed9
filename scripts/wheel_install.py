"""Check that both packages work from their wheels alone: commands, imports, the page, its schema.

Run it with the Python of an environment in which the two wheels, and nothing of a clone, were
installed. The commands run in an empty folder, on copies of examples.
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from shutil import copy, copytree

EXAMPLES = Path(__file__).parents[1] / "examples"
LOG = EXAMPLES / "conversations.jsonl"
PAPER = EXAMPLES / "papers" / "ccpo"


def main() -> None:
    """Run each command and look at what it wrote."""
    installed = Path(sys.prefix)
    for name, module in (("ascribe-rl", "ascribe"), ("ascribe-lab", "ascribe_lab")):
        origin = distribution(name).read_text("direct_url.json") or "{}"
        if "archive_info" not in json.loads(origin):
            sys.exit(f"{name} was not installed from a wheel")
        found = find_spec(module)
        if found is None or installed not in Path(found.origin or "").parents:
            sys.exit(f"{module} does not come from {installed}")
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        copy(LOG, here)
        copytree(PAPER, here / "ccpo")
        run(here, "python", "-c", "import ascribe_lab")
        for command in ("--help", "recipes", "train --help", "env list"):
            run(here, "ascribe", *command.split())
        run(here, "ascribe", "train", "ccpo/qwen2.5_7b_ccpo.yaml", "--dry-run")
        told = json.loads(run(here, "ascribe", "report", LOG.name, "-o", "page.html", "--json"))
    schema = json.loads(
        (files("ascribe.reports") / "assets" / "report.schema.json").read_text(encoding="utf-8")
    )
    if missing := set(schema["required"]) - set(told):
        sys.exit(f"ascribe report --json lacks {missing}, which its schema requires")
    print("both packages work from their wheels alone")


def run(folder: Path, program: str, *arguments: str) -> str:
    """What a command of this environment prints."""
    clean = {name: each for name, each in os.environ.items() if name != "PYTHONPATH"}
    path = Path(sys.executable).parent / program
    done = subprocess.run(
        [path, *arguments], cwd=folder, env=clean, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{program} {' '.join(arguments)}: {done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
