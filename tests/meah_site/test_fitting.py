"""Whatever a server answered reaches the agent: as it was where the client's protocol has room for it, else as text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from mcp_types.methods import serialize_server_result

from meah_site.fitting import fitted

OLD, NEW = "2025-11-25", "2026-07-28"
ERAS = pytest.mark.parametrize("version", [OLD, NEW])
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
WHOLE: dict[str, Any] = {
    "content": [
        {"type": "text", "text": "a", "annotations": {"audience": ["user"], "priority": 0.5}, "_meta": {"n": 1}},
        IMAGE,
        {"type": "audio", "data": "aGk=", "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "test://a", "text": "t", "mimeType": "text/plain"}},
        {"type": "resource", "resource": {"uri": "test://b", "blob": "aGk="}},
        {"type": "resource_link", "uri": "test://c", "name": "c", "size": 3},
    ],
    "structuredContent": {"a": None, "b": [1, None, 2.5]},
    "_meta": {"k": {"v": [1]}},
    "isError": False,
}


def sent(result: dict[str, Any], version: str) -> dict[str, Any]:
    """As the client gets it: what the SDK makes of it on its way out."""
    return serialize_server_result("tools/call", version, fitted(result, version))


def texts(result: dict[str, Any]) -> str:
    return "\n".join(block["text"] for block in result["content"] if block["type"] == "text")


@ERAS
def test_what_fits_passes_as_it_was(version: str) -> None:
    out = sent(WHOLE, version)
    out.pop("resultType", None)
    assert out == WHOLE
    assert fitted(WHOLE, version)["content"] is WHOLE["content"]


ODD: list[tuple[dict[str, Any], str]] = [
    ({"content": [{"type": "hologram", "voxels": [7, 8]}]}, '{"type": "hologram", "voxels": [7, 8]}'),
    ({"content": [{"text": "no type"}]}, "no type"),
    ({"content": [{"type": "text", "text": 5}]}, '"text": 5'),
    ({"content": [{"type": "image"}]}, '"image"'),
    ({"content": ["bare words"]}, "bare words"),
    ({"content": "bare words"}, "bare words"),
    ({"content": [None, 5]}, "5"),
    ({"content": [], "_meta": "odd meta"}, "odd meta"),
    ({"toolResult": {"of": "2024"}}, '"2024"'),
    ({"content": [{"type": "resource", "resource": {"uri": "test://a"}}]}, "test://a"),
]


@ERAS
@pytest.mark.parametrize(("odd", "word"), ODD)
def test_what_does_not_fit_is_text_and_takes_nothing_with_it(odd: dict[str, Any], word: str, version: str) -> None:
    has_blocks = isinstance(odd.get("content"), list)
    beside = {"content": [IMAGE, *odd["content"]]} if has_blocks else {}
    out = sent({"structuredContent": {"kept": 1}, **odd, **beside, "isError": True}, version)
    assert word in texts(out)
    assert out["structuredContent"] == {"kept": 1} and out["isError"] is True
    assert (IMAGE in out["content"]) is has_blocks


@ERAS
def test_an_annotation_that_nobody_knows_does_not_make_an_image_text(version: str) -> None:
    out = sent({"content": [IMAGE | {"annotations": {"audience": ["nobody"], "priority": 7}}]}, version)
    assert out["content"] == [IMAGE]


@pytest.mark.parametrize("value", [[1, 2], "text", 5])
def test_structured_content_that_is_no_object_is_text_for_the_older_era_alone(value: Any) -> None:
    result = {"content": [IMAGE], "structuredContent": value}
    assert sent(result, NEW)["structuredContent"] == value
    old = sent(result, OLD)
    assert "structuredContent" not in old
    assert old["content"][0] == IMAGE and texts(old) == (value if isinstance(value, str) else json.dumps(value))


@ERAS
def test_a_result_without_content_has_none(version: str) -> None:
    for result in ({"structuredContent": {"a": 1}}, {"content": None, "structuredContent": {"a": 1}}):
        out = sent(result, version)
        assert (out["content"], out["structuredContent"]) == ([], {"a": 1})


def test_a_question_stays_one() -> None:
    asked = {"resultType": "input_required", "requestState": "s", "inputRequests": {}}
    assert fitted(asked, NEW) == asked
