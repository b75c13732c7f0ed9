"""Stop the build if a public name of ``ascribe`` lacks a docstring or a place on the API page."""

from typing import Any

from sphinx.errors import SphinxError
from sphinx.pycode import ModuleAnalyzer

import ascribe

PAGE = "api"
CONSTANTS = ("ascribe.estimators", "ascribe.steps.select")
"""Modules with public constants."""


def undocumented(names: list[str]) -> list[str]:
    """The names without a docstring of their own."""
    # A constant has its docstring in the source, on the line under it.
    analyzers = map(ModuleAnalyzer.for_module, CONSTANTS)
    constants = {name for analyzer in analyzers for _, name in analyzer.find_attr_docs()}
    return [
        name
        for name in names
        if name not in constants
        and not (callable(getattr(ascribe, name)) and getattr(ascribe, name).__doc__)
    ]


def _on_check(_app: Any, env: Any) -> None:
    objects = env.get_domain("py").objects
    placed = {name for name, entry in objects.items() if entry.docname == PAGE}
    absent = [name for name in ascribe.__all__ if f"ascribe.{name}" not in placed]
    said = [f"{name}: not on the page {PAGE}" for name in absent]
    said += [f"{name}: no docstring" for name in undocumented(ascribe.__all__)]
    if said:
        raise SphinxError("public names of ascribe: " + "; ".join(said))


def setup(app: Any) -> dict[str, bool]:
    """Ask Sphinx to call us once all pages are read."""
    app.connect("env-check-consistency", _on_check)
    return {"parallel_read_safe": True}
