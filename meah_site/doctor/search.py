"""Whether texts go out for the search of tools."""

from __future__ import annotations

from collections.abc import Iterator

from gateway import semantic
from meah_site.doctor.findings import Finding, info, ok, warning


def examine() -> Iterator[Finding]:
    if not semantic.is_on():
        yield ok("search", "by words, on this machine")
        return
    try:
        place = semantic.url()
    except semantic.NoSemanticSearchError as error:
        yield warning("search", f"{semantic.KEY} is set, but {error}", f"Correct {semantic.URL_VARIABLE}, or unset it.")
        return
    yield info(
        "search",
        f"{semantic.KEY} is set: queries of agents, and names and descriptions of tools, are sent to {place}",
        "Unset it to search by words on this machine.",
    )
