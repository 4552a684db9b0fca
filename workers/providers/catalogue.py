"""Lists of models, in every shape that servers give them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from workers.providers.base import ModelList

_LISTS: Final = ("data", "models", "items", "results")
_IDS: Final = ("id", "key", "name", "model")
_CONTEXT: Final = ("context_length", "context_window", "max_context_length", "max_model_len", "inputTokenLimit")
_MAX_ID_CHARS: Final = 200
_MAX_MODELS: Final = 20_000


def models_of(value: Any) -> ModelList | None:
    """The models of one page, or None where the document is no list of models."""
    entries = _entries(value)
    if entries is None:
        return None
    ids: list[str] = []
    contexts: dict[str, int] = {}
    prices: dict[str, tuple[str, str]] = {}
    for entry in entries[:_MAX_MODELS]:
        if not (name := _id(entry)) or name in ids:
            continue
        ids.append(name)
        if context := _context(entry):
            contexts[name] = context
        if price := _price(entry):
            prices[name] = price
    named = sum(1 for entry in entries if _id(entry))
    return ModelList(tuple(ids), contexts, len(entries) - named, prices=prices)


def joined(pages: list[ModelList]) -> ModelList:
    """Several pages as one list."""
    return ModelList(
        ids=tuple(dict.fromkeys(name for page in pages for name in page.ids)),
        context_lengths={name: size for page in pages for name, size in page.context_lengths.items()},
        skipped=sum(page.skipped for page in pages),
        prices={name: price for page in pages for name, price in page.prices.items()},
    )


def next_page(url: str, value: Any) -> str | None:
    """The URL of the page after this one, on the same address, or None."""
    if not isinstance(value, dict):
        return None
    token = value.get("nextPageToken") or value.get("next_page_token")
    if isinstance(token, str) and token:
        return _with_query(url, pageToken=token)
    last = value.get("last_id")
    if value.get("has_more") is True and isinstance(last, str) and last:
        return _with_query(url, after=last, after_id=last)
    return None


def _with_query(url: str, **more: str) -> str:
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query, keep_blank_values=True)) | more
    return urlunsplit(parts._replace(query=urlencode(query)))


def _entries(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        return None
    found = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
    if found is None and value.get("object") == "list":
        return []
    return found


def _id(entry: Any) -> str:
    if isinstance(entry, str):
        return _fitting(entry)
    if not isinstance(entry, dict):
        return ""
    names = (entry.get(name) for name in _IDS)
    return next((_fitting(name) for name in names if isinstance(name, str) and name.strip()), "")


def _fitting(name: str) -> str:
    """The id; an empty string where it is too long for one: cut, it would name nothing, and might be half a key."""
    name = name.strip()
    return name if len(name) <= _MAX_ID_CHARS else ""


def _context(entry: Any) -> int | None:
    """The model's window in tokens: of what is loaded first, since that is what counts."""
    return next((size for size in _sizes(entry) if type(size) is int and size > 0), None)


def _sizes(entry: Any) -> Iterator[Any]:
    if not isinstance(entry, dict):
        return
    loaded = entry.get("loaded_instances")
    for instance in loaded if isinstance(loaded, list) else []:
        config = instance.get("config") if isinstance(instance, dict) else None
        yield config.get("context_length") if isinstance(config, dict) else None
    yield entry.get("loaded_context_length")
    for name in _CONTEXT:
        yield entry.get(name)
    top = entry.get("top_provider")
    yield top.get("context_length") if isinstance(top, dict) else None


def _price(entry: Any) -> tuple[str, str] | None:
    pricing = entry.get("pricing") if isinstance(entry, dict) else None
    if not isinstance(pricing, dict):
        return None
    sent, said = pricing.get("prompt"), pricing.get("completion")
    return (sent, said) if isinstance(sent, str) and isinstance(said, str) and sent and said else None
