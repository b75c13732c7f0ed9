"""Texts of tokens: what a tokenizer's ``decode`` gives, in less time where that is possible."""

from typing import Any

from ascribe.sessions.sequences import Decoder

PRINTED = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
"""Bytes that a byte-level vocabulary writes as the character of the same number."""


def decoder(tokenizer: Any) -> Decoder:
    """``tokenizer.decode``, or a function that gives the same texts faster.

    There is one where tokens are pieces of bytes: it joins them. Whether they are is tried out: the
    whole vocabulary, read as one text, must come out the same.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        plain: Decoder = tokenizer.decode
        return plain
    others = (byte for byte in range(0x100) if byte not in PRINTED)
    byte_of = {chr(byte): byte for byte in PRINTED}
    byte_of |= {chr(0x100 + place): byte for place, byte in enumerate(others)}

    def piece(token: str | None) -> bytes:
        try:
            return bytes(byte_of[character] for character in token or "")
        except KeyError:  # an added token stands for itself
            return str(token).encode()

    ids = range(1 + max(backend.get_vocab().values()))
    piece_of = list(map(piece, map(backend.id_to_token, ids))).__getitem__

    def decode(ids: list[int]) -> str:
        try:
            return b"".join(map(piece_of, ids)).decode(errors="replace")
        except IndexError:  # no token has this number, although the model does
            return str(tokenizer.decode(ids))

    same: bool = decode(list(ids)) == tokenizer.decode(list(ids))
    return decode if same else tokenizer.decode
