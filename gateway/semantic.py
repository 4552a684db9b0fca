"""Search by meaning, at Voyage: only where the operator gave MEAH_VOYAGE_API_KEY, for then texts leave this machine.

Queries and the names and descriptions of accepted tools are sent; vectors are kept in a local table, so that each text
is sent once. Whatever goes wrong, the caller searches by words and says so.
"""

from __future__ import annotations

import asyncio
import math
import operator
import os
from array import array
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from django.db import transaction

from audit.dbthread import in_db
from core.addresses import is_local_name
from core.canonical import digest
from core.redaction import redact
from core.secrets import name_secrets, read_secret

from .models import ToolVector
from .search import Document, Hit

KEY: Final = "MEAH_VOYAGE_API_KEY"
URL_VARIABLE: Final = "MEAH_VOYAGE_URL"
DEFAULT_URL: Final = "https://api.voyageai.com/v1/embeddings"
MODEL: Final = "voyage-3.5-lite"
DIMENSIONS: Final = 256
AT_ONCE: Final = 100
# For all of a search: what could not be embedded in this time is embedded by the next one.
LIMIT_S: Final = 8.0
MAX_TEXT_CHARS: Final = 2_000
MAX_ANSWER_BYTES: Final = 8 * 2**20
ROWS_AT_ONCE: Final = 500
_TAG: Final = "meah/vector/v1"


class NoSemanticSearchError(Exception):
    """Why it did not work, in words for whoever asked."""


def is_on() -> bool:
    """Whether texts go to Voyage. No other variable switches it on."""
    name_secrets([KEY])
    return read_secret(KEY) is not None


def url() -> str:
    """Raises NoSemanticSearchError where the operator's own address is neither https nor on this machine."""
    found = os.environ.get(URL_VARIABLE, "").strip() or DEFAULT_URL
    parts = urlsplit(found)
    if parts.scheme == "https" or (parts.scheme == "http" and is_local_name(parts.hostname or "")):
        return found
    raise NoSemanticSearchError(f"{URL_VARIABLE} is no https address")


class SemanticSearch:
    """One per process: the vectors of all texts that it has met."""

    def __init__(self) -> None:
        self._vectors: dict[str, array[float]] = {}
        self._working = asyncio.Lock()

    async def search(self, query: str, documents: Sequence[Document]) -> list[Hit]:
        """All documents, the nearest in meaning first. Raises NoSemanticSearchError."""
        try:
            async with asyncio.timeout(LIMIT_S), self._working:
                texts = {document.key: _text_of(document) for document in documents}
                await self._learn(texts.values())
                [wanted] = await _embedded([redact(query)], "query")
        except TimeoutError as error:
            raise NoSemanticSearchError("Voyage has not answered everything in time") from error
        keys = {document.key: _digest_of(texts[document.key]) for document in documents}
        return await asyncio.to_thread(_ranked, wanted, keys, self._vectors)

    async def _learn(self, texts: Iterable[str]) -> None:
        """The vectors of these texts: from the table, else from Voyage."""
        missing = {_digest_of(text): text for text in texts}
        for known in self._vectors.keys() & missing.keys():
            del missing[known]
        names = list(missing)
        for start in range(0, len(names), ROWS_AT_ONCE):
            found = await in_db(_stored, names[start : start + ROWS_AT_ONCE])
            self._vectors |= found
            for known in found:
                del missing[known]
        names = list(missing)
        for start in range(0, len(names), AT_ONCE):
            some = names[start : start + AT_ONCE]
            vectors = await _embedded([missing[name] for name in some], "document")
            made = dict(zip(some, vectors, strict=True))
            await in_db(_store, made)
            self._vectors |= made


def _text_of(document: Document) -> str:
    return redact(f"{document.owner} {document.name}: {document.text}"[:MAX_TEXT_CHARS])


def _digest_of(text: str) -> str:
    return digest(_TAG, f"{MODEL}/{DIMENSIONS}\0{text}".encode("utf-8", "surrogatepass"))


def _ranked(wanted: array[float], keys: dict[int, str], vectors: dict[str, array[float]]) -> list[Hit]:
    scores = [(sum(map(operator.mul, wanted, vectors[name])), key) for key, name in keys.items()]
    return [Hit(key, round(score, 3)) for score, key in sorted(scores, key=lambda found: (-found[0], found[1]))]


# -- the table --------------------------------------------------------------------------------------------------------


def _stored(names: list[str]) -> dict[str, array[float]]:
    rows = ToolVector.objects.filter(digest__in=names).values_list("digest", "vector")
    return {name: array("f", bytes(vector)) for name, vector in rows}


def _store(vectors: dict[str, array[float]]) -> None:
    rows = [ToolVector(digest=name, vector=vector.tobytes()) for name, vector in vectors.items()]
    with transaction.atomic():
        ToolVector.objects.bulk_create(rows, ignore_conflicts=True)


# -- Voyage -----------------------------------------------------------------------------------------------------------


async def _embedded(texts: list[str], kind: str) -> list[array[float]]:
    """Their vectors, of length one. Raises NoSemanticSearchError."""
    import httpx

    body = {"input": texts, "model": MODEL, "input_type": kind, "output_dimension": DIMENSIONS}
    headers = {"Authorization": f"Bearer {read_secret(KEY)}"}
    try:
        async with httpx.AsyncClient(timeout=LIMIT_S, follow_redirects=False, trust_env=False) as client:
            answer = await client.post(url(), json=body, headers=headers)
    except httpx.HTTPError as error:
        raise NoSemanticSearchError(f"Voyage could not be reached ({type(error).__name__})") from error
    if answer.status_code != 200:
        raise NoSemanticSearchError(f"Voyage answered with HTTP {answer.status_code}")
    if len(answer.content) > MAX_ANSWER_BYTES:
        raise NoSemanticSearchError("Voyage's answer is too large")
    try:
        rows = sorted(answer.json()["data"], key=operator.itemgetter("index"))
        vectors = [_unit(row["embedding"]) for row in rows]
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise NoSemanticSearchError("Voyage's answer can not be understood") from error
    if len(vectors) != len(texts):
        raise NoSemanticSearchError("Voyage's answer is incomplete")
    return vectors


def _unit(values: Any) -> array[float]:
    vector = array("f", values)
    length = math.sqrt(sum(value * value for value in vector))
    if len(vector) != DIMENSIONS or not length or not math.isfinite(length):
        raise ValueError("no vector")
    return array("f", (value / length for value in vector))
