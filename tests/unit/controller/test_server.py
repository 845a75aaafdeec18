"""What ends a controller's process."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NoReturn

import aiohttp
import pytest

from pidkeeper.cli.local_cluster import free_ports
from pidkeeper.controller import server
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.durable_voters import founding_by
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.raft.core import InvariantViolation
from pidkeeper.controller.storage.directory import format_directory
from pidkeeper.controller.storage.founding import write_founding
from pidkeeper.disk.files import OsFiles
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.service.app import App
from pidkeeper.service.protection import UNPROTECTED, Protection
from pidkeeper.service.server import HttpServer
from tests.support.loopback_cluster import CLUSTER_ID, LoopbackCluster
from tests.support.sharing import sharing
from tests.support.waiting import PATIENCE_SECONDS, until


def break_r4(member: ClusterMember) -> NoReturn:
    """Say that more was applied than there is."""
    member.core.applied_to(10**6)
    raise RuntimeError("R4 is not checked")


class BreakingInterface(MemberInterface):
    """Breaks an invariant in the task of a request."""

    def describe(self) -> NoReturn:
        break_r4(self._member)


@contextlib.asynccontextmanager
async def running(directory: Path, listen: HostPort) -> AsyncIterator[ClusterMember]:
    """A quorum of one, as its process has it."""
    cluster = LoopbackCluster(directory, voters=1)
    settings = cluster.settings(1)
    await cluster.close()
    format_directory(OsFiles(), Path(settings.data_dir), CLUSTER_ID, 1)
    write_founding(OsFiles(), Path(settings.data_dir), founding_by(settings, cluster.founding_id))
    interfaces = server._Interfaces(listen, None, {}, None, ApiLimits(), sharing(), None, UNPROTECTED)
    async with server._running(settings, interfaces) as member:
        yield member


@pytest.mark.parametrize("within", ["a request", "a callback"])
async def test_an_invariant_that_breaks_outside_the_driver_stops_the_member_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, within: str
) -> None:
    """Orders are carried out in the task of their request, answers of ZooKeeper in callbacks of the event loop."""
    monkeypatch.setattr(server, "MemberInterface", BreakingInterface)
    listen = HostPort("127.0.0.1", *free_ports(1))
    async with running(tmp_path, listen) as member:
        await until(member.leadership.serving)
        if within == "a callback":
            asyncio.get_running_loop().call_soon(break_r4, member)
        else:
            async with aiohttp.ClientSession() as http:
                assert (await http.get(f"http://{listen}/v1/quorum")).status == 500
        fault = await asyncio.wait_for(asyncio.shield(member.ended), PATIENCE_SECONDS)
        assert isinstance(fault, InvariantViolation)
        assert member.driver.faulted
        assert not member.leadership.serving()


async def test_callers_leave_the_files_that_storage_and_peers_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no more may be open than most systems begin with."""
    given: list[int] = []

    def counted(app: App, *, max_connections: int, protection: Protection) -> HttpServer:
        given.append(max_connections)
        return HttpServer(app, max_connections=max_connections, protection=protection)

    monkeypatch.setattr(server, "HttpServer", counted)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 1024))
    async with running(tmp_path, HostPort("127.0.0.1", *free_ports(1))):
        assert given == [1024 - server.SPARE_FILES]
