"""Downstream servers as the gate sees them: what is pinned decides, what was decided on is sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.db import connection as database
from mcp.shared.dispatcher import ProgressFnT

from approvals.models import Call, EffectClass
from approvals.policy import Verdict
from approvals.targets import Applied, CallContext, CallRequest, Checked, ToolFacts
from core.canonical import canonical_text
from core.errors import JsonObject, MeahError
from core.redaction import without_values
from core.text import one_line

from .failures import AmbiguousError, NotSentError
from .jsonschemas import check_arguments
from .launch import RESERVED_NAME, Launch
from .models import Exposure, PinState, Server, Tool
from .outgoing import without_secrets
from .sessions import Connection, Open, Pool, current

KEY_META = "meah/idempotency-key"
# The gate gives up first where the answer is what is late; a start that is late must say that nothing was sent.
START_SHARE = 0.95
# Ending a child takes four seconds at most, and is done before the failure is told.
END_CHILD_S = 5.0

# A call is judged by these columns. A query of whole rows, built anew at every call, costs ten times as much.
_TOOL = ("name", "definition", "pin", "pin_state", "quarantine_reason", "effect_class", "idempotency_argument")
_SERVER = (
    "name",
    "transport",
    "command",
    "args",
    "env",
    "inherit_env",
    "url",
    "headers",
    "private",
    "exposure",
    "timeout_ms",
    "era",
    "keep_alive",
    "concurrent",
)
_JSON = frozenset({"args", "env", "inherit_env", "headers"})
_BOOLEAN = frozenset({"private", "keep_alive", "concurrent"})


@dataclass(frozen=True)
class Prepared:
    """A checked call: everything that sending it needs, without the database."""

    launch: Launch
    tool: str
    pin: str
    schema: JsonObject
    idempotency_argument: str = ""


def resolve(server: str) -> GatewayTarget | None:
    """The target of a server that lives in a row; whether there is one, its `facts` say."""
    return None if server.casefold() == RESERVED_NAME else GatewayTarget(server)


def server_names() -> list[str]:
    """The servers that agents can reach in some way."""
    return list(Server.objects.exclude(exposure=Exposure.OFF).values_list("name", flat=True))


class GatewayTarget:
    """One server, for the time of one call."""

    def __init__(self, server: str) -> None:
        self.server = server
        self._rows: dict[str, Tool] = {}

    def tools(self) -> Sequence[str]:
        rows = Tool.objects.filter(server__name=self.server, pin_state=PinState.ACCEPTED)
        return list(rows.order_by("name").values_list("name", flat=True))

    def facts(self, tool: str, arguments: JsonObject) -> ToolFacts:
        row = self._offered(tool)
        return ToolFacts(
            effect_class=EffectClass(row.effect_class),
            pin=row.pin,
            schema=row.pinned["inputSchema"],
            timeout_s=row.server.timeout_ms / 1000,
            grace_s=END_CHILD_S if row.server.launch().is_lazy_child else 0.0,
        )

    def check(self, request: CallRequest) -> Checked:
        row = self._offered(request.tool)
        schema = row.pinned["inputSchema"]
        # The canonical value: 1.0 has become 1, and keys have their order.
        arguments: JsonObject = json.loads(canonical_text(request.arguments))
        check_arguments(schema, row.pin, arguments)
        prepared = Prepared(row.server.launch(), row.name, row.pin, schema, row.idempotency_argument)
        return Checked(arguments, prepared)

    def needs(self, tool: str) -> Sequence[str]:
        server = Server.objects.filter(name=self.server).first()
        return sorted(server.launch().variables) if server else []

    def apply(self, request: CallRequest, checked: Checked, call: Call | None, verdict: Verdict) -> Applied:
        raise NotImplementedError("no downstream tool is local")

    async def run(self, request: CallRequest, checked: Checked, context: CallContext) -> JsonObject:
        """The server's result as it was, but for MEAH's own secrets."""
        prepared: Prepared = checked.value
        limit = Limit.of(context, prepared.launch)
        pool = current()
        async with _connected(pool, prepared.launch, limit) as connection:
            opened = await _opened(connection, prepared, limit)
            arguments, meta = _with_key(checked.arguments, prepared, context)
            sending = opened.call(
                prepared.tool, arguments, meta=meta, on_progress=_progress(context), schema=prepared.schema
            )
            if prepared.launch.is_lazy_child:
                result = await _or_end(sending, pool, connection, limit)
            else:
                result = await sending
        _refuse_what_is_none(result, prepared, context)
        return without_secrets(result)

    def store(self, result: Any) -> Any:
        return result

    def revive(self, request: CallRequest, checked: Checked, stored: Any) -> Any:
        return stored

    def _offered(self, tool: str) -> Tool:
        """The tool's row. Raises MeahError naming why it can not be called."""
        if tool not in self._rows:
            self._rows[tool] = _row(self.server, tool)
        row = self._rows[tool]
        if row.server.exposure == Exposure.OFF:
            raise _withheld(row, "off", f"The server {self.server} is switched off.")
        if row.pin_state == PinState.GONE:
            raise MeahError(
                "E_UNAVAILABLE",
                f"The server {self.server} does not have {tool} any more.",
                retryable=False,
                reason="gone",
            )
        if row.pin_state != PinState.ACCEPTED:
            why = {"new": "is new and was not accepted yet", "changed": "has changed and was not accepted again yet"}
            told = why.get(row.quarantine_reason, f"is quarantined: {row.quarantine_reason}")
            raise _withheld(row, "quarantined", f"{self.server}/{tool} {told}.")
        return row


def _row(server: str, tool: str) -> Tool:
    """The tool and its server, without what no call needs. Raises MeahError E_NOT_FOUND."""
    with database.cursor() as cursor:
        cursor.execute(_statement(), [server, tool])
        found = cursor.fetchone()
    if found is None:
        raise _not_found(server, tool)
    ours, theirs = found[: len(_TOOL)], found[len(_TOOL) :]
    columns = {name: _parsed(name, value) for name, value in zip(_SERVER, theirs, strict=True)}
    return Tool(server=Server(**columns), **dict(zip(_TOOL, ours, strict=True)))


@cache
def _statement() -> str:
    columns = (*_TOOL, *(f"server__{name}" for name in _SERVER))
    rows = Tool.objects.order_by().filter(server__name="server").filter(name="tool").values_list(*columns)
    statement, parameters = rows.query.sql_with_params()
    assert parameters == ("server", "tool")
    return str(statement)


def _parsed(name: str, value: Any) -> Any:
    """JSON comes as text from a cursor."""
    if name in _BOOLEAN:
        return bool(value)
    return json.loads(value) if name in _JSON and isinstance(value, str) else value


def _not_found(server: str, tool: str) -> MeahError:
    if not Server.objects.filter(name=server).exists():
        return MeahError("E_NOT_FOUND", f"There is no server named {one_line(server, 100)!r}.")
    return MeahError("E_NOT_FOUND", f"The server {server} has no tool named {one_line(tool, 100)!r}.")


def _withheld(row: Tool, reason: str, message: str) -> MeahError:
    return MeahError(
        "E_DENIED",
        message,
        hint="Ask the operator: a person has to accept it, in the admin or with `manage.py servers accept`.",
        reason=reason,
        details={"server": row.server.name, "tool": row.name},
    )


@dataclass(frozen=True)
class Limit:
    """Until when, by the event loop's clock, a call has to be sent, and has to be answered; None: whenever."""

    start_by: float | None
    answer_by: float | None

    @classmethod
    def of(cls, context: CallContext, launch: Launch) -> Limit:
        if context.timeout_s is None:
            return cls(None, None)
        now = asyncio.get_running_loop().time()
        share = 1.0 if launch.is_lazy_child else START_SHARE
        return cls(now + context.timeout_s * share, now + context.timeout_s)


def _left(moment: float | None) -> float | None:
    return None if moment is None else max(0.0, moment - asyncio.get_running_loop().time())


@asynccontextmanager
async def _connected(pool: Pool, launch: Launch, limit: Limit) -> AsyncIterator[Connection]:
    """The server's connection, with room to run and, where it takes one call at a time, in its turn."""
    async with pool.use(launch, deadline=limit.start_by) as connection, _turn(connection, launch, limit):
        yield connection


@asynccontextmanager
async def _turn(connection: Connection, launch: Launch, limit: Limit) -> AsyncIterator[None]:
    """Calls to a lazy child run in the order in which they came, unless the operator says that it takes more."""
    if not launch.is_lazy_child or launch.concurrent:
        yield
        return
    try:
        await asyncio.wait_for(connection.turn.acquire(), _left(limit.start_by))
    except TimeoutError:
        raise NotSentError(
            "E_TIMEOUT",
            f"The server {launch.server} was busy with other calls all the time; nothing was sent.",
            hint="Try again in a moment: its calls run one after another.",
            retryable=True,
            reason="queued",
        ) from None
    try:
        yield
    finally:
        connection.turn.release()


async def _opened(connection: Connection, prepared: Prepared, limit: Limit) -> Open:
    """An open connection on which the tool still is what was accepted. Nothing has been sent when this raises."""
    try:
        opened = await asyncio.wait_for(connection.open(), _left(limit.start_by))
    except TimeoutError:
        raise NotSentError(
            "E_TIMEOUT",
            f"The server {prepared.launch.server} did not start in time; nothing was sent.",
            hint="It goes on starting: try again in a moment.",
            retryable=True,
            reason="starting",
        ) from None
    except MeahError as error:
        raise error if isinstance(error, NotSentError) else NotSentError.because(error) from error
    if opened.pins.get(prepared.tool) == prepared.pin:
        return opened
    pins = await connection.check_again()
    if pins.get(prepared.tool) != prepared.pin:
        raise NotSentError(
            "E_DENIED",
            f"{prepared.launch.server}/{prepared.tool} is not what was accepted any more; nothing was sent.",
            hint="Ask the operator: a person has to accept the change.",
            reason="quarantined",
        )
    return opened


async def _or_end(sending: Coroutine[Any, Any, JsonObject], pool: Pool, connection: Connection, limit: Limit) -> Any:
    """A lazy child whose answer is late or lost is ended before that is told, so that nothing lands afterwards."""
    try:
        return await asyncio.wait_for(sending, _left(limit.answer_by))
    except TimeoutError:
        await connection.end()
        raise AmbiguousError(
            "E_TIMEOUT",
            f"{connection.launch.server} gave no answer in time and was ended.",
            hint="Do not simply repeat a write: it may have happened. Read back what it should have changed.",
            retryable=False,
        ) from None
    except AmbiguousError:
        await connection.end()
        raise
    except asyncio.CancelledError:
        pool.end_soon(connection)
        raise


def _refuse_what_is_none(result: JsonObject, prepared: Prepared, context: CallContext) -> None:
    """A result is passed on, and so is a question where somebody can be asked."""
    kind = result.get("resultType", "complete")
    if kind == "input_required" and not context.takes_questions:
        # The server has done nothing yet.
        raise MeahError(
            "E_INVALID_REQUEST",
            f"{prepared.launch.server}/{prepared.tool} asks for more input, and nobody is there who could be asked: "
            "the call runs by itself after its approval, or its client speaks an older MCP.",
            hint="Give what it asks for as arguments of a new call.",
            reason="input_required",
        )
    if isinstance(kind, str) and kind not in ("complete", "input_required"):
        raise AmbiguousError(
            "E_NETWORK",
            f"{prepared.launch.server}/{prepared.tool} answered with a {one_line(kind, 50)!r} in place of a result: "
            "that belongs to an extension of MCP, and MEAH declares none to servers.",
            hint="A write may go on there: read back what it should change before repeating it.",
            retryable=False,
            reason="answer_no_result",
        )


def _with_key(arguments: JsonObject, prepared: Prepared, context: CallContext) -> tuple[JsonObject, JsonObject | None]:
    if not context.idempotency_key:
        return arguments, None
    if prepared.idempotency_argument:
        arguments = arguments | {prepared.idempotency_argument: context.idempotency_key}
    return arguments, {KEY_META: context.idempotency_key}


def _progress(context: CallContext) -> ProgressFnT | None:
    """Progress of the server, told to the door; none is asked for where the door did not ask."""
    tell = context.progress
    if tell is None:
        return None

    async def told(progress: float, total: float | None, message: str | None) -> None:
        await tell(progress, total, without_values(message) if message else message)

    return told
