from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.cli.dev_certificates import DevAuthority
from pidkeeper.cli.failures import CommandError
from pidkeeper.service.certified import CertifiedName
from pidkeeper.service.tls import client_context
from pidkeeper.service.tls_files import TlsFiles

BROKER = [CertifiedName("c", "broker", "7")]


def test_a_certificate_may_go_into_another_directory_than_its_ca(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    authority = DevAuthority(theirs)
    before = sorted(theirs.iterdir())
    authority.issue("broker-7", BROKER, (), 1, into=ours)
    assert sorted(theirs.iterdir()) == before
    assert [(path.name, path.stat().st_mode & 0o777) for path in sorted(ours.iterdir())] == [
        ("broker-7.key", 0o600),
        ("broker-7.pem", 0o644),
    ]
    client_context(
        TlsFiles(
            certificate_file=str(ours / "broker-7.pem"),
            key_file=str(ours / "broker-7.key"),
            ca_file=str(theirs / "ca.pem"),
        )
    )


def test_a_key_that_is_not_that_of_the_ca_issues_nothing(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for directory in (ours, theirs):
        DevAuthority(directory)
    (ours / "ca.key").write_bytes((theirs / "ca.key").read_bytes())
    with pytest.raises(CommandError, match=r"holds no CA of ours: ca\.key is not the key of ca\.pem"):
        DevAuthority(ours)
