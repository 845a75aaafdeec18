"""Against grpcio's server, which is not ours."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc  # type: ignore[import-untyped]
import pytest

from bench.peers.grpc_frames import Calls, ConnectionOverError, header_block, opening

ECHO = header_block("/tests.Echo/Echo", "127.0.0.1")
REFUSE = header_block("/tests.Echo/Refuse", "127.0.0.1")
SECONDS = 10.0


def refuse(_: bytes, context: grpc.ServicerContext) -> bytes:
    context.abort(grpc.StatusCode.FAILED_PRECONDITION, "not now")
    raise AssertionError


@pytest.fixture
def server() -> Iterator[tuple[grpc.Server, int]]:
    handlers = {
        "Echo": grpc.unary_unary_rpc_method_handler(lambda request, _: request + request),
        "Refuse": grpc.unary_unary_rpc_method_handler(refuse),
    }
    with ThreadPoolExecutor(2) as pool:
        started = grpc.server(pool)
        started.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("tests.Echo", handlers),))
        port = started.add_insecure_port("127.0.0.1:0")
        started.start()
        yield started, port
        started.stop(None).wait(SECONDS)


class Client:
    """Reads `size` bytes at a time, so that frames come in pieces."""

    def __init__(self, port: int, size: int) -> None:
        self._calls = Calls()
        self._size = size
        self.socket = socket.create_connection(("127.0.0.1", port), SECONDS)
        self.socket.sendall(opening())

    def call(self, headers: bytes, request: bytes) -> bytes | None:
        self.socket.sendall(self._calls.call(headers, request))
        return self.answer()

    def answer(self) -> bytes | None:
        while True:
            data = self.socket.recv(self._size)
            assert data, "the server hung up"
            answer, reply = self._calls.take(data)
            self.socket.sendall(reply)
            if answer.done:
                return answer.message


@pytest.mark.parametrize("size", [1, 7, 65_536])
def test_calls_follow_each_other_on_one_connection(server: tuple[grpc.Server, int], size: int) -> None:
    client = Client(server[1], size)
    with client.socket:
        assert client.call(ECHO, b"ab") == b"abab"
        assert client.call(REFUSE, b"ab") is None
        assert client.call(ECHO, b"") == b"", "an empty message is one"
        assert client.call(ECHO, bytes(40_000)) == bytes(80_000), "more than one frame holds"
        assert [client.call(ECHO, b"%d" % number) for number in range(50)] == [b"%d%d" % (n, n) for n in range(50)]


def test_a_server_that_goes_away_says_so(server: tuple[grpc.Server, int]) -> None:
    client = Client(server[1], 65_536)
    with client.socket:
        assert client.call(ECHO, b"a") == b"aa"
        server[0].stop(None)
        with pytest.raises(ConnectionOverError):
            client.answer()
