"""Messages between a pool and its own worker processes: bytes with their length, on a socket."""

import socket
import struct
from contextlib import suppress

LENGTH = struct.Struct("<Q")
CHUNK = 2**18

READY = b"ready"
"""A worker's first message. Then come answers, each a pickle."""
STOP = b""
"""A pool's last message. Before it come the specification and orders, each a pickle."""


class Channel:
    """One end of a socket. At the other end is a process that we trust, but it may die or stop."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end
        self._buffer = bytearray()

    def fileno(self) -> int:
        """The descriptor, to wait on."""
        return self._socket.fileno()

    def send(self, message: bytes, limit: float | None = None) -> None:
        """Send a message.

        Raises:
            TimeoutError: if the other end does not take it within so many seconds.
            EOFError: if the other end is gone.
        """
        self._socket.settimeout(limit)
        try:
            self._socket.sendall(LENGTH.pack(len(message)) + message)
        except ConnectionError:
            raise EOFError("the other end is gone") from None

    def receive(self, limit: float | None = None) -> bytes:
        """Wait for the next message; raises what ``send`` raises."""
        self._socket.settimeout(limit)
        while (message := self._whole()) is None:
            self._fill()
        return message

    def arrived(self) -> list[bytes]:
        """The messages that are here, without waiting; EOFError if no more will come."""
        self._socket.settimeout(0)
        with suppress(BlockingIOError):
            self._fill()
        messages = []
        while (message := self._whole()) is not None:
            messages.append(message)
        return messages

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _fill(self) -> None:
        try:
            chunk = self._socket.recv(CHUNK)
        except ConnectionError:
            chunk = b""
        if not chunk:
            raise EOFError("the other end is gone")
        self._buffer += chunk

    def _whole(self) -> bytes | None:
        """The first message in the buffer, once all of it is there."""
        if len(self._buffer) < LENGTH.size:
            return None
        (length,) = LENGTH.unpack_from(self._buffer)
        end = LENGTH.size + length
        if len(self._buffer) < end:
            return None
        message = bytes(memoryview(self._buffer)[LENGTH.size : end])
        del self._buffer[:end]
        return message
