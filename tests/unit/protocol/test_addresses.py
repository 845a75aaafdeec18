"""Addresses: host and port, and nothing else."""

from __future__ import annotations

import pytest

from pidkeeper.protocol.addresses import AddressError, HostPort


@pytest.mark.parametrize(
    ("address", "pair"),
    [
        ("127.0.0.1:80", HostPort("127.0.0.1", 80)),
        ("[::1]:65535", HostPort("::1", 65535)),
        ("host:0", HostPort("host", 0)),
    ],
)
def test_addresses(address: str, pair: HostPort) -> None:
    assert HostPort.parse(address, "listen") == pair
    assert str(pair) == address


@pytest.mark.parametrize("address", ["", "host", "host:", ":80", "host:x", "host:65536", "host:-1", "host:²", "h:+1"])
def test_bad_addresses_name_the_key(address: str) -> None:
    with pytest.raises(AddressError, match=r"^listen: .*not host:port"):
        HostPort.parse(address, "listen")


def test_an_endless_port_is_refused_without_being_converted() -> None:
    with pytest.raises(AddressError, match="not host:port"):
        HostPort.parse("host:" + "9" * 5000, "listen")
