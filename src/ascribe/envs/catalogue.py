"""Which environments and adapters there are, what they need, and whether it is installed.

An environment or adapter that needs packages has an extra of its own name.
"""

import re
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, distribution, requires

from ascribe.envs import ENVIRONMENTS
from ascribe.envs.adapters import ADAPTERS

REQUIREMENT = re.compile(r"^([\w.-]+).*;.*\bextra\s*==\s*['\"]([\w-]+)['\"]")


@dataclass(frozen=True)
class Entry:
    """One environment or adapter."""

    name: str
    kind: str
    """``environment`` or ``adapter``."""
    path: str
    extra: str | None
    """What to install: ``pip install 'ascribe[extra]'``; None if Ascribe alone is enough."""
    missing: tuple[str, ...]
    """Packages of the extra that are not installed."""

    @property
    def installed(self) -> bool:
        """Whether it can be used now."""
        return not self.missing

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {**asdict(self), "installed": self.installed}


def catalogue() -> list[Entry]:
    """Every environment, then every adapter."""
    extras = _extras()
    return [
        Entry(name, kind, path, name if name in extras else None, _missing(extras.get(name, [])))
        for kind, entries in (("environment", ENVIRONMENTS), ("adapter", ADAPTERS))
        for name, path in entries.items()
    ]


def _extras() -> dict[str, list[str]]:
    """The packages of each extra, read from the metadata of the installed Ascribe."""
    found: dict[str, list[str]] = {}
    for requirement in requires("ascribe") or []:
        if match := REQUIREMENT.match(requirement):
            # Metadata writes the names of extras with hyphens.
            found.setdefault(match[2].replace("-", "_"), []).append(match[1])
    return found


def _missing(packages: list[str]) -> tuple[str, ...]:
    return tuple(package for package in packages if not _is_installed(package))


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True
