"""HDFS over HTTP fails loudly: what a DataNode says of its trouble is never taken for the bytes of a file."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from pidkeeper.pipeline.sources.files import find_files, open_file, place_of, stamp

pytest.importorskip("requests", reason="requests is not installed")
pytest.importorskip("fsspec", reason="fsspec is not installed")
STATUS = {"type": "FILE", "length": 10, "modificationTime": 1_700_000_000_001, "pathSuffix": ""}


class Node:
    """A NameNode with one file, /a.arc, and the DataNode that it sends readers to. `answer`: what that one says."""

    def __init__(self) -> None:
        self.answer = (200, b"0123456789")
        self.status = dict(STATUS)
        self.users: list[str | None] = []
        self.refusal: dict[str, str] | None = None
        node = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                node.handle(self)

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    @property
    def port(self) -> int:
        return self._server.server_port

    def handle(self, request: BaseHTTPRequestHandler) -> None:
        asked = urlsplit(request.path)
        options = parse_qs(asked.query)
        location = ""
        if asked.path.startswith("/datanode"):
            code, body = self.answer
        elif self.refusal is not None:
            code, body = 403, json.dumps({"RemoteException": self.refusal}).encode()
        elif options["op"] == ["OPEN"]:
            code, body, location = 307, b"", f"http://127.0.0.1:{self.port}/datanode?{asked.query}"
        else:
            self.users.append(options.get("user.name", [None])[0])
            code, body = 200, json.dumps({"FileStatus": self.status}).encode()
        request.send_response(code)
        if location:
            request.send_header("Location", location)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    node = Node()
    yield node
    node.close()


def read(node: Node, user: str = "") -> bytes:
    (file,) = find_files(f"webhdfs://{user}127.0.0.1:{node.port}/a.arc", ".arc")
    with open_file(*file) as opened:
        return opened.read()


def test_a_datanode_in_trouble_is_an_error_and_not_the_file(node: Node) -> None:
    assert read(node) == b"0123456789"
    for code, body in ((500, b"ten bytes!"), (404, b"ten bytes!"), (200, b"short"), (200, b"far too long")):
        node.answer = code, body
        with pytest.raises(OSError, match=r"Error|bytes came from byte 0 on instead of 10"):
            read(node)


def test_what_the_namenode_refuses_says_why(node: Node) -> None:
    node.refusal = {"exception": "AccessControlException", "message": "Permission denied: user=dr.who"}
    with pytest.raises(PermissionError, match=r"user=dr\.who"):
        read(node)
    node.refusal = {"exception": "StandbyException", "message": "Operation category READ is not supported"}
    with pytest.raises(OSError, match=f"http://127.0.0.1:{node.port}/webhdfs/v1: Operation category READ"):
        read(node)


def test_pyarrow_says_what_went_wrong_as_well(node: Node) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    from pidkeeper.pipeline.sources.files import _system

    system = _system(place_of(f"webhdfs://127.0.0.1:{node.port}/").root).arrow()
    with system.open_input_file("/a.arc") as file:
        assert (file.size(), file.read()) == (10, b"0123456789")
    node.answer = 500, b"ten bytes!"
    with pytest.raises(OSError, match="500 Server Error"):
        system.open_input_file("/a.arc").read()
    node.refusal = {"exception": "AccessControlException", "message": "Permission denied: user=dr.who"}
    with pytest.raises(PermissionError, match=r"user=dr\.who"):
        system.open_input_file("/a.arc")


def test_the_user_is_that_of_the_uri_else_of_the_environment(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    read(node, "me@")
    assert set(node.users) == {"me"}
    monkeypatch.setenv("HADOOP_USER_NAME", "you")
    node.users.clear()
    read(node)
    assert set(node.users) == {"you"}


def test_a_file_that_was_written_again_has_another_stamp(node: Node) -> None:
    (file,) = find_files(f"webhdfs://127.0.0.1:{node.port}/a.arc", ".arc")
    assert stamp(*file) == "10@1700000000001"
    node.status["modificationTime"] = 1_700_000_000_002
    assert stamp(*file) == "10@1700000000002"
