"""Liveness and readiness in text."""

from __future__ import annotations

import pytest

from tests.support.memory_member import MemoryMember
from tests.unit.controller.api.conftest import Api


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/livez/disk", "/readyz/leader", "/readyz/shutdown"])
async def test_all_is_well(api: Api, path: str) -> None:
    answer = await api.call("GET", path)
    assert (answer.status, answer.text) == (200, "ok\n")
    assert answer.content_type == "text/plain"
    assert (await api.call("HEAD", path)).status == 200


async def test_verbose_lists_every_check(api: Api) -> None:
    answer = await api.call("GET", "/readyz?verbose")
    assert answer.text == "[+]leader ok\n[+]caught_up ok\n[+]shutdown ok\nreadyz check passed\n"


async def test_a_failed_check_is_shown_with_its_reason(api: Api, member: MemoryMember) -> None:
    member.place["leader"] = False
    answer = await api.call("GET", "/readyz")
    assert answer.status == 503
    assert answer.text == "[-]leader failed: no leader\n[+]caught_up ok\n[+]shutdown ok\nreadyz check failed\n"
    assert (await api.call("GET", "/readyz/leader")).status == 503
    assert (await api.call("GET", "/readyz/caught_up")).status == 200


async def test_liveness_does_not_look_at_the_quorum(api: Api, member: MemoryMember) -> None:
    member.place = dict.fromkeys(member.place, False)
    member.leader_id = None
    assert (await api.call("GET", "/livez")).status == 200
    member.checks["disk"] = False
    assert (await api.call("GET", "/livez")).status == 503


async def test_an_excluded_check_does_not_count(api: Api, member: MemoryMember) -> None:
    member.place = dict.fromkeys(member.place, False)
    assert (await api.call("GET", "/readyz?exclude=leader")).status == 503
    assert (await api.call("GET", "/readyz?exclude=leader&exclude=caught_up")).text == "ok\n"
    verbose = await api.call("GET", "/readyz?verbose&exclude=leader&exclude=caught_up&exclude=nobody")
    assert verbose.status == 200
    assert "[+]leader excluded: ok\n" in verbose.text
    assert "warn: no check is named 'nobody'\n" in verbose.text


async def test_an_unknown_check(api: Api) -> None:
    answer = await api.call("GET", "/readyz/nobody")
    assert (answer.status, answer.content_type) == (404, "application/problem+json")
    assert "leader, caught_up, shutdown" in answer.json()["detail"]


async def test_a_drain_shows_in_readiness_alone(api: Api) -> None:
    api.server.begin_drain()
    answer = await api.call("GET", "/readyz")
    assert answer.status == 503
    assert "[-]shutdown failed: the server is shutting down" in answer.text
    assert (await api.call("GET", "/livez")).status == 200
    assert (await api.call("GET", "/v1/quorum")).status == 200
