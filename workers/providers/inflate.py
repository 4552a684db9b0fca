"""Content-Encoding undone by what the bytes are, not by what the header claims, and never past a cap."""

from __future__ import annotations

import zlib
from typing import Any, Final

_GZIP_MAGIC: Final = b"\x1f\x8b"
_GZIP: Final = zlib.MAX_WBITS | 16
_MAX_LAYERS: Final = 2
_TEXT_STARTS: Final = b'{[<":de \t\r\n\xef'


class BodyTooLargeError(Exception):
    """The decoded body passed the cap."""


class BrokenEncodingError(Exception):
    """The body is compressed, and damaged."""


class Inflater:
    """Feed it raw bytes, get decoded ones; raises BodyTooLargeError before more than `limit_bytes` exist."""

    def __init__(self, content_encoding: str, *, limit_bytes: int) -> None:
        deflated = "deflate" in content_encoding.lower()
        self._layers = [_Layer(deflated=deflated, limit_bytes=limit_bytes) for _ in range(_MAX_LAYERS)]
        self._left = limit_bytes

    def feed(self, data: bytes) -> bytes:
        for layer in self._layers:
            data = layer.feed(data)
        return self._counted(data)

    def finish(self) -> bytes:
        """What was held back to look at it."""
        data = b""
        for layer in self._layers:
            data = layer.feed(data) + layer.finish()
        return self._counted(data)

    def _counted(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise BodyTooLargeError
        return data


class _Layer:
    def __init__(self, *, deflated: bool, limit_bytes: int) -> None:
        self._deflated = deflated
        self._left = limit_bytes
        self._head = b""
        self._decided = False
        self._zlib: Any = None

    def feed(self, data: bytes) -> bytes:
        if self._decided:
            return self._inflate(data)
        self._head += data
        return self._begin() if len(self._head) >= len(_GZIP_MAGIC) else b""

    def finish(self) -> bytes:
        return b"" if self._decided else self._begin()

    def _begin(self) -> bytes:
        self._decided = True
        head, self._head = self._head, b""
        if (wbits := self._wbits(head)) is None:
            return head
        self._zlib = zlib.decompressobj(wbits)
        try:
            return self._inflate(head)
        except BrokenEncodingError:
            if head.startswith(_GZIP_MAGIC):
                raise
            self._zlib = None
            return head

    def _wbits(self, head: bytes) -> int | None:
        if head.startswith(_GZIP_MAGIC):
            return _GZIP
        if not self._deflated or len(head) < len(_GZIP_MAGIC) or head[0] in _TEXT_STARTS:
            return None
        return zlib.MAX_WBITS if int.from_bytes(head[:2]) % 31 == 0 else -zlib.MAX_WBITS

    def _inflate(self, data: bytes) -> bytes:
        if self._zlib is None:
            return data
        out = b""
        while data and not (self._zlib.eof and not data.startswith(_GZIP_MAGIC)):
            if self._zlib.eof:
                self._zlib = zlib.decompressobj(_GZIP)
            out += self._bounded(data)
            data = self._zlib.unused_data
        return out

    def _bounded(self, data: bytes) -> bytes:
        try:
            piece: bytes = self._zlib.decompress(data, self._left + 1)
        except zlib.error:
            raise BrokenEncodingError from None
        self._left -= len(piece)
        if self._left < 0:
            raise BodyTooLargeError
        return piece
