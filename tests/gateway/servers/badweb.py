"""An HTTP server that answers MCP badly, by the path of its URL: `badweb.py PORT`. Only the standard library."""

from __future__ import annotations

import gzip
import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("write", "big")]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.answer(405, b"")

    def do_DELETE(self) -> None:
        self.answer(405, b"")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        method, kind = body.get("method"), self.path.strip("/")
        if "id" not in body:
            return self.answer(202, b"")
        if kind in ("401", "403", "404", "500"):
            return self.answer(int(kind), b"nope", kind="text/plain")
        if kind == "redirect":
            return self.answer(307, b"", location="http://127.0.0.1:1/elsewhere")
        if kind == "silent":
            time.sleep(60)
        if kind == "html":
            return self.answer(200, b"<html>Please log in</html>", kind="text/html")
        if method == "server/discover":
            return self.answer(400, b"Bad Request", kind="text/plain")
        if method == "initialize":
            return self.result(body, self.greeting(body))
        if method == "tools/list":
            return self.result(body, {"tools": TOOLS})
        return self.call(kind, body)

    def call(self, kind: str, body: dict[str, Any]) -> None:
        done = {"content": [{"type": "text", "text": "done"}]}
        if kind == "502":
            return self.answer(502, b"<h1>bad gateway</h1>", kind="text/html")
        if kind == "413":
            return self.answer(413, b"", kind="text/plain")
        if kind == "gone":
            return self.answer(404, b"", kind="text/plain")
        if kind in ("own", "session"):
            message = "Bad Request: No valid session ID provided" if kind == "session" else "unknown ticket"
            error = {"jsonrpc": "2.0", "id": body["id"], "error": {"code": -32000, "message": message}}
            return self.answer(400, json.dumps(error).encode())
        if kind == "cut":
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", "1000")
            self.end_headers()
            self.wfile.write(b'{"jsonrpc"')
            self.close_connection = True
            return None
        if kind == "drop":
            self.close_connection = True
            self.connection.close()
            return None
        if kind == "gzip":
            data = gzip.compress(json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": done}).encode())
            return self.answer(200, data, encoding="gzip")
        if kind == "big":
            done["content"][0]["text"] = "y" * 20_000_000
        return self.result(body, done)

    def greeting(self, body: dict[str, Any]) -> dict[str, Any]:
        return {
            "protocolVersion": body["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "bad", "version": "1"},
        }

    def result(self, body: dict[str, Any], result: dict[str, Any]) -> None:
        self.answer(200, json.dumps({"jsonrpc": "2.0", "id": body["id"], "result": result}).encode())

    def answer(
        self, status: int, data: bytes, *, kind: str = "application/json", location: str = "", encoding: str = ""
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        if location:
            self.send_header("Location", location)
        if encoding:
            self.send_header("Content-Encoding", encoding)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
