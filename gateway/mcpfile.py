"""`.mcp.json` files: the configuration of servers that MCP clients know, read and written. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit

from core.addresses import is_local_name
from core.canonical import StrictDecodeError, strict_loads
from core.errors import JsonObject, MeahError
from core.text import one_line

from .launch import DEFAULT_TIMEOUT_MS, Launch, Transport
from .rules import server_problems, warnings

EXPOSURES: Final = ("direct", "lazy", "off")
PIN_SCOPES: Final = ("all", "contract")
EFFECTS: Final = ("allow", "require_approval", "deny")
_TRANSPORTS: Final[Mapping[str, Transport]] = {
    "stdio": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamableHttp": "http",
    "sse": "sse",
}
_KNOWN: Final = frozenset(
    {
        "command",
        "args",
        "env",
        "inheritEnv",
        "url",
        "type",
        "transportType",
        "headers",
        "timeoutMs",
        "lifecycle",
        "meah",
    }
)
_LATER: Final = {"oauth": "OAuth is not supported yet"}
# Whether a server is kept when nobody calls it.
_LIFECYCLES: Final[Mapping[str, bool]] = {"keep_alive": True, "keep-alive": True, "idle": False, "lazy": False}
_OWN: Final = frozenset(
    {"exposure", "prefix", "private", "concurrent", "pinScope", "readDefault", "writeDefault", "destructiveDefault"}
)
_HINT: Final = 'It looks like {"mcpServers": {"name": {"command": "…", "args": ["…"]}}}.'


@dataclass
class Entry:
    """One server of a file. `exposure` is None where the file leaves it to whoever imports it."""

    launch: Launch
    exposure: str | None = None
    prefix: str | None = None
    pin_scope: str = "all"
    defaults: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.launch.server

    def check(self, exposure: str) -> list[str]:
        """Everything that keeps it from being added with that exposure."""
        return [*self.problems, *server_problems(self.launch, exposure=exposure, prefix=self.prefix)]


def parse(text: str | bytes, *, directory: Path | None = None) -> list[Entry]:
    """The servers of a file, in its order. Raises MeahError E_CONFIG when it is no such file at all.

    `directory` is the file's own, absolute: commands with a slash are relative to it.
    """
    try:
        found = strict_loads(text)
    except StrictDecodeError as error:
        raise MeahError("E_CONFIG", f"The file can not be read: {error}.", hint=_HINT) from error
    servers = found.get("mcpServers") if isinstance(found, dict) else None
    if not isinstance(servers, dict):
        raise MeahError("E_CONFIG", "The file has no object `mcpServers`.", hint=_HINT)
    entries = [_entry(name, value, directory) for name, value in servers.items()]
    extra = sorted(key for key in found if key != "mcpServers")
    if extra and entries:
        entries[0].notes.append(f"unknown beside mcpServers: {', '.join(one_line(key, 60) for key in extra)}")
    return entries


def render(servers: Iterable[tuple[Launch, JsonObject]]) -> str:
    """The file of these servers, each with what belongs under `meah`."""
    entries = {launch.server: _as_json(launch, own) for launch, own in servers}
    return json.dumps({"mcpServers": entries}, indent=2, ensure_ascii=False) + "\n"


def _entry(name: str, value: Any, directory: Path | None) -> Entry:
    if not isinstance(value, dict):
        return Entry(Launch(server=name), problems=["it is no object."])
    problems: list[str] = []
    own = _object(value, "meah", problems)
    transport = _transport(value, problems)
    url = _text(value, "url", problems)
    launch = Launch(
        server=name,
        transport=transport,
        command=_anchored(_text(value, "command", problems), directory),
        args=tuple(_texts(value, "args", problems)),
        env=tuple(_text_map(value, "env", problems).items()),
        inherit_env=tuple(_texts(value, "inheritEnv", problems)),
        url=url,
        headers=tuple(_text_map(value, "headers", problems).items()),
        private=_private(own, url, problems),
        timeout_ms=_milliseconds(value, problems),
        keep_alive=_kept_alive(value, problems),
        concurrent=_flag(own, "concurrent", problems),
    )
    entry = Entry(launch, problems=problems, notes=[*_unknown(value, own), *warnings(launch)])
    entry.exposure = _one_of(own, "exposure", EXPOSURES, None, problems)
    entry.pin_scope = _one_of(own, "pinScope", PIN_SCOPES, "all", problems) or "all"
    entry.prefix = _prefix(own, problems)
    for kind in ("read", "write", "destructive"):
        if effect := _one_of(own, f"{kind}Default", EFFECTS, None, problems):
            entry.defaults[f"{kind}_default"] = effect
    return entry


def _anchored(command: str, directory: Path | None) -> str:
    """A command with a slash as an absolute path, whatever MEAH's working directory; a bare one is found on PATH."""
    is_relative = "/" in command and not command.startswith(("/", "~", "$"))
    return str(directory / command) if is_relative and directory else command


def _unknown(value: JsonObject, own: JsonObject) -> list[str]:
    unknown = [key for key in value if key not in _KNOWN and key not in _LATER]
    unknown += [f"meah.{key}" for key in own if key not in _OWN]
    notes = [f"unknown and left out: {', '.join(one_line(key, 60) for key in unknown)}"] if unknown else []
    return [*notes, *(f"{key}: {why}" for key, why in _LATER.items() if key in value)]


def _transport(value: JsonObject, problems: list[str]) -> Transport:
    declared = value.get("type", value.get("transportType"))
    if declared is None:
        return "http" if "url" in value else "stdio"
    if not isinstance(declared, str) or declared not in _TRANSPORTS:
        problems.append(f"type: {one_line(str(declared), 40)!r} is none of stdio, http and sse.")
        return "stdio"
    return _TRANSPORTS[declared]


def _private(own: JsonObject, url: str, problems: list[str]) -> bool:
    """By its spelling alone a URL on this very machine is private."""
    declared = own.get("private")
    if isinstance(declared, bool):
        return declared
    if declared is not None:
        problems.append("meah.private: true or false.")
    try:
        return is_local_name(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _kept_alive(value: JsonObject, problems: list[str]) -> bool:
    found = value.get("lifecycle", "idle")
    if isinstance(found, str) and found in _LIFECYCLES:
        return _LIFECYCLES[found]
    problems.append(f"lifecycle: one of {', '.join(_LIFECYCLES)}.")
    return False


def _flag(own: JsonObject, key: str, problems: list[str]) -> bool:
    found = own.get(key, False)
    if isinstance(found, bool):
        return found
    problems.append(f"meah.{key}: true or false.")
    return False


def _milliseconds(value: JsonObject, problems: list[str]) -> int:
    found = value.get("timeoutMs", DEFAULT_TIMEOUT_MS)
    if isinstance(found, int) and not isinstance(found, bool):
        return found
    problems.append("timeoutMs: a whole number of milliseconds.")
    return DEFAULT_TIMEOUT_MS


def _prefix(own: JsonObject, problems: list[str]) -> str | None:
    found = own.get("prefix")
    if found is None or (isinstance(found, str) and len(found) <= 32 and all(c.isascii() for c in found)):
        return found
    problems.append("meah.prefix: a text of at most 32 characters.")
    return None


def _one_of(
    value: JsonObject, key: str, allowed: tuple[str, ...], default: str | None, problems: list[str]
) -> str | None:
    found = value.get(key, default)
    if found is None or found in allowed:
        return cast("str | None", found)
    problems.append(f"meah.{key}: one of {', '.join(allowed)}.")
    return default


def _object(value: JsonObject, key: str, problems: list[str]) -> JsonObject:
    found = value.get(key, {})
    if isinstance(found, dict):
        return found
    problems.append(f"{key}: an object.")
    return {}


def _text(value: JsonObject, key: str, problems: list[str]) -> str:
    found = value.get(key, "")
    if isinstance(found, str):
        return found
    problems.append(f"{key}: a text.")
    return ""


def _texts(value: JsonObject, key: str, problems: list[str]) -> list[str]:
    found = value.get(key, [])
    if isinstance(found, list) and all(isinstance(item, str) for item in found):
        return found
    problems.append(f"{key}: a list of texts.")
    return []


def _text_map(value: JsonObject, key: str, problems: list[str]) -> dict[str, str]:
    found = value.get(key, {})
    if isinstance(found, dict) and all(isinstance(item, str) for item in found.values()):
        return found
    problems.append(f"{key}: an object of texts.")
    return {}


def _as_json(launch: Launch, own: JsonObject) -> JsonObject:
    entry: JsonObject = {}
    if launch.transport == "stdio":
        entry |= {"command": launch.command, "args": list(launch.args)}
    else:
        entry |= {"type": launch.transport, "url": launch.url}
    optional: JsonObject = {
        "env": dict(launch.env),
        "inheritEnv": list(launch.inherit_env),
        "headers": dict(launch.headers),
    }
    entry |= {key: value for key, value in optional.items() if value}
    if launch.timeout_ms != DEFAULT_TIMEOUT_MS:
        entry["timeoutMs"] = launch.timeout_ms
    if launch.keep_alive:
        entry["lifecycle"] = "keep_alive"
    return entry | {"meah": own}
