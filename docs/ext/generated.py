"""Replace ``<!-- generate: NAME ARGUMENTS -->`` in a page by a table made from the source.

What the library knows about itself (problems, parameters, options, presets) is not typed a second
time, so it cannot rot. An unknown name stops the build.
"""

import re
from collections.abc import Callable
from typing import Any

import house
import lab_tables
import presets
import tables

TABLES: dict[str, Callable[..., str]] = {
    "agents": lab_tables.agents,
    "config-keys": lab_tables.config_keys,
    "dependencies": tables.dependencies,
    "engine-options": tables.engine_options,
    "environment-options": lab_tables.environment_options,
    "findings": lab_tables.findings,
    "house": house.drawing,
    "kinds": tables.kinds,
    "options": tables.options,
    "parameters": tables.parameters,
    "parser-problems": lab_tables.parser_problems,
    "preset-parameters": presets.parameters_table,
    "preset-rows": presets.rows_table,
    "preset-steps": presets.steps_table,
    "reasons": tables.reasons,
    "recipes": tables.recipes,
    "schema": tables.schema_block,
    "severities": tables.severities,
    "situations": tables.situations,
    "template-fields": lab_tables.template_fields,
}

MARK = re.compile(r"^<!-- generate: (.+) -->$", re.MULTILINE)


def fill(text: str) -> str:
    """The page with every mark replaced by its table."""

    def table(mark: re.Match[str]) -> str:
        name, *arguments = mark[1].split()
        return TABLES[name](*arguments)

    return MARK.sub(table, text)


def _on_read(_app: Any, _page: str, source: list[str]) -> None:
    source[0] = fill(source[0])


def setup(app: Any) -> dict[str, bool]:
    """Ask Sphinx to call us for every page."""
    app.connect("source-read", _on_read)
    return {"parallel_read_safe": True}
