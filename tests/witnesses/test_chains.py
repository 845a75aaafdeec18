"""How what franz-go's tests print under kills is judged, and the address that stays meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from tests.witnesses.chains import judge
from tests.witnesses.franz_go import TESTS, TRANSACTIONAL
from tests.witnesses.fronts import HOST, Front, serving

SECONDS = 20.0
PASSED = "\n--- PASS: {} (3.2s)\n    --- PASS: {}/range (3.0s)\nPASS\n"
GAVE_UP = "    testConsumer sendErr group=x: poll got unexpected errs: [{ 0 unable to join group session: EOF}]\n"
TWICE = "    testConsumer sendErr group=x: saw double offset t y p3o7\n"
LOST = "    helpers_test.go:1020: consumers 1: got 19999 keys != exp 20000\n"


@pytest.mark.parametrize("test", TESTS)
def test_a_test_that_passed_or_lost_something(test: str) -> None:
    text = PASSED.format(test, test)
    assert judge(test, text) == ("passed", "")
    assert judge(test, GAVE_UP + LOST) == ("wrong", LOST.strip())


def test_who_gave_up_shows_nothing_but_what_came_twice_in_transactions() -> None:
    plain = next(test for test in TESTS if test != TRANSACTIONAL)
    assert [judge(test, GAVE_UP) for test in TESTS] == [("gave up", "")] * 2
    assert judge(plain, GAVE_UP + TWICE) == ("gave up", "")
    assert judge(TRANSACTIONAL, GAVE_UP + TWICE) == ("wrong", TWICE.strip())


def test_a_test_that_fails_otherwise_is_wrong() -> None:
    kind, why = judge(TRANSACTIONAL, "panic: test timed out after 5m0s\n")
    assert kind == "wrong"
    assert "timed out" in why


@pytest.fixture
def front() -> Iterator[Front]:
    with serving(1) as (one,):
        yield one


def connected(front: Front) -> socket.socket:
    host, _, port = front.address.rpartition(":")
    return socket.create_connection((host, int(port)), SECONDS)


def listener() -> socket.socket:
    one = socket.create_server((HOST, 0))
    one.settimeout(SECONDS)
    return one


def test_who_comes_before_the_server_is_passed_on_to_it(front: Front) -> None:
    with connected(front) as client, listener() as server:
        client.sendall(b"asked")
        front.server = "{}:{}".format(*server.getsockname())
        served, _ = server.accept()
        with served:
            assert served.recv(5) == b"asked"
            served.sendall(b"told")
            assert client.recv(4) == b"told"


def test_the_client_of_a_server_that_dies_is_cut_off_and_the_next_one_waits(front: Front) -> None:
    with listener() as server:
        front.server = "{}:{}".format(*server.getsockname())
        with connected(front) as client:
            server.accept()[0].close()
            assert client.recv(1) == b""
    with connected(front) as client:
        port = int(front.server.rpartition(":")[2])
        with socket.create_server((HOST, port)) as server:
            server.settimeout(SECONDS)
            served, _ = server.accept()
            with served:
                client.sendall(b"x")
                assert served.recv(1) == b"x"
