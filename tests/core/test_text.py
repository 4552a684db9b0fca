from __future__ import annotations

import pytest

from core.text import has_hidden, one_line, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("pay\u202e001", "pay⟨U+202E⟩001"),
        ("a\u200bb\u200db", "a⟨U+200B⟩b⟨U+200D⟩b"),
        ("\ufefftext", "⟨U+FEFF⟩text"),
        ("a\x1b[31mred", "a⟨U+001B⟩[31mred"),
        ("a\rb\x00\x7f\x9b", "a⟨U+000D⟩b⟨U+0000⟩⟨U+007F⟩⟨U+009B⟩"),
        ("line\u2028par\u2029", "line⟨U+2028⟩par⟨U+2029⟩"),
        ("tag\U000e0041\U000e007f", "tag⟨U+E0041⟩⟨U+E007F⟩"),
        ("\u2066x\u2069\u061c\u200e", "⟨U+2066⟩x⟨U+2069⟩⟨U+061C⟩⟨U+200E⟩"),
        ("soft\u00adhyphen\u2060", "soft⟨U+00AD⟩hyphen⟨U+2060⟩"),
        ("\u3164\uffa0\u115f", "⟨U+3164⟩⟨U+FFA0⟩⟨U+115F⟩"),
        ("a\ufe0f\U000e0100", "a⟨U+FE0F⟩⟨U+E0100⟩"),
        ("lone \ud800", "lone ⟨U+D800⟩"),
    ],
)
def test_hidden_characters_are_shown_as_marks(text: str, shown: str) -> None:
    assert visible(text) == shown
    assert has_hidden(text)
    assert not has_hidden(shown)
    assert visible(shown) == shown


@pytest.mark.parametrize("text", ["", "plain", "two\nlines\tand a tab", "Grüße, 漢字, عربى, 😀", "no\u00a0break"])
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == text
    assert not has_hidden(text)


@pytest.mark.parametrize(
    ("text", "limit", "line"),
    [
        ("short", 10, "short"),
        ("  two\n\tlines \r\n here ", 40, "two lines here"),
        ("exactly ten", 11, "exactly ten"),
        ("one too many", 11, "one too ma…"),
        ("cut at a space here", 8, "cut at…"),
        ("a\u202eb", 20, "a⟨U+202E⟩b"),
        ("x" * 1_000_000, 5, "xxxx…"),
        ("anything", 0, "…"),
        ("", 5, ""),
    ],
)
def test_one_line_fits_its_limit(text: str, limit: int, line: str) -> None:
    assert one_line(text, limit) == line
    assert len(one_line(text, limit)) <= max(limit, 1)
