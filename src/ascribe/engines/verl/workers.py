"""What verl's workers load: agent loops that record tool calls, and engines with fingerprints."""

from ascribe.engines.verl import engine, tools  # noqa: F401
