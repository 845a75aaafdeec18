"""ZooKeeper's connect string, `host:port,host:port/chroot`, checked before anybody connects."""

from __future__ import annotations

import re
from typing import Final

from pidkeeper.service.settings import SettingsError

MAX_CONNECT_LENGTH: Final = 4096
"""In characters. 15 servers with the longest DNS names (253, with port and comma 260) leave 196 for a chroot."""

DEFAULT_PORT: Final = 2181
"""Taken where a host has no port, as Kafka's `zookeeper.connect` has it."""

_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?|\[[0-9A-Fa-f:.]+\]")
_PORT: Final = re.compile("[0-9]{1,5}")
_CHROOT_PART: Final = re.compile(r"[!-.0-~]+")


def check_connect(connect: str) -> str:
    """The connect string without spaces and with every port. Raises SettingsError that says what is wrong with it.

    An IPv6 host stands in brackets. A chroot starts with a slash and does not end with one.
    """
    if len(connect) > MAX_CONNECT_LENGTH:
        raise SettingsError(f"the connect string has {len(connect)} characters, at most {MAX_CONNECT_LENGTH} may be")
    servers, slash, chroot = connect.strip().partition("/")
    checked = ",".join(_server(server.strip(), connect) for server in servers.split(","))
    return f"{checked}/{_chroot(chroot, connect)}" if slash else checked


def _server(server: str, connect: str) -> str:
    host, mark, rest = server.partition("]" if server.startswith("[") else ":")
    host, rest = (host + mark, rest) if mark == "]" else (host, mark + rest)
    if not host:
        raise _refused(connect, f"there is no host in {server!r}")
    if _HOST.fullmatch(host) is None:
        raise _refused(connect, f"{host!r} is not a host name or an address")
    if not rest:
        return f"{host}:{DEFAULT_PORT}"
    port = rest.removeprefix(":")
    if not (rest.startswith(":") and _PORT.fullmatch(port) and 1 <= int(port) <= 65_535):
        raise _refused(connect, f"the port {port!r} of {host} is not a number from 1 to 65535 (a chroot starts with /)")
    return f"{host}:{int(port)}"


def _chroot(chroot: str, connect: str) -> str:
    if not chroot or chroot.endswith("/"):
        raise _refused(connect, f"the chroot {'/' + chroot!r} must not end with a slash")
    for part in chroot.split("/"):
        if _CHROOT_PART.fullmatch(part) is None or part in {".", ".."}:
            raise _refused(connect, f"the chroot {'/' + chroot!r} has the part {part!r}, which is no znode's name")
    return chroot


def _refused(connect: str, reason: str) -> SettingsError:
    return SettingsError(f"{connect!r} is not host:port,host:port/chroot: {reason}")
