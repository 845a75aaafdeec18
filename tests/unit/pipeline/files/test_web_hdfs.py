"""HDFS over HTTP fails loudly: what a DataNode says of its trouble is never taken for the bytes of a file."""

from __future__ import annotations

import pytest

from pidkeeper.pipeline.files.location import locate
from tests.support.name_node import NameNode

BYTES = b"0123456789"


def test_a_datanode_in_trouble_is_an_error_and_not_the_file(node: NameNode) -> None:
    node.put("/a.arc", BYTES)
    place = locate(f"{node.uri}/a.arc")
    assert place.read() == BYTES
    for code, body in ((500, b"ten bytes!"), (404, b"ten bytes!"), (200, b"short"), (200, b"far too long")):
        node.told = code, body
        with pytest.raises(OSError, match=r"cannot be read: .*(HTTP error|bytes came from byte 0 on instead of 10)"):
            place.read()


def test_what_the_namenode_refuses_says_why(node: NameNode) -> None:
    place = locate(f"{node.uri}/a.arc")
    node.refusal = {"exception": "AccessControlException", "message": "Permission denied: user=dr.who\n\tat org"}
    for call in (place.read, lambda: place.write(b"1")):
        with pytest.raises(PermissionError, match=r"/a\.arc cannot be .*: Permission denied: user=dr\.who"):
            call()
    node.refusal = {"exception": "StandbyException", "message": "Operation category READ is not supported\n\tat org"}
    with pytest.raises(OSError, match=f"http://127.0.0.1:{node.port}/webhdfs/v1: Operation category READ.*supported$"):
        place.read()


def test_a_datanode_that_takes_nothing_leaves_nothing(node: NameNode) -> None:
    node.put("/a.arc", b"before")
    denied = b'{"RemoteException": {"exception": "%s", "message": "the %s\\n\\tat org"}}'
    for kind, code, body, reason in (
        (OSError, 500, b"oh", "HTTP error 500"),
        (OSError, 307, b"", "a DataNode answered 307"),
        (OSError, 403, denied % (b"DSQuotaExceededException", b"quota"), "DSQuotaExceededException: the quota$"),
        (PermissionError, 403, denied % (b"AccessControlException", b"user"), "AccessControlException: the user$"),
    ):
        node.taken = code, body
        for call in (locate(f"{node.uri}/a.arc").write, locate(f"{node.uri}/b.arc").create):
            with pytest.raises(kind, match=f"cannot be written: .*{reason}"):
                call(b"after")
    assert node.files == {"/a.arc": b"before"}


def test_pyarrow_says_what_went_wrong_as_well(node: NameNode) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    node.put("/a.arc", BYTES)
    system, path = locate(f"{node.uri}/a.arc").arrow()
    with system.open_input_file(path) as file:
        assert (file.size(), file.read()) == (10, BYTES)
    node.told = 500, b"ten bytes!"
    with pytest.raises(OSError, match="HTTP error 500"):
        system.open_input_file(path).read()
    node.refusal = {"exception": "AccessControlException", "message": "Permission denied: user=dr.who"}
    with pytest.raises(PermissionError, match=r"user=dr\.who"):
        system.open_input_file(path)


def test_the_user_is_that_of_the_uri_else_of_the_environment(node: NameNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.put("/a.arc", BYTES)
    locate(f"webhdfs://me@127.0.0.1:{node.port}/a.arc").read()
    assert set(node.users) == {"me"}
    monkeypatch.setenv("HADOOP_USER_NAME", "you")
    node.users.clear()
    locate(f"{node.uri}/a.arc").write(b"1")
    assert set(node.users) == {"you"}


def test_stamps_are_of_length_and_time(node: NameNode) -> None:
    node.put("/a.arc", BYTES)
    assert locate(f"{node.uri}/a.arc").stamp() == "10@1700000000001"
    node.put("/a.arc", BYTES)
    assert locate(f"{node.uri}/a.arc").stamp() == "10@1700000000002"


def test_a_gateway_that_cannot_replace_is_helped(node: NameNode) -> None:
    node.gateway = True
    node.put("/a.arc", b"before")
    locate(f"{node.uri}/a.arc").write(b"after")
    assert node.files == {"/a.arc": b"after"}
    assert [call for call, _ in node.calls] == ["CREATE", "RENAME", "DELETE", "RENAME"]
    node.gateway = False
    node.calls.clear()
    locate(f"{node.uri}/a.arc").write(b"once more")
    assert [call for call, _ in node.calls] == ["CREATE", "RENAME"], "in one step"
