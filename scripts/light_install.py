"""Check that a plain install is light: few packages, a quick import, nothing heavy imported.

Run it with the Python of a fresh virtual environment in which only ``pip install .`` was run.
"""

import os
import subprocess
import sys
from importlib.metadata import distributions

MOST_PACKAGES = 15
GOOD_SECONDS = 0.25
HEAVY = ("torch", "pyarrow", "transformers", "typer", "rich")
TOOLS = ("pip", "setuptools")


def main() -> None:
    """Print what was found, and stop with an error if a limit is broken."""
    names = sorted({found.metadata["Name"] for found in distributions()} - set(TOOLS))
    seconds = min(import_seconds() for _ in range(7))
    loaded = subprocess.run(
        [sys.executable, "-c", "import ascribe, sys; print(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    heavy = [name for name in HEAVY if name in loaded]
    print(f"{len(names)} packages: {', '.join(names)}")
    print(f"import ascribe: {seconds:.3f} s of CPU (best of 7, start of Python included)")
    if seconds > GOOD_SECONDS:
        print(f"that is more than {GOOD_SECONDS} s: a busy machine, or a heavy import?")
    if len(names) > MOST_PACKAGES or seconds > 2 * GOOD_SECONDS or heavy:
        sys.exit(f"not light: at most {MOST_PACKAGES} packages, and none of {HEAVY} imported")


def import_seconds() -> float:
    """CPU time of a new Python that imports ascribe: what others do on the machine is left out."""
    before = os.times()
    subprocess.run([sys.executable, "-c", "import ascribe"], check=True)
    after = os.times()
    spent = after.children_user + after.children_system
    return spent - before.children_user - before.children_system


if __name__ == "__main__":
    main()
