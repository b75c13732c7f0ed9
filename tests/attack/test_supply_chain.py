"""What is installed and loaded is what was locked: packages, weights, the list of both."""

import hashlib
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCKS = sorted((ROOT / "scripts/locks").glob("*.txt"))


def test_every_locked_package_has_a_hash_and_no_address() -> None:
    assert {"adapters", "alfworld", "dev", "formats", "trainers", "trl", "verl-cpu"} == {
        p.stem for p in LOCKS
    }
    releases = sorted((ROOT / "scripts/locks/releases").glob("*.txt"))
    for path in LOCKS + releases:
        lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
        assert len(lines) > 50 or path in releases
        for line in lines:
            assert re.fullmatch(r"[a-z0-9-]+==[\w.+]+ --hash=sha256:[0-9a-f]{64}", line), line
        assert "://" not in path.read_text()


def wheel(folder: Path, text: str) -> str:
    """Write a package ``locked`` that holds one module, and return its SHA-256."""
    path = folder / "locked-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("locked.py", text)
        file.writestr("locked-1.0.dist-info/METADATA", "Name: locked\nVersion: 1.0\n")
        file.writestr("locked-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        file.writestr("locked-1.0.dist-info/RECORD", "")
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("program", "refusal"), [("pip", "DO NOT MATCH THE HASHES"), ("uv", "Hash mismatch")]
)
def test_a_file_with_another_hash_is_not_installed(
    tmp_path: Path, program: str, refusal: str
) -> None:
    pytest.importorskip(program, exc_type=ImportError)
    script = (ROOT / "scripts/make_env.sh").read_text()
    (options,) = re.findall(r'^options="(.*)"$', script, re.MULTILINE)
    assert script.count("--require-hashes") == script.count("--requirement ") == 4
    (tmp_path / "lock.txt").write_text(f"locked==1.0 --hash=sha256:{wheel(tmp_path, '')}\n")
    wheel(tmp_path, "import os  # not what was locked")
    command = [sys.executable, "-m", *("pip" if program == "pip" else "uv pip").split(), "install"]
    offline = ["--no-index", f"--find-links={tmp_path}", f"--target={tmp_path / 'target'}"]
    options = options.replace("--quiet", "")
    done = subprocess.run(
        [*command, *options.split(), *offline, "--require-hashes", "-r", tmp_path / "lock.txt"],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    assert refusal in done.stderr
    assert not list(tmp_path.rglob("locked.py"))


def packages(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, ROOT / "scripts/packages.py", *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


@pytest.fixture(scope="module")
def lock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lock of what is installed for this Python."""
    path = tmp_path_factory.mktemp("lock") / "here.txt"
    path.write_text("")
    names = re.findall(r"^(\S+): (\S+) is installed and not", packages("audit", path).stdout, re.M)
    lines = [f"{name}=={version} --hash=sha256:{'0' * 64}" for name, version in names]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda text: re.sub(r"^numpy==.*\n", "", text, flags=re.M), "numpy: .* and not locked"),
        (lambda text: text.replace("numpy==", "numpy==0."), r"numpy: .*, 0\..* is locked"),
        (lambda text: text + f"\nno-such==1 --hash=sha256:{'0' * 64}", "no-such: nothing is inst"),
        (lambda text: re.sub(r"(numpy==\S+) .*", r"\1", text), "numpy: locked without a hash"),
    ],
)
def test_what_is_not_as_locked_is_named(
    lock: Path, tmp_path: Path, change: object, problem: str
) -> None:
    before = packages("audit", lock).stdout.splitlines()[:-1]
    assert callable(change)
    (tmp_path / "lock.txt").write_text(change(lock.read_text()))
    done = packages("audit", tmp_path / "lock.txt")
    (line,) = set(done.stdout.splitlines()[:-1]) - set(before)
    assert done.returncode == 1
    assert re.match(problem, line), line


def test_the_sbom_lists_what_is_installed(lock: Path) -> None:
    bom = json.loads(packages("sbom", lock).stdout)
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    refs = [each["bom-ref"] for each in bom["components"]]
    assert len(refs) == len(set(refs)) == len(lock.read_text().splitlines())
    assert all(each["hashes"] and each["licenses"] for each in bom["components"])
    assert [each["ref"] for each in bom["dependencies"]] == refs
    assert set().union(*(each["dependsOn"] for each in bom["dependencies"])) <= set(refs)


def test_every_locked_package_has_its_licence_on_the_page() -> None:
    """After a change of the locks: scripts/packages.py licences."""
    page = (ROOT / "scripts/locks/licences.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| (\w[\w-]*) \| .+ \| (.+) \|$", page, re.M))
    locked = {"package": ["locks"]}
    for path in LOCKS:
        for name in re.findall(r"^([\w-]+)==", path.read_text(), re.M):
            locked.setdefault(name, []).append(path.stem)
    assert shown == {name: ", ".join(locks) for name, locks in locked.items()}
