"""A stdio MCP server without the SDK, that does whatever a bad server does. Only the standard library: it starts fast.

--era both|legacy|modern|mute|crash: answers both handshakes, the older or the newer only; `mute` never answers what it
does not know, `crash` dies of it. --tools FILE: the list of tools is read from there at every listing.
--log FILE: one line per message received. --page N: tools per page. --ids last: writes `id` at the end of a frame.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time

parser = argparse.ArgumentParser()
parser.add_argument("--era", default="both")
parser.add_argument("--tools")
parser.add_argument("--log")
parser.add_argument("--page", type=int, default=1000)
parser.add_argument("--ids", default="first")
parser.add_argument("--noise", type=int, default=0, help="bytes on stderr, without a newline, before anything else")
parser.add_argument("--chatter", action="store_true", help="prints to stdout what is no JSON-RPC")
parser.add_argument("--crier", action="store_true", help="says that its tools changed at every listing")
parser.add_argument("--stubborn", action="store_true", help="ignores SIGTERM and the end of its input")
parser.add_argument("--die-at-start", action="store_true")
parser.add_argument("--silent", action="store_true", help="never answers anything")
parser.add_argument("--name", default="raw")
options = parser.parse_args()

MODERN = "2026-07-28"
lock = threading.Lock()
cancelled: set[object] = set()
counts: dict[str, int] = {}
listings = 0


def write(message: dict) -> None:
    if options.ids == "last" and "id" in message:
        message = {key: value for key, value in message.items() if key != "id"} | {"id": message["id"]}
    line = json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    with lock:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()


def note(text: str) -> None:
    if options.log:
        with lock, open(options.log, "a") as log:
            log.write(text + "\n")


def tool(name: str, description: str = "", schema: dict | None = None, **more: object) -> dict:
    return {"name": name, "description": description or name, "inputSchema": schema or {"type": "object"}, **more}


BUILT_IN = [
    tool(
        "echo",
        "Says it back.",
        {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        annotations={"readOnlyHint": True},
    ),
    tool("seen", "What came in."),
    tool("env"),
    tool("die"),
    tool("hang"),
    tool("slow", schema={"type": "object", "properties": {"seconds": {"type": "number"}}}),
    tool("spam", schema={"type": "object", "properties": {"bytes": {"type": "integer"}}}),
    tool("big", schema={"type": "object", "properties": {"bytes": {"type": "integer"}}}),
    tool("garbage"),
    tool("progress", schema={"type": "object", "properties": {"steps": {"type": "integer"}}}),
    tool("fork", schema={"type": "object", "properties": {"stubborn": {"type": "boolean"}}}),
    tool("fail"),
    tool("is_error"),
    tool("odd"),
    tool("change"),
    tool("ask"),
    tool("delete", annotations={"destructiveHint": True}),
]


def tools() -> list:
    if not options.tools:
        return BUILT_IN
    with open(options.tools) as file:
        return json.load(file)


def text(value: str, **more: object) -> dict:
    return {"content": [{"type": "text", "text": value}], **more}


def call(number: object, params: dict) -> dict | None:
    name, arguments = params["name"], params.get("arguments") or {}
    if name == "echo":
        return text(arguments["text"], structuredContent={"text": arguments["text"]}, _meta={"server": "kept"})
    if name == "seen":
        return text(json.dumps(params), structuredContent=params)
    if name == "env":
        return text(json.dumps(dict(os.environ)), structuredContent=dict(os.environ))
    if name == "die":
        os._exit(3)
    if name == "hang":
        return None
    if name == "slow":
        time.sleep(arguments.get("seconds", 1))
        return text("late")
    if name == "spam":
        sys.stderr.buffer.write(b"x" * arguments["bytes"])
        sys.stderr.buffer.flush()
        return text("spammed")
    if name == "big":
        return text("y" * arguments["bytes"])
    if name == "garbage":
        with lock:
            sys.stdout.buffer.write(b'{"jsonrpc":"2.0","id":%d,"result":{"content":\xff\xfe]}}\n' % number)
            sys.stdout.buffer.flush()
        return None
    if name == "progress":
        token = params["_meta"]["progressToken"]
        for step in range(arguments["steps"]):
            done = {
                "progressToken": token,
                "progress": step + 1,
                "total": arguments["steps"],
                "message": f"step {step}",
            }
            write({"jsonrpc": "2.0", "method": "notifications/progress", "params": done})
        return text("done")
    if name == "fork":
        return text(json.dumps(fork(arguments.get("stubborn", False))))
    if name == "fail":
        raise LookupError
    if name == "is_error":
        return text("no such ticket", isError=True)
    if name == "odd":
        odd = {"type": "hologram", "voxels": [1, 2, 3]}
        image = {"type": "image", "data": "aGk=", "mimeType": "image/png", "annotations": {"x": 1}}
        return {"content": [odd, image], "futureField": {"a": 1}, "structuredContent": [1, 2], "_meta": {"k": "v"}}
    if name == "ask":
        wanted = {"type": "object", "properties": {"name": {"type": "string"}}}
        question = {"mode": "form", "message": "Who?", "requestedSchema": wanted}
        asked = {"who": {"method": "elicitation/create", "params": question}}
        return {"resultType": "input_required", "inputRequests": asked, "requestState": "s1"}
    if name == "count":
        with lock:
            counts[arguments["name"]] = number = counts.get(arguments["name"], 0) + 1
        state = "ready" if number >= arguments.get("ready", 1) else "busy"
        told = {"count": number, "state": state}
        return text(state, structuredContent=told, isError=number <= arguments.get("fail", 0))
    if name == "change":
        write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("told")
    return text(f"{name} ran")


def fork(stubborn: bool) -> list[int]:
    """A child in the same group, one in a session of its own, and a child of a child that has ended."""
    script = "import signal,time\n" + ("signal.signal(15, signal.SIG_IGN)\n" if stubborn else "") + "time.sleep(600)"
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    same = subprocess.Popen([sys.executable, "-c", script], **quiet)
    own = subprocess.Popen([sys.executable, "-c", script], start_new_session=True, **quiet)
    return [same.pid, own.pid]


def answer(number: object, method: str, params: dict) -> None:
    try:
        result = respond(number, method, params)
    except KeyError:
        write({"jsonrpc": "2.0", "id": number, "error": {"code": -32601, "message": f"Method not found: {method}"}})
        return
    except LookupError:
        error = {"code": -32050, "message": "the ticket system is down", "data": {"retryIn": 5}}
        write({"jsonrpc": "2.0", "id": number, "error": error})
        return
    if result is not None:
        if "io.modelcontextprotocol/protocolVersion" in (params.get("_meta") or {}):
            result.setdefault("resultType", "complete")
        write({"jsonrpc": "2.0", "id": number, "result": result})


def respond(number: object, method: str, params: dict) -> dict | None:
    global listings
    capabilities = {"tools": {"listChanged": True}}
    if method == "initialize" and options.era != "modern":
        version = params["protocolVersion"]
        info = {"name": options.name, "version": "1"}
        return {"protocolVersion": version, "capabilities": capabilities, "serverInfo": info}
    if method == "server/discover" and options.era in ("both", "modern"):
        stamp = {"io.modelcontextprotocol/serverInfo": {"name": options.name, "version": "1"}}
        return {
            "supportedVersions": [MODERN],
            "capabilities": capabilities,
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": stamp,
        }
    if method == "ping":
        return {}
    if method == "tools/list":
        listings += 1
        note(f"listing {listings}")
        if options.crier:
            write({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        start = int(params.get("cursor") or 0)
        found = tools()
        page = {"tools": found[start : start + options.page], "ttlMs": 0, "cacheScope": "private"}
        return page | ({"nextCursor": str(start + options.page)} if start + options.page < len(found) else {})
    if method == "tools/call":
        return call(number, params)
    if method == "subscriptions/listen" and options.era in ("both", "modern"):
        key = "io.modelcontextprotocol/subscriptionId"
        acknowledged = {"notifications": {"toolsListChanged": True}, "_meta": {key: number}}
        write({"jsonrpc": "2.0", "method": "notifications/subscriptions/acknowledged", "params": acknowledged})
        return None
    if options.era == "crash":
        os._exit(7)
    if options.era == "mute":
        return None
    raise KeyError(method)


def main() -> None:
    if options.noise:
        sys.stderr.buffer.write(b"n" * options.noise)
        sys.stderr.buffer.flush()
    if options.die_at_start:
        sys.stderr.write("no such database\n")
        sys.exit(5)
    if options.stubborn:
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.chatter:
        print("Listening on stdio...", flush=True)
        print('{"level": "info", "message": "ready"}', flush=True)
    for line in sys.stdin.buffer:
        note(line.decode().strip())
        message = json.loads(line)
        if options.silent:
            continue
        if "id" in message and "method" in message:
            threading.Thread(
                target=answer, args=(message["id"], message["method"], message.get("params") or {}), daemon=True
            ).start()
    if options.stubborn:
        while True:
            time.sleep(60)
    with contextlib.suppress(BaseException):
        os._exit(0)


main()
