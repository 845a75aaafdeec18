from __future__ import annotations

import uuid

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pidkeeper.broker_agent.coordinator import directory
from pidkeeper.broker_agent.coordinator.directory import Directory, Node, weight
from pidkeeper.protocol.groups import offsets_partition
from pidkeeper.protocol.messages import BrokerDescription

OWN = Node(7, "own", 9092)


def broker(number: int, *, fenced: bool = False, kafka: str | None = "") -> BrokerDescription:
    return BrokerDescription(number, 1, fenced, f"host-{number}:{9000 + number}" if kafka == "" else kafka)


def test_without_a_list_an_agent_names_itself() -> None:
    known = Directory(OWN)
    assert (known.nodes, known.coordinator("t")) == ((OWN,), OWN)
    known.update([])
    assert (known.nodes, known.coordinator("t")) == ((OWN,), OWN)


def test_the_fenced_and_the_unreachable_coordinate_nothing() -> None:
    known = Directory(OWN)
    known.update(
        [broker(1, fenced=True), broker(2, kafka=None), broker(3), broker(4, kafka="nonsense"), broker(5, kafka="h:1x")]
    )
    assert known.nodes == (OWN, Node(3, "host-3", 9003))
    assert {known.coordinator(f"id-{number}") for number in range(50)} == {Node(3, "host-3", 9003)}


def test_an_agent_that_is_not_in_the_list_is_named_to_clients_but_coordinates_nothing() -> None:
    """All agents have to name the same coordinator, and the others do not know of this one."""
    known = Directory(OWN)
    known.update([broker(3), broker(9)])
    assert [node.id for node in known.nodes] == [7, 3, 9]
    assert {known.coordinator(f"id-{number}").id for number in range(50)} == {3, 9}


def test_its_own_address_is_the_one_that_it_knows_itself() -> None:
    known = Directory(OWN)
    known.update([broker(7, kafka="old-address:1"), broker(3)])
    assert known.nodes == (OWN, Node(3, "host-3", 9003))


def test_an_ipv6_address_is_read() -> None:
    known = Directory(OWN)
    known.update([broker(3, kafka="[::1]:9093")])
    assert known.nodes == (OWN, Node(3, "::1", 9093))


@given(st.sets(st.integers(0, 2**31 - 1), min_size=2, max_size=12), st.lists(st.text(max_size=30), max_size=30))
def test_an_agent_that_dies_moves_its_own_ids_alone(numbers: set[int], keys: list[str]) -> None:
    before, after = Directory(OWN), Directory(Node(8, "other", 1))
    dead = min(numbers)
    before.update([broker(number, kafka="h:1") for number in numbers])
    after.update([broker(number, kafka="h:1", fenced=number == dead) for number in sorted(numbers, reverse=True)])
    for key in keys:
        if (named := before.coordinator(key)).id != dead:
            assert after.coordinator(key) == named
        else:
            assert after.coordinator(key).id in numbers - {dead}


def test_ids_are_spread_evenly() -> None:
    known = Directory(OWN)
    known.update([broker(number) for number in range(4)])
    counts = dict.fromkeys(range(4), 0)
    for number in range(8000):
        counts[known.coordinator(f"id-{number}").id] += 1
    assert all(1800 < count < 2200 for count in counts.values()), counts


def test_groups_are_coordinated_by_those_alone_who_keep_records() -> None:
    known = Directory(OWN)
    assert known.group_coordinator("g") == OWN
    known.update([broker(1), msgspec.structs.replace(broker(2), store_id=uuid.uuid4()), broker(3)])
    assert {known.group_coordinator(f"g-{number}").id for number in range(20)} == {2}
    known.update([broker(1), broker(3)])
    assert {known.group_coordinator(f"g-{number}").id for number in range(50)} == {1, 3}, "they come again, or wait"


def test_the_weights_never_change() -> None:
    """Agents of two builds would send clients to and fro."""
    assert weight(0, b"t").hex() == "74028719466d1f82"
    assert weight(2**31 - 1, "zürich".encode()).hex() == "6eef34c89e4c7972"


def test_the_list_is_bounded_the_same_way_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MAX_NODES", 3)
    one, other = Directory(OWN), Directory(OWN)
    one.update([broker(number) for number in range(10)])
    other.update([broker(number) for number in reversed(range(10))])
    assert [node.id for node in one.nodes] == [7, 0, 1, 2]
    assert one.nodes == other.nodes


def test_whoever_asks_for_a_coordinator_makes_the_agent_look_again() -> None:
    looks: list[None] = []
    Directory(OWN, lambda: looks.append(None)).coordinator("t")
    assert len(looks) == 1


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("", 0),
        ("a", 47),
        ("ab", 5),
        ("console-consumer-1", 24),
        ("polygenelubricants", 0),
        ("zürich", 18),
        ("\U0001f600", 49),
        ("my-group", 36),
        ("connect-sink", 22),
    ],
)
def test_a_groups_partition_is_javas(group_id: str, partition: int) -> None:
    """Printed by a JVM: `(s.hashCode() & 0x7fffffff) % 50`. One of them hashes to the least integer."""
    assert offsets_partition(group_id) == partition
