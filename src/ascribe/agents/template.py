r"""Templates: text with named fields in braces.

``{task}`` is a field; ``{{`` and ``}}`` are braces. Fields are found once, in the template alone,
and their values are put in as they are: a value that holds ``{task}``, ``%s`` or ``\1`` stays so.
"""

import re
from collections.abc import Collection, Mapping
from functools import lru_cache

_BRACES = re.compile(r"\{\{|\}\}|\{(\w+)\}|[{}]")


@lru_cache(maxsize=512)
def pieces(template: str) -> tuple[tuple[str, str | None], ...]:
    """The template as pairs of plain text and the field after it; the last has no field.

    Raises:
        ValueError: for a brace that belongs to no field.
    """
    found: list[tuple[str, str | None]] = []
    plain, start = "", 0
    for brace in _BRACES.finditer(template):
        plain += template[start : brace.start()]
        start = brace.end()
        if brace[1] is not None:
            found.append((plain, brace[1]))
            plain = ""
        elif len(brace[0]) == 2:
            plain += brace[0][0]
        else:
            raise ValueError(
                f"a single {brace[0]!r} at character {brace.start()} of the template; "
                "write {{ or }} for a brace"
            )
    return (*found, (plain + template[start:], None))


def fields(template: str) -> frozenset[str]:
    """The names of the template's fields."""
    return frozenset(name for _, name in pieces(template) if name is not None)


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with its fields replaced by their values, in one pass."""
    return "".join(
        plain + (values[name] if name is not None else "") for plain, name in pieces(template)
    )


def check_fields(what: str, template: str, known: Collection[str]) -> None:
    """Refuse a template with a field that nobody will fill.

    Raises:
        ValueError: for an unknown field or a stray brace.
    """
    unknown = sorted(fields(template) - set(known))
    if unknown:
        raise ValueError(
            f"{what} has unknown fields: {', '.join(unknown)}; it may use: {', '.join(known)}"
        )
