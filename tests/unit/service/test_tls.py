"""Files that cannot be used for TLS, each with an error that names it."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec
import pytest

from pidkeeper.service.protection import UNPROTECTED, check_urls, load_protection
from pidkeeper.service.settings import SettingsError
from pidkeeper.service.tls import Tls, client_context, server_context
from pidkeeper.service.tls_files import TlsFiles
from tests.support.certificates import DAY, NOW, CertificateAuthority


@pytest.fixture
def files(authority: CertificateAuthority) -> TlsFiles:
    return authority.issue("server")


def refused(files: TlsFiles, reason: str) -> None:
    for make in (server_context, client_context):
        with pytest.raises(SettingsError, match=reason):
            make(files)


def changed(files: TlsFiles, **paths: str | None) -> TlsFiles:
    return msgspec.structs.replace(files, **paths)


def test_good_files_make_strict_contexts(files: TlsFiles) -> None:
    server, client = server_context(files), client_context(files)
    assert server.verify_mode is ssl.CERT_REQUIRED
    assert server_context(changed(files, ca_file=None)).verify_mode is ssl.CERT_NONE
    assert (client.verify_mode, client.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert server.minimum_version is client.minimum_version is ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("key", ["certificate_file", "key_file", "ca_file"])
def test_a_missing_file_is_named(files: TlsFiles, key: str) -> None:
    refused(changed(files, **{key: "/nonexistent.pem"}), f"^{key}: cannot read /nonexistent.pem: No such file")


@pytest.mark.parametrize("key", ["certificate_file", "ca_file"])
@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "holds no certificate"),
        (b"\xff\xfe", "holds no certificate"),
        (b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n", "damaged|cannot be used"),
        (b"-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n", "cannot be used"),
        (b"-----BEGIN CERTIFICATE-----\nMAA=\n", "cannot be used"),
        (b"x" * (1024 * 1024 + 1), "larger than"),
    ],
)
def test_what_is_no_certificate_is_refused(
    files: TlsFiles, tmp_path: Path, key: str, content: bytes, reason: str
) -> None:
    path = tmp_path / "broken.pem"
    path.write_bytes(content)
    refused(changed(files, **{key: str(path)}), reason)


def test_the_key_of_another_certificate_is_refused(files: TlsFiles, authority: CertificateAuthority) -> None:
    other = authority.issue("other")
    refused(
        changed(files, key_file=other.key_file), r"^key_file: .*other.key is not the key of the certificate in .*server"
    )


def test_a_file_that_is_no_key_is_refused(files: TlsFiles) -> None:
    refused(changed(files, key_file=files.certificate_file), r"^key_file: .* cannot be used")


def test_an_encrypted_key_is_refused_without_asking_for_its_password(authority: CertificateAuthority) -> None:
    refused(authority.issue("locked", password=b"secret"), r"^key_file: .*locked.key is encrypted")


def test_certificate_and_key_come_together(files: TlsFiles) -> None:
    refused(changed(files, key_file=None), "together with its key")
    with pytest.raises(SettingsError, match="needs a certificate"):
        server_context(TlsFiles(key_file=files.key_file))


def test_an_expired_certificate_is_refused_with_its_date(authority: CertificateAuthority) -> None:
    ended = NOW - DAY
    refused(authority.issue("old", ends=ended), rf"^certificate_file: .*old.pem expired on {ended:%Y-%m-%d %H:%M} UTC")


def test_a_certificate_of_the_future_is_refused(authority: CertificateAuthority) -> None:
    begins = NOW + DAY
    early = authority.issue("early", begins=begins, ends=NOW + 2 * DAY)
    refused(early, rf"^certificate_file: .*early.pem is not valid before {begins:%Y-%m-%d %H:%M} UTC")


def test_an_expired_ca_is_refused(tmp_path: Path, files: TlsFiles) -> None:
    old = CertificateAuthority(tmp_path, "old CA", ends=NOW - DAY)
    refused(changed(files, ca_file=old.path), r"^ca_file: .*old CA.pem expired")


def test_validity_counts_to_the_second(files: TlsFiles) -> None:
    ends = NOW + DAY
    server_context(files, clock=lambda: ends)
    with pytest.raises(SettingsError, match="expired"):
        server_context(files, clock=lambda: ends + DAY / 86_400)


def test_a_date_behind_2049_is_read(authority: CertificateAuthority) -> None:
    late = authority.issue("late", ends=NOW.replace(year=2060, day=1))
    server_context(late)
    with pytest.raises(SettingsError, match="expired on 2060-"):
        server_context(late, clock=lambda: NOW.replace(year=2061, day=1))


class Used:
    """Files that a process uses, and others that are put in their place."""

    def __init__(self, directory: Path) -> None:
        self.authority = CertificateAuthority(directory)
        self.files = self.authority.issue("used")
        self.tls = Tls(self.files)

    def replace(self, other: TlsFiles, *names: str) -> None:
        for name in names:
            path = Path(getattr(self.files, name))
            new = path.with_suffix(".new")
            new.write_bytes(Path(getattr(other, name)).read_bytes())
            new.replace(path)


def test_new_files_are_used_and_what_is_of_no_use_is_not(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    used = Used(tmp_path)
    before, ends = used.tls.contexts, used.tls.ends
    used.tls.refresh()
    assert used.tls.contexts is before, "nothing has changed"
    later = used.authority.issue("later", ends=NOW + 1.5 * DAY)
    used.replace(later, "certificate_file")
    used.tls.refresh()
    used.tls.refresh()
    assert (used.tls.contexts, used.tls.ends) == (before, ends), "the key is still that of the other one"
    assert [record.levelname for record in caplog.records] == ["WARNING"], "told once"
    used.replace(later, "key_file")
    used.tls.refresh()
    assert used.tls.contexts is not before
    assert used.tls.ends == NOW + 1.5 * DAY
    kept = used.tls.contexts
    Path(used.files.key_file or "").unlink()
    used.tls.refresh()
    assert used.tls.contexts is kept


def test_files_that_do_not_name_the_process_any_more_are_not_used(tmp_path: Path) -> None:
    wanted = "pidkeeper://c/broker/7"
    authority = CertificateAuthority(tmp_path)
    files = authority.issue("seven", uris=[wanted])
    protection = load_protection("required", files, ("broker", 7))
    assert protection.tls is not None
    before = protection.tls.contexts
    eight = authority.issue("eight", uris=["pidkeeper://c/broker/8"])
    for name in ("certificate_file", "key_file"):
        Path(getattr(files, name)).write_bytes(Path(getattr(eight, name)).read_bytes())
    protection.tls.refresh()
    assert protection.tls.contexts is before


@pytest.mark.parametrize(
    ("uris", "own", "cluster", "reason"),
    [
        ([], ("broker", 7), None, "must have pidkeeper://CLUSTER/broker/7 .* it has none of the kind"),
        (["pidkeeper://c/broker/8"], ("broker", 7), None, "it has pidkeeper://c/broker/8"),
        (["pidkeeper://c/broker/1"], ("controller", 1), "c", "must have pidkeeper://c/controller/1"),
        (["pidkeeper://d/controller/1"], ("controller", 1), "c", "must have pidkeeper://c/controller/1"),
        (["pidkeeper://c/broker/7", "pidkeeper://d/broker/7"], ("broker", 7), None, "names several clusters"),
    ],
)
def test_a_certificate_that_does_not_name_the_process_is_refused(
    authority: CertificateAuthority, uris: list[str], own: tuple[str, int], cluster: str | None, reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        load_protection("optional", authority.issue("own", uris=uris), own, cluster)


def test_files_and_level_go_together(files: TlsFiles) -> None:
    with pytest.raises(SettingsError, match="without effect"):
        load_protection("off", TlsFiles(ca_file="x"), ("broker", 7))
    with pytest.raises(SettingsError, match=r"tls.ca_file: security = \"required\" needs it"):
        load_protection("required", changed(files, ca_file=None), ("broker", 7))
    assert load_protection("off", TlsFiles(), ("broker", 7)) is UNPROTECTED
    with pytest.raises(SettingsError, match="http://h:1 is no https"):
        check_urls("required", ["https://h:1", "http://h:1"], "controllers")
    check_urls("optional", ["http://h:1"], "controllers")
