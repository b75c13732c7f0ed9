"""What verl's workers load: agent loops that record turns, and what runs in engines.

Engines give fingerprints, and correct rollouts of rows without a token.
"""

from ascribe.engines.verl import engine, masked, tools  # noqa: F401
