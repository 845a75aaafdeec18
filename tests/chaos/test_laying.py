"""Every process of a cluster goes through links of its own to all others, after a restart too, or if it comes later."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pidkeeper.cli.local_cluster import Member, member_name
from tests.chaos.links.laying import Links, best_proxies
from tests.chaos.links.proxies import PortKind
from tests.chaos.shim.build import why_no_shim
from tests.chaos.shim.preload import Shim
from tests.chaos.stage import ChaosCluster
from tests.support.cluster import CONTROLLER_OPTIONS, WAIT_SECONDS, wait_until
from tests.support.http_calls import call

pytestmark = pytest.mark.skipif(why_no_shim() is not None, reason=str(why_no_shim()))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def links(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Links]:
    """Of a ready cluster of three controllers and an agent, with one client."""
    directory = tmp_path_factory.mktemp("laid")
    proxies, shim = best_proxies(), Shim(directory / "shim")
    await proxies.start()
    # As late as can be: nobody else may listen on its ports before its members do.
    cluster = ChaosCluster(directory, (shim,), controllers=3, agents=1, controller_options=CONTROLLER_OPTIONS)
    try:
        laid = Links(cluster, shim, proxies)
        await laid.lay(["client-1"], ["allocator-1"])
        cluster.start()
        cluster.wait_ready(seconds=WAIT_SECONDS)
        yield laid
    finally:
        cluster.kill(*[member for member in cluster.members() if cluster.running(member)])
        await proxies.close()


def all_connected(links: Links, member: Member) -> None:
    """Wait until the member has gone over each of its peer links, and others over each to it."""
    name = member_name(member)
    peers = [one for one in [*links.of(name), *links.to(name)] if one.port is PortKind.PEER]
    wait_until(lambda: all(links.connects(link) > 0 for link in peers), f"connections on {len(peers)} links of {name}")


def test_every_ordered_pair_has_a_link_and_goes_over_it(links: Links) -> None:
    controllers, (agent,) = links.cluster.layout.controllers, links.cluster.layout.agents
    for controller in controllers:
        all_connected(links, controller)
    found = {(one.source, one.target, one.port) for one in links.all()}
    names = [member_name(one) for one in controllers]
    peers = {(one, other, PortKind.PEER) for one in names for other in names if one != other}
    http = {(asking, name, PortKind.HTTP) for asking in ("agent-1", "allocator-1") for name in names}
    client = {("client-1", "agent-1", port) for port in (PortKind.KAFKA, PortKind.HTTP)}
    assert found == peers | http | client
    assert sum(links.connects(link) for link in links.of(member_name(agent))) > 0


def test_no_member_is_connected_to_another_but_by_a_link(links: Links) -> None:
    """What the kernel tells: every connection to a member's port comes from the proxy, or from this process."""
    ports = {int(link.upstream.rpartition(":")[2]) for link in links.all()}
    for member in links.cluster.members():
        assert ports.isdisjoint(remote_ports(member.pid)), f"{member_name(member)} goes around its links"


def remote_ports(pid: int) -> set[int]:
    """The ports to which the process has connected."""
    own = {link.stat().st_ino for link in Path(f"/proc/{pid}/fd").iterdir() if link.exists()}
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if int(fields[9]) in own and fields[3] == "01":
            found.add(int(fields[2].partition(":")[2], 16))
    return found


def test_a_real_kafka_client_goes_over_its_link_to_the_advertised_address_too(links: Links) -> None:
    (agent,) = links.cluster.layout.agents
    (kafka,) = [link for link in links.of("client-1") if link.port is PortKind.KAFKA]
    settings = {"bootstrap.servers": agent.kafka, "transactional.id": "chaos"}
    asks = f"import confluent_kafka; confluent_kafka.Producer({settings!r}).init_transactions(30); print('done')"
    command = [*links.program("client-1"), sys.executable, "-c", asks]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert answer.stdout == "done\n", answer.stderr
    # To its bootstrap server, and to the coordinator at the address that the agent tells.
    assert links.connects(kafka) >= 2


def test_a_client_of_this_process_is_told_where_to_connect(links: Links) -> None:
    (agent,) = links.cluster.layout.agents
    kafka, http = links.of("client-1")
    assert links.routed("client-1", agent.kafka) == kafka.listen
    assert links.routed("client-2", agent.kafka) == agent.kafka
    assert call(f"http://{links.routed('client-1', http.upstream)}", "GET", "/livez").status == 200


def test_a_member_that_starts_again_keeps_its_links(links: Links) -> None:
    member = links.cluster.layout.controllers[0]
    before = {link.name: links.connects(link) for link in links.of(member_name(member))}
    links.cluster.kill(member)
    links.cluster.start(member)
    links.cluster.wait_ready(member, seconds=WAIT_SECONDS)
    wait_until(
        lambda: all(links.connects(link) > before[link.name] for link in links.of(member_name(member))),
        "connections on all its links",
    )


@pytest.mark.asyncio(loop_scope="module")
async def test_a_controller_that_comes_later_has_links_as_well(links: Links) -> None:
    cluster = links.cluster
    new = cluster.add_controller()
    await links.lay()
    cluster.start(new)
    all_connected(links, new)
    assert {one.source for one in links.to(member_name(new))} == {
        *("controller-1", "controller-2", "controller-3"),
        *("agent-1", "allocator-1"),
    }
