"""Search by meaning, against a Voyage of our own on loopback: what is sent, what is kept, what happens without it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from audit.dbthread import in_db
from gateway import observations, schemas, semantic
from gateway.lazy import Discovery
from gateway.models import Exposure, ToolVector
from meah_site.doctor import search as doctor
from tests.gateway.support import accept_everything, make_server, raw

AGENT = "agent:test"
SECRET = "pa-secret-of-the-tests-1234567890"
TOOLS = [
    {"name": "purge_cache", "description": "Empties it.", "inputSchema": {"type": "object"}},
    {"name": "send_letter", "description": "Posts a letter.", "inputSchema": {"type": "object"}},
]
# What this Voyage takes for the same.
MEANINGS = {"letter": 0, "correspondence": 0, "cache": 1}


class Voyage:
    """Answers as Voyage does; `fail` is a status to answer with instead."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.fail = 0
        self.url = ""


@contextmanager
def voyage() -> Iterator[Voyage]:
    state = Voyage()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            state.bodies.append(body)
            state.keys.append(self.headers["Authorization"])
            if state.fail == 1:
                answer = b'{"data": [{"index": 0, "embedding": ["x"]}]}'
            else:
                data = [{"index": at, "embedding": _vector(text)} for at, text in enumerate(body["input"])]
                answer = json.dumps({"data": list(reversed(data))}).encode()
            self.send_response(state.fail if state.fail > 1 else 200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_address[1]}/v1/embeddings"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


def _vector(text: str) -> list[float]:
    vector = [0.01] * semantic.DIMENSIONS
    for word, place in MEANINGS.items():
        if word in text.lower():
            vector[place] = 1.0
    return vector


def set_up() -> None:
    server = make_server(raw("post"), exposure=Exposure.LAZY)
    observations.compare(server.launch(), json.loads(json.dumps(TOOLS)))
    accept_everything("post")


def discover(one: Discovery, query: str) -> Any:
    return one.discover(schemas.parse(schemas.DISCOVER, {"query": query, "kind": "tool"}), principal=AGENT)


def names(answer: Any) -> list[str]:
    return [tool["tool"] for tool in answer["tools"]]


def test_with_the_key_tools_are_found_by_meaning_and_each_text_is_sent_once(
    home: Any, run: Any, monkeypatch: Any
) -> None:
    async def scenario(fake: Voyage) -> None:
        await in_db(set_up)
        answer = await discover(Discovery(), "my correspondence")
        assert (names(answer)[0], answer["search"]) == ("send_letter", "semantic")
        assert [body["input_type"] for body in fake.bodies] == ["document", "query"]
        assert len(fake.bodies[0]["input"]) == 2 and fake.keys[0] == f"Bearer {SECRET}"
        # Another process, with the same table.
        answer = await discover(Discovery(), "correspondence")
        assert [body["input_type"] for body in fake.bodies[2:]] == ["query"]
        assert await in_db(ToolVector.objects.count) == 2
        assert names(await discover(Discovery(), "purge_cache"))[0] == "purge_cache", "a name that is said comes first"
        await discover(Discovery(), f"a letter with {SECRET} in it")
        assert SECRET not in json.dumps(fake.bodies)

    with voyage() as fake:
        monkeypatch.setenv(semantic.KEY, SECRET)
        monkeypatch.setenv(semantic.URL_VARIABLE, fake.url)
        run(scenario(fake))


@pytest.mark.parametrize("fail", [1, 401, 500])
def test_when_voyage_fails_words_answer_and_say_so(home: Any, run: Any, monkeypatch: Any, fail: int) -> None:
    async def scenario() -> None:
        await in_db(set_up)
        answer = await discover(Discovery(), "letter")
        assert (names(answer), answer["search"]) == (["send_letter"], "keyword")
        assert "found by words" in answer["searchNote"] and SECRET not in json.dumps(answer)

    with voyage() as fake:
        fake.fail = fail
        monkeypatch.setenv(semantic.KEY, SECRET)
        monkeypatch.setenv(semantic.URL_VARIABLE, fake.url)
        run(scenario())


@pytest.mark.parametrize("place", ["http://127.0.0.1:9/v1", "http://voyage.example/v1", "ftp://127.0.0.1/"])
def test_an_address_that_does_not_answer_or_may_not_be_used(home: Any, run: Any, monkeypatch: Any, place: str) -> None:
    async def scenario() -> None:
        await in_db(set_up)
        answer = await discover(Discovery(), "letter")
        assert (names(answer), answer["search"]) == (["send_letter"], "keyword") and answer["searchNote"]

    monkeypatch.setenv(semantic.KEY, SECRET)
    monkeypatch.setenv(semantic.URL_VARIABLE, place)
    run(scenario())


def test_no_other_variable_switches_it_on(home: Any, run: Any, monkeypatch: Any) -> None:
    async def scenario(fake: Voyage) -> None:
        await in_db(set_up)
        answer = await discover(Discovery(), "letter")
        assert answer["search"] == "keyword" and "searchNote" not in answer and fake.bodies == []

    with voyage() as fake:
        monkeypatch.delenv(semantic.KEY, raising=False)
        for name in ("VOYAGE_API_KEY", "ANTHROPIC_API_KEY"):
            monkeypatch.setenv(name, SECRET)
        monkeypatch.setenv(semantic.URL_VARIABLE, fake.url)
        run(scenario(fake))


def test_the_doctor_says_that_texts_go_out(monkeypatch: Any) -> None:
    monkeypatch.delenv(semantic.KEY, raising=False)
    assert [found.level for found in doctor.examine()] == ["ok"]
    monkeypatch.setenv(semantic.KEY, SECRET)
    [found] = doctor.examine()
    assert found.level == "info" and "api.voyageai.com" in found.text
    monkeypatch.setenv(semantic.URL_VARIABLE, "http://voyage.example/")
    [found] = doctor.examine()
    assert found.level == "warning" and semantic.URL_VARIABLE in found.fix
