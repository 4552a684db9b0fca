from __future__ import annotations

import pytest

from core.ids import APPROVAL, CALL, METHOD_RUN, PROCESS, TOKEN, WORKER, is_id, new_id


@pytest.mark.parametrize("prefix", [WORKER, APPROVAL, CALL, METHOD_RUN, TOKEN, PROCESS])
def test_an_id_is_its_prefix_and_20_hexadecimal_digits(prefix: str) -> None:
    made = {new_id(prefix) for _ in range(1000)}
    assert len(made) == 1000
    assert all(is_id(prefix, one) and len(one) == len(prefix) + 20 for one in made)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "w_",
        "w_" + "0" * 19,
        "w_" + "0" * 21,
        "w_" + "g" * 20,
        "c_" + "0" * 20,
        "w_" + "A" * 20,
        "w_" + "0" * 20 + "\n",
    ],
)
def test_what_is_no_id_is_not_taken_for_one(text: str) -> None:
    assert not is_id(WORKER, text)
