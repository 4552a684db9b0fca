"""The CRM's data, in memory or in one JSON file that several processes share; and the truth about what was done.

The file can be read from outside at any time: `effects` lists every write that took place (tool, arguments, key,
time), `dropped` every write that was answered with "ok" and thrown away. `drop_writes` in it (or the variable
CRM_DROP_WRITES) names the tools whose writes are thrown away. With `honours_keys` off it is a server like most: a write
that is sent twice takes place twice.
"""

from __future__ import annotations

import copy
import fcntl
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from examples.crm.seeds import CUSTOMERS, TICKETS

Data = dict[str, Any]
Change = Callable[[Data], Data]


class CrmError(Exception):
    """What the caller got wrong, in words for the caller."""


def seeded() -> Data:
    """A fresh CRM."""
    return copy.deepcopy(
        {
            "customers": {customer["customer_id"]: customer for customer in CUSTOMERS},
            "tickets": {ticket["ticket_id"]: ticket for ticket in TICKETS},
            "effects": [],
            "dropped": [],
            "answers": {},
            "drop_writes": [],
        }
    )


class Store:
    """Each read and each write sees one whole state; a write is there completely or not at all."""

    def __init__(
        self, path: Path | None, *, drop_writes: frozenset[str] = frozenset(), honours_keys: bool = True
    ) -> None:
        self._path = path
        self._memory = seeded()
        self._drop_writes = drop_writes
        self._honours_keys = honours_keys

    def read(self) -> Data:
        with self._locked():
            return self._load()

    def write(self, tool: str, arguments: Data, key: str, change: Change) -> Data:
        """Do `change` and count it as an effect; a key that was used before gets its first answer, and no effect.

        Raises CrmError; then nothing has changed.
        """
        with self._locked():
            data = self._load()
            if key and self._honours_keys and (known := data["answers"].get(key)):
                return _first_answer(known, tool, arguments)
            done = {"tool": tool, "arguments": arguments, "key": key, "time": now()}
            if tool in self._drop_writes or tool in data["drop_writes"]:
                answer = change(copy.deepcopy(data))
                data["dropped"].append(done)
            else:
                answer = change(data)
                data["effects"].append(done)
            if key:
                data["answers"][key] = {"tool": tool, "arguments": arguments, "answer": answer}
            self._save(data)
            return copy.deepcopy(answer)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._path is None:
            yield
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_name(f"{self._path.name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _load(self) -> Data:
        if self._path is None:
            return copy.deepcopy(self._memory)
        try:
            data: Data = json.loads(self._path.read_bytes())
        except FileNotFoundError:
            return seeded()
        return data

    def _save(self, data: Data) -> None:
        if self._path is None:
            self._memory = data
            return
        handle, draft = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        with os.fdopen(handle, "w") as file:
            json.dump(data, file, indent=1)
        Path(draft).replace(self._path)


def _first_answer(known: Data, tool: str, arguments: Data) -> Data:
    if (known["tool"], known["arguments"]) != (tool, arguments):
        raise CrmError("This idempotency key was used for another call.")
    answer: Data = known["answer"]
    return answer


def now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
