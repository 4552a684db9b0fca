"""Reasoning told apart from the answer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.providers.thinking import ThinkSplitter, without_orphan


def split(*pieces: str, cut: bool = False) -> tuple[str, str]:
    splitter = ThinkSplitter()
    text = "".join([*map(splitter.feed, pieces), splitter.finish(cut=cut)])
    return text, splitter.reasoning


TEXTS = {
    "no tag": ("  Hello\n", "  Hello\n", ""),
    "at the start": ("<think>hm</think>Hello", "Hello", "hm"),
    "white space around": ("\n <think>\nhm\n</think>\n\n Hello", "Hello", "\nhm\n"),
    "two in a row": ("<think>a</think>\n<think>b</think>\nHello", "Hello", "ab"),
    "between paragraphs": ("Hello\n<think>hm</think>\nthere", "Hello\n\nthere", "hm"),
    "empty": ("<think></think>Hello", "Hello", ""),
    "another name inside": ("<think>a <reasoning> b</think>Hello", "Hello", "a <reasoning> b"),
    "kimi": ("◁think▷hm◁/think▷Hello", "Hello", "hm"),
    "seed": ("<seed:think>hm</seed:think>Hello", "Hello", "hm"),
    "case": ("<Think>hm</THINK>Hello", "Hello", "hm"),
    "in the middle of a line": ("Use <think>x</think> tags", "Use <think>x</think> tags", ""),
    "in a code fence": ("```\n<think>x</think>\n```\n", "```\n<think>x</think>\n```\n", ""),
    "after a code fence": ("```\nx\n```\n<think>x</think>\nHello", "```\nx\n```\n\nHello", "x"),
    "fence after blank lines": ("a\n\n\n```\n<think>\n```", "a\n\n\n```\n<think>\n```", ""),
    "not quite a tag": ("<thinker>Hello", "<thinker>Hello", ""),
    "begun and not ended": ("Hello\n<thin", "Hello\n<thin", ""),
    "unclosed at the start": ("<think>never", "", "never"),
    "unclosed in the middle": ("Hello\n<think>\nis a tag", "Hello\n<think>\nis a tag", ""),
}


@pytest.mark.parametrize(("text", "said", "thought"), TEXTS.values(), ids=TEXTS)
def test_an_answer_is_split_however_it_is_cut(text: str, said: str, thought: str) -> None:
    assert split(text) == (said, thought)
    assert split(*text) == (said, thought)
    for at in range(len(text)):
        assert split(text[:at], text[at:]) == (said, thought)


def test_an_unclosed_block_in_the_middle_of_a_cut_answer_is_reasoning() -> None:
    assert split("Hello\n<think>hm, so", cut=True) == ("Hello\n", "hm, so")


PARTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<thi", "nk>", "```", "~~~", "\n", " ", "Hi", "<", ">", "◁think▷", "İ"]),
    max_size=30,
)


@given(PARTS, st.booleans())
def test_cutting_differently_changes_nothing(parts: list[str], cut: bool) -> None:
    whole = "".join(parts)
    assert split(*parts, cut=cut) == split(whole, cut=cut) == split(*whole, cut=cut)


@given(PARTS)
def test_nothing_is_invented_and_little_is_lost(parts: list[str]) -> None:
    whole = "".join(parts)
    text, thought = split(whole)
    assert len(text) + len(thought) <= len(whole)
    if "think" not in whole:
        assert text == whole or not whole.strip()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("hm\n</think>\nHello", ("Hello", "hm")),
        ("</think>\n\nHello", ("Hello", "")),
        ("the tag </think> ends it", ("the tag </think> ends it", "")),
        ("```\n</think>\n```", ("```\n</think>\n```", "")),
        ("a\n</think>\nb\n</think>\nc", ("a\n</think>\nb\n</think>\nc", "")),
    ],
)
def test_an_orphaned_closing_tag_ends_the_reasoning(text: str, wanted: tuple[str, str]) -> None:
    assert without_orphan(text) == wanted
