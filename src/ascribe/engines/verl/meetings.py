"""Where the members of a group meet: each brings its answer, and hears what all have answered.

verl runs the members of a prompt as tasks of one event loop, each by itself. A correction shows
answers of other members, so it must wait until all have answered or failed.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from ascribe.engines.corrections import Answer


@dataclass
class Meeting:
    """The members of one group."""

    awaited: int
    """How many have not come yet."""
    found: list[Answer] = field(default_factory=list)
    complete: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Meetings:
    """The meetings of a process, by a name that all members of a group know."""

    running: dict[str, Meeting] = field(default_factory=dict)

    async def meet(self, name: str, size: int, found: Sequence[Answer]) -> list[Answer]:
        """Bring what one member has to say, and wait until all ``size`` members have come.

        Returns:
            What all of them brought.
        """
        meeting = self.come(name, size, found)
        await meeting.complete.wait()
        return meeting.found

    def come(self, name: str, size: int, found: Sequence[Answer] = ()) -> Meeting:
        """Come without waiting for the others; a member that failed has nothing to say."""
        meeting = self.running.setdefault(name, Meeting(size))
        meeting.found += found
        meeting.awaited -= 1
        if not meeting.awaited:
            del self.running[name]
            meeting.complete.set()
        return meeting
