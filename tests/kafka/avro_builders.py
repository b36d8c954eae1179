"""Avro records from Python values, and a schema registry that answers on loopback."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def encoded(type_: Any, value: Any) -> bytes:
    """The value in Avro's binary form; types are JSON values without references to names."""
    if isinstance(type_, list):
        at = next(n for n, branch in enumerate(type_) if (branch == "null") == (value is None))
        return number(at) + encoded(type_[at], value)
    kind = type_ if isinstance(type_, str) else type_["type"]
    match kind:
        case "null":
            return b""
        case "boolean":
            return bytes([value])
        case "int" | "long":
            return number(value)
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
        case "bytes":
            return number(len(value)) + bytes(value)
        case "string":
            text = value if isinstance(value, bytes) else value.encode()
            return number(len(text)) + text
        case "fixed":
            return bytes(value)
        case "enum":
            return number(type_["symbols"].index(value))
        case "array":
            items = b"".join(encoded(type_["items"], item) for item in value)
            return number(-len(value)) + number(len(items)) + items + number(0) if value else b"\0"
        case "map":
            pairs = (encoded("string", k) + encoded(type_["values"], v) for k, v in value.items())
            return number(len(value)) + b"".join(pairs) + number(0) if value else b"\0"
        case "record":
            return b"".join(encoded(one["type"], value[one["name"]]) for one in type_["fields"])
        case _:
            return encoded(kind, value)


def number(value: int) -> bytes:
    zigzag = (value << 1) ^ (value >> 63)
    found = bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*found, zigzag])


def framed(schema_number: int, content: bytes) -> bytes:
    return b"\0" + struct.pack(">I", schema_number) + content


@dataclass
class Registry:
    """What the registry holds, and which numbers it was asked for."""

    url: str = ""
    schemas: dict[int, Mapping[str, object]] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)

    def add(self, schema_number: int, schema: object, **more: object) -> None:
        self.schemas[schema_number] = {"schema": json.dumps(schema), **more}


@contextmanager
def running_registry() -> Iterator[Registry]:
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked = int(self.path.removeprefix("/schemas/ids/"))
            registry.asked.append(asked)
            found = registry.schemas.get(asked)
            body = json.dumps(found or {"error_code": 40403, "message": "Schema not found"})
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
