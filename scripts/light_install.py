"""Check that a plain install is light: few packages, a quick import, nothing heavy imported.

Run it with the Python of a fresh virtual environment in which only ``pip install .`` was run.
"""

import subprocess
import sys
import time
from importlib.metadata import distributions

MOST_PACKAGES = 15
MOST_SECONDS = 0.25
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
    print(f"import ascribe: {seconds:.3f} s (best of 7, start of Python included)")
    if len(names) > MOST_PACKAGES or seconds > MOST_SECONDS or heavy:
        sys.exit(f"not light: at most {MOST_PACKAGES} packages, {MOST_SECONDS} s, none of {HEAVY}")


def import_seconds() -> float:
    """Wall time of a new Python that imports ascribe."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import ascribe"], check=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
