"""A NameNode and its DataNode in this process, as WebHDFS shows them, over a dict of files."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

HOST: Final = "127.0.0.1"
_API: Final = "/webhdfs/v1"
_DATA: Final = "/datanode"


class NameNode:
    """`files`: their bytes by path; `stamps`: their times. What goes wrong is set by a test:

    `refusal`: what it answers to everything; `told`: what the DataNode sends to a reader; `taken`: what it answers to a
    writer, who then has written nothing. `gateway`: it knows no options of a rename, as HttpFS.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.stamps: dict[str, int] = {}
        self.folders: set[str] = {"/"}
        self.calls: list[tuple[str, str]] = []
        self.users: list[str | None] = []
        self.refusal: dict[str, str] | None = None
        self.told: tuple[int, bytes] | None = None
        self.taken: tuple[int, bytes] | None = None
        self.gateway = False
        self._clock = 1_700_000_000_000
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                node.handle(self, b"")

            def do_PUT(self) -> None:
                node.handle(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            def do_DELETE(self) -> None:
                node.handle(self, b"")

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    @property
    def uri(self) -> str:
        """Without a path."""
        return f"webhdfs://{HOST}:{self.port}"

    def put(self, path: str, data: bytes) -> None:
        """A file, written now."""
        self._clock += 1
        self.files[path], self.stamps[path] = data, self._clock

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def handle(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        asked = urlsplit(request.path)
        options = {name: values[0] for name, values in parse_qs(asked.query).items()}
        location = ""
        if asked.path.startswith(_DATA):
            code, answer = self._data(unquote(asked.path.removeprefix(_DATA)), options, body)
        elif self.refusal is not None:
            code, answer = 403, json.dumps({"RemoteException": self.refusal}).encode()
        else:
            path = unquote(asked.path.removeprefix(_API)).rstrip("/") or "/"
            self.calls.append((options["op"], path))
            self.users.append(options.get("user.name"))
            if options["op"] in {"OPEN", "CREATE"}:
                code, answer = 307, b""
                location = f"http://{HOST}:{self.port}{_DATA}{urlsplit(request.path).path[len(_API) :]}?{asked.query}"
            else:
                code, answer = self._name(options["op"], path, options)
        request.send_response(code)
        if location:
            request.send_header("Location", location)
        request.send_header("Content-Length", str(len(answer)))
        request.end_headers()
        request.wfile.write(answer)

    def _data(self, path: str, options: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if options["op"] == "CREATE":
            if self.taken is not None:
                return self.taken
            if path in self.files and options["overwrite"] != "true":
                return _failure("FileAlreadyExistsException", f"{path} for client {HOST} already exists")
            self.put(path, body)
            return 201, b""
        if self.told is not None:
            return self.told
        start, size = int(options.get("offset", 0)), int(options.get("length", 1 << 60))
        return 200, self.files[path][start : start + size]

    def _name(self, operation: str, path: str, options: dict[str, str]) -> tuple[int, bytes]:
        known: dict[str, Callable[[str, dict[str, str]], tuple[int, bytes]]] = {
            "GETFILESTATUS": self._status,
            "LISTSTATUS": self._list,
            "MKDIRS": self._make,
            "DELETE": self._delete,
            "RENAME": self._rename,
        }
        return known[operation](path, options)

    def _status(self, path: str, _: dict[str, str]) -> tuple[int, bytes]:
        if path not in self.files and not self._is_folder(path):
            return _failure("FileNotFoundException", f"File does not exist: {path}", 404)
        return _told({"FileStatus": self._described(path, "")})

    def _list(self, path: str, _: dict[str, str]) -> tuple[int, bytes]:
        if path in self.files:
            return _told({"FileStatuses": {"FileStatus": [self._described(path, "")]}})
        if not self._is_folder(path):
            return _failure("FileNotFoundException", f"File {path} does not exist.", 404)
        above = path.rstrip("/") + "/"
        inside = {one[len(above) :].partition("/")[0] for one in [*self.files, *self.folders] if one.startswith(above)}
        found = [self._described(above + name, name) for name in sorted(inside - {""})]
        return _told({"FileStatuses": {"FileStatus": found}})

    def _make(self, path: str, _: dict[str, str]) -> tuple[int, bytes]:
        self.folders.add(path)
        return _told({"boolean": True})

    def _delete(self, path: str, options: dict[str, str]) -> tuple[int, bytes]:
        gone = [one for one in self.files if one == path or one.startswith(f"{path}/")]
        if gone != [path] and options.get("recursive") != "true":
            return _failure("PathIsNotEmptyDirectoryException", f"`{path} is non empty': Directory is not empty")
        for one in gone:
            del self.files[one]
        self.folders = {one for one in self.folders if one != path and not one.startswith(f"{path}/")}
        return _told({"boolean": bool(gone)})

    def _rename(self, path: str, options: dict[str, str]) -> tuple[int, bytes]:
        target = options["destination"]
        option = None if self.gateway else options.get("renameoptions")
        if target in self.files and option != "OVERWRITE":
            if option is None:
                return _told({"boolean": False})
            return _failure("FileAlreadyExistsException", f"rename destination {target} already exists")
        self.files[target], self.stamps[target] = self.files.pop(path), self.stamps.pop(path)
        return _told({"boolean": True}) if option is None else (200, b"")

    def _is_folder(self, path: str) -> bool:
        above = path.rstrip("/") + "/"
        return path in self.folders or any(one.startswith(above) for one in [*self.files, *self.folders])

    def _described(self, path: str, suffix: str) -> dict[str, Any]:
        data = self.files.get(path)
        if data is None:
            return {"type": "DIRECTORY", "length": 0, "modificationTime": 0, "pathSuffix": suffix}
        return {"type": "FILE", "length": len(data), "modificationTime": self.stamps[path], "pathSuffix": suffix}


def _told(answer: dict[str, Any]) -> tuple[int, bytes]:
    return 200, json.dumps(answer).encode()


def _failure(exception: str, message: str, code: int = 403) -> tuple[int, bytes]:
    return code, json.dumps({"RemoteException": {"exception": exception, "message": message}}).encode()
