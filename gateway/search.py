"""Keyword search over names and descriptions, held in memory. Pure: no Django, no network.

An exact name comes before a name that has the word in it, and that before a description that has it. Rare words weigh
more than common ones.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

# A word in a name is worth more than the same word in any description, however short that is.
NAME_WEIGHT: Final = 3.0
OWNER_WEIGHT: Final = 1.2
TEXT_WEIGHT: Final = 1.0
EXACT_BONUS: Final = 1_000.0
# What only begins like the word that was asked for.
PREFIX_SHARE: Final = 0.6
# What is another word for it.
MEANING_SHARE: Final = 0.5
MIN_PREFIX_CHARS: Final = 3
# What is left unsaid of a name weighs a little against it: `read_file` before `read_multiple_files`.
UNASKED_PENALTY: Final = 0.04
MAX_QUERY_WORDS: Final = 32
MAX_TEXT_CHARS: Final = 2_000

_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
_COMMON: Final = frozenset(
    _WORD.findall("""
    a all an and any are as at be by can do for from get got has have how i in into is it its me my of on one or please
    so some that the their them then there these this those to use used using want was what when where which who will
    with you your
    """)
)
# Words of requests and the words that tools are named with.
_SAID: Final[Mapping[str, tuple[str, ...]]] = {
    "add": ("create",),
    "change": ("edit", "update"),
    "delete": ("remove",),
    "directory": ("folder",),
    "fetch": ("read",),
    "find": ("search",),
    "folder": ("directory",),
    "forget": ("delete", "remove"),
    "list": ("show",),
    "look": ("search", "show"),
    "make": ("create",),
    "many": ("multiple",),
    "modify": ("edit", "update"),
    "new": ("create",),
    "open": ("read",),
    "remember": ("store", "add"),
    "remove": ("delete",),
    "rename": ("move",),
    "save": ("write",),
    "search": ("find",),
    "see": ("show", "view"),
    "several": ("multiple",),
    "show": ("list", "view"),
    "store": ("write", "create"),
    "undo": ("reset",),
    "view": ("show", "read"),
}


@dataclass(frozen=True)
class Document:
    """What can be found: `key` is the caller's own; `owner` a name it belongs to, such as its server's."""

    key: int
    name: str
    text: str = ""
    owner: str = ""


@dataclass(frozen=True)
class Hit:
    """A document's key and how well it fits; `exact` where the query is its very name."""

    key: int
    score: float
    exact: bool = False


class Index:
    """Made once from all documents; `search` takes time in proportion to how many hold one of the words."""

    def __init__(self, documents: Iterable[Document]) -> None:
        self._postings: dict[str, dict[int, float]] = defaultdict(dict)
        self._names: dict[str, list[int]] = defaultdict(list)
        self._lengths: dict[int, int] = {}
        for document in documents:
            self._add(document)
        self._words = sorted(self._postings)
        self._count = max(1, len(self._lengths))

    def __len__(self) -> int:
        return len(self._lengths)

    def _add(self, document: Document) -> None:
        name = words(document.name)
        self._lengths[document.key] = len(name)
        for full in {document.name.casefold(), f"{document.owner}/{document.name}".casefold()}:
            self._names[full].append(document.key)
        weights: dict[str, float] = {}
        for weight, found in (
            (TEXT_WEIGHT, words(document.text[:MAX_TEXT_CHARS])),
            (OWNER_WEIGHT, words(document.owner)),
            (NAME_WEIGHT, name),
        ):
            for word in found:
                weights[word] = max(weights.get(word, 0.0), weight)
        for word, weight in weights.items():
            self._postings[word][document.key] = weight

    def search(self, query: str) -> list[Hit]:
        """Whatever fits, the best first; nothing for a query without a word in it."""
        exact = set(self._names.get(query.strip().casefold(), ()))
        scores: dict[int, float] = defaultdict(float, dict.fromkeys(exact, EXACT_BONUS))
        for word in dict.fromkeys(words(query)[:MAX_QUERY_WORDS]):
            for key, score in self._scored(word).items():
                scores[key] += score
        for key in scores:
            scores[key] -= UNASKED_PENALTY * self._lengths[key]
        ranked = sorted(scores.items(), key=lambda item: (-item[1], item[0]))
        return [Hit(key, round(score, 3), key in exact) for key, score in ranked]

    def _scored(self, word: str) -> dict[int, float]:
        """Each document once for each word: by the best that it has for it."""
        best: dict[int, float] = {}
        for found, share in self._alike(word):
            postings = self._postings[found]
            worth = share * self._rarity(len(postings))
            for key, weight in postings.items():
                best[key] = max(best.get(key, 0.0), worth * weight)
        return best

    def _alike(self, word: str) -> Iterator[tuple[str, float]]:
        if word in self._postings:
            yield word, 1.0
        for other in _MEANING.get(word, ()):
            if other in self._postings:
                yield other, MEANING_SHARE
        if len(word) >= MIN_PREFIX_CHARS:
            for found in _beginning_with(self._words, word):
                if found != word:
                    yield found, PREFIX_SHARE

    def _rarity(self, documents: int) -> float:
        return 1.0 + math.log(1 + self._count / (1 + documents))


def words(text: str) -> list[str]:
    """The words of a name or a sentence, without their endings: split at `_ - . /`, spaces and changes of case."""
    found = [stem(word.casefold()) for word in _WORD.findall(text)]
    kept = [word for word in found if word not in _COMMON]
    # A query of nothing but common words is still one.
    return kept or found


@lru_cache(maxsize=20_000)
def stem(word: str) -> str:
    """A word without its ending: `files` and `file`, `creating` and `create`, `entities` and `entity` are one each."""
    if len(word) > 4 and word.endswith("ies"):
        word = word[:-3] + "y"
    elif len(word) > 4 and word.endswith(("ches", "shes", "sses", "xes")):
        word = word[:-2]
    elif len(word) > 3 and word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        if len(word) > len(ending) + 2 and word.endswith(ending):
            word = _single(word[: -len(ending)])
            break
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def _single(base: str) -> str:
    """`runn`, of `running`, is `run`; `call` and `pass` stay."""
    return base[:-1] if len(base) > 3 and base[-1] == base[-2] and base[-1] not in "ls" else base


def _beginning_with(ordered: Sequence[str], prefix: str) -> Iterator[str]:
    for position in range(bisect_left(ordered, prefix), len(ordered)):
        if not ordered[position].startswith(prefix):
            return
        yield ordered[position]


_MEANING: Final[Mapping[str, tuple[str, ...]]] = {
    stem(word): tuple(stem(other) for other in others) for word, others in _SAID.items()
}
