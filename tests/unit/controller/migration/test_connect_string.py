"""ZooKeeper's connect string: what passes, and what is said about the rest."""

from __future__ import annotations

import pytest

from pidkeeper.controller.migration.connect_string import MAX_CONNECT_LENGTH, check_connect
from pidkeeper.service.settings import SettingsError


@pytest.mark.parametrize(
    ("connect", "checked"),
    [
        ("zk1:2181", "zk1:2181"),
        ("zk1:2181,zk2:2182,zk3:65535", "zk1:2181,zk2:2182,zk3:65535"),
        ("zk1:1/kafka", "zk1:1/kafka"),
        ("zk1:2181,zk2:2181/kafka/one", "zk1:2181,zk2:2181/kafka/one"),
        ("127.0.0.1:2181", "127.0.0.1:2181"),
        ("[::1]:2181,[fe80::1]", "[::1]:2181,[fe80::1]:2181"),
        ("zk-0.zk.svc.cluster.local.", "zk-0.zk.svc.cluster.local.:2181"),
        (" zk1:2181 , zk2/kafka ", "zk1:2181,zk2:2181/kafka"),
        ("zk1:02181", "zk1:2181"),
    ],
)
def test_passes(connect: str, checked: str) -> None:
    assert check_connect(connect) == checked
    assert check_connect(checked) == checked


@pytest.mark.parametrize(
    ("connect", "said"),
    [
        ("", "no host in ''"),
        ("/kafka", "no host in ''"),
        (":2181", "no host in ':2181'"),
        ("zk1:2181,,zk2:2181", "no host in ''"),
        ("zk1:2181,", "no host in ''"),
        ("zk 1:2181", "'zk 1' is not a host"),
        ("user@zk1:2181", "'user@zk1' is not a host"),
        ("zk1?:2181", r"'zk1\?' is not a host"),
        ("[zk1]:2181", r"'\[zk1\]' is not a host"),
        ("[::1:2181", r"'\[::1:2181' is not a host"),
        ("zk1:", "port '' of zk1 is not a number"),
        ("zk1:abc", "port 'abc' of zk1"),
        ("zk1:-1", "port '-1' of zk1"),
        ("zk1:0", "port '0' of zk1"),
        ("zk1:65536", "port '65536' of zk1"),
        ("zk1:\u0662", "port '\u0662' of zk1"),
        ("::1:2181", "no host"),
        ("[::1]2181", r"port '2181' of \[::1\]"),
        ("zk1:2181kafka", r"port '2181kafka' of zk1 .*a chroot starts with /"),
        ("zk1:2181/", "chroot '/' must not end with a slash"),
        ("zk1:2181/kafka/", "chroot '/kafka/' must not end with a slash"),
        ("zk1:2181//kafka", "has the part ''"),
        ("zk1:2181/kafka/../other", r"has the part '\.\.'"),
        ("zk1:2181/ka fka", "has the part 'ka fka'"),
        ("zk1:2181/a,zk2:2181/b\n/c", "no znode's name"),
    ],
)
def test_refused(connect: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        check_connect(connect)


def test_bound() -> None:
    longest = "zk1:2181/" + "a" * (MAX_CONNECT_LENGTH - len("zk1:2181/"))
    assert check_connect(longest) == longest
    with pytest.raises(SettingsError, match="4097 characters, at most 4096"):
        check_connect(longest + "a")
