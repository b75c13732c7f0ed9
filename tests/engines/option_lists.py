"""What the lists of an engine's options must hold, against the engine's own classes."""

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from importlib import import_module
from typing import Any

from ascribe.engines.options import Options
from tests.engines.untouched import UNTOUCHED


def names_of(source: str) -> list[str]:
    """The fields of a class, by its module and name."""
    module, _, name = source.rpartition(".")
    found: Any = getattr(import_module(module), name)
    if is_dataclass(found):
        return [field.name for field in fields(found) if not field.name.startswith("_target")]
    if hasattr(found, "model_fields"):
        return list(found.model_fields)
    return list(found.__chz_fields__)


def check_lists(lists: Iterable[Options]) -> None:
    """Each list knows the fields of its class, and each name that it explains is a field.

    What follows a comma in ``source`` is a remark; a name with a dot is that of another list.
    """
    found = []
    for options in lists:
        source, _, remark = options.source.partition(",")
        names = names_of(source)
        # A list for some configurations holds what differs there.
        untouched = (*options.untouched, *UNTOUCHED.get(source, "").split())
        if not remark.startswith(" with "):
            assert set(options.unknown(names)) <= set(untouched), source
            found.append(source)
        known = {*options.applied, *options.no_effect, *options.refused, *untouched}
        # An option that is untouched may be of one tested release alone.
        own = {name for name in known.difference(untouched) if "." not in name}
        assert own <= set(names), f"{source} has no {sorted(own - set(names))}"
        answers = (options.applied, options.no_effect, options.refused, untouched)
        assert sum(map(len, answers)) == len(known), f"{source}: a name is in two lists"
    assert found
    assert len(found) == len(set(found))
