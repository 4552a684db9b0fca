"""Every row of the reference's quirk catalogue, replayed by a real server."""

from __future__ import annotations

import json

import pytest

from tests.fake_provider import FakeProvider
from tests.workers.providers.quirks import Met, Row, Want, meet_all
from tests.workers.providers.rows_answers import BODIES, FINISHES, SHAPES
from tests.workers.providers.rows_errors import ERRORS, MEANINGS
from tests.workers.providers.rows_status import DELAYS, STATUSES
from tests.workers.providers.rows_streams import STREAMS

ROWS = [*ERRORS, *MEANINGS, *STATUSES, *DELAYS, *SHAPES, *FINISHES, *BODIES, *STREAMS]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Met]:
    """What came of every row; they are all asked at once, which is much faster than one by one."""
    with FakeProvider() as fake:
        return meet_all(fake, ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_quirk_becomes_what_the_reference_says(outcomes: dict[str, Met], row: Row) -> None:
    met = outcomes[row.name]
    if row.want.code:
        check_failure(met, row.want)
    else:
        check_completion(met, row.want)
    assert met.asks == row.want.expected_asks


def check_failure(met: Met, want: Want) -> None:
    failure = met.failure
    assert failure is not None, f"it succeeded: {met.completion}"
    assert (failure.code, failure.reason) == (want.code, want.reason), failure.as_dict()
    if want.retryable is not None:
        assert failure.retryable is want.retryable
    assert want.says in failure.message
    assert want.hint in failure.hint
    assert want.details.items() <= failure.details.items()
    assert want.partial is None or failure.partial_text == want.partial
    check_fit_to_show(json.dumps(failure.as_dict(), ensure_ascii=False))


def check_fit_to_show(text: str) -> None:
    assert len(text) < 4_000
    assert not any(hidden in text for hidden in ("\u202e", "\u200b", "sk-proj-Zz9Yy8", "<script", "alert("))


def check_completion(met: Met, want: Want) -> None:
    done = met.completion
    assert done is not None, f"it failed: {met.failure and met.failure.as_dict()}"
    assert done.text == want.text
    assert (done.finish_reason, done.finish_reason_raw, done.truncated) == (want.finish, want.raw, want.truncated)
    if want.usage != "any":
        got = done.usage and (done.usage.input_tokens, done.usage.output_tokens, done.usage.reasoning_tokens)
        assert got == want.usage
    assert done.resolved_model == want.model
    assert want.note in " ".join(done.notes)
    assert "".join(met.pieces) == done.text or want.note
