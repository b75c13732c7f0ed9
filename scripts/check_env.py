"""Say which packages of this environment differ from a list of versions, and stop with an error.

Run it with the Python of that environment: ``python scripts/check_env.py LIST``.
"""

import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def main() -> None:
    """Print every package that is off; exit with 1 if there is one."""
    if len(sys.argv) != 2:
        sys.exit("usage: check_env.py LIST")
    path = Path(sys.argv[1])
    wanted = read(path)
    off = [line for name, exact in wanted.items() if (line := difference(name, exact))]
    print(
        *off,
        f"{len(wanted) - len(off)} of {len(wanted)} packages are as {path.name} says",
        sep="\n",
    )
    sys.exit(bool(off))


def read(path: Path) -> dict[str, str]:
    """The versions that a list asks for: lines of the form ``name==version``."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    pairs = (line.split("==") for line in lines if line)
    return {name.strip(): exact.strip() for name, exact in pairs}


def difference(name: str, wanted: str) -> str | None:
    """What is off about a package. A build's label (``+cpu``) does not count."""
    try:
        found = version(name)
    except PackageNotFoundError:
        return f"{name}: missing, wanted {wanted}"
    return None if found.partition("+")[0] == wanted else f"{name}: {found}, wanted {wanted}"


if __name__ == "__main__":
    main()
