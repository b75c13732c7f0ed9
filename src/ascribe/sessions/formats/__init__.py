"""One format in each module; what they share is in ``ascribe.sessions.reading``."""
