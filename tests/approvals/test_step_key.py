from __future__ import annotations

import itertools
import re
from typing import Any

from approvals.step_key import binding, same_call, step_key

STEP = {"principal": "agent:a", "run": "r1", "step": "s1", "server": "crm", "tool": "t", "arguments": "{}"}
SAME = {"server": "crm", "tool": "t", "arguments": "{}"}
BINDING = {"server": "crm", "tool": "t", "pin": "p", "arguments": "{}", "principal": "agent:a"}


def test_a_step_key_is_the_same_for_the_same_step() -> None:
    assert step_key(**STEP) == step_key(**STEP)
    assert re.fullmatch("[0-9a-f]{64}", step_key(**STEP))


def test_every_part_counts() -> None:
    makers: list[tuple[Any, dict[str, str]]] = [(step_key, STEP), (same_call, SAME), (binding, BINDING)]
    for make, parts in makers:
        changed = [make(**parts | {name: parts[name] + "x"}) for name in parts]
        assert len({make(**parts), *changed}) == len(parts) + 1


def test_no_part_can_flow_into_the_next() -> None:
    texts = ["", "a", "ab", "b", "\0", "a\0", "\0b", "é", "1", "11"]
    keys = {
        step_key(**STEP | {"run": run, "step": step, "server": server})
        for run, step, server in itertools.product(texts, repeat=3)
    }
    assert len(keys) == len(texts) ** 3


def test_keys_of_different_uses_never_meet() -> None:
    assert len({step_key(**STEP), same_call(**SAME), binding(**BINDING)}) == 3


def test_the_keys_are_pinned() -> None:
    """Stored rows and downstream servers hold them: a change of their making would break every open retry."""
    assert step_key(**STEP) == "671567fb163b99de875e6eac8aff79bca4fa81aeb2d03a180705b1b425925f96"
    assert same_call(**SAME) == "ef22d9c9e121837d1f93fd0c0d9a169dfd2099ad5a480aca1b4e6265bd3b5970"
    assert binding(**BINDING) == "3d11c05de885bd18576aced0fa5cb45bbf20537f1f3dfaac5e3bd60922f5f88b"
