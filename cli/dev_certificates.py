"""A CA for trying TLS out, and certificates of everybody in a cluster. Its key lies beside them: for nothing else."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from pidkeeper.cli.failures import CommandError, ExitCode
from pidkeeper.service.certified import CertifiedName

CA_DAYS: Final = 3650
BEGINS_BEFORE: Final = timedelta(hours=1)
"""Clocks of machines may differ by so much."""


class DevAuthority:
    """The CA in a directory: `ca.pem` and `ca.key`. It is made if it is not there. Raises CommandError, OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        certificate, key = directory / "ca.pem", directory / "ca.key"
        if certificate.exists() != key.exists():
            missing = key if certificate.exists() else certificate
            raise CommandError(f"{missing} is gone: bring it back, or remove what is in {directory}", ExitCode.REFUSED)
        if not certificate.exists():
            self._make()
        try:
            self._certificate = x509.load_pem_x509_certificate(certificate.read_bytes())
            self._key: Any = load_pem_private_key(key.read_bytes(), None)
            if self._key.public_key() != self._certificate.public_key():
                raise ValueError("ca.key is not the key of ca.pem")
        except (ValueError, TypeError) as error:
            raise CommandError(f"{directory} holds no CA of ours: {error}", ExitCode.REFUSED) from error

    def issue(
        self, file: str, names: Sequence[CertifiedName], hosts: Sequence[str], days: float, into: Path | None = None
    ) -> None:
        """Write `file`.pem and `file`.key: a certificate with these names, for servers on these hosts and clients.

        They go beside the CA, or `into` another directory, which is made if it is not there.
        """
        directory = into or self._directory
        directory.mkdir(parents=True, exist_ok=True)
        key = ec.generate_private_key(ec.SECP256R1())
        alternatives: list[x509.GeneralName] = [x509.UniformResourceIdentifier(name.uri) for name in names]
        alternatives += [_host(host) for host in hosts]
        builder = _builder(file, self._certificate.subject, key.public_key(), days)
        if alternatives:
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        certificate = builder.add_extension(issuer, critical=False).sign(self._key, hashes.SHA256())
        _write(directory / f"{file}.key", _private(key), 0o600)
        _write(directory / f"{file}.pem", certificate.public_bytes(Encoding.PEM), 0o644)

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = "pidkeeper, for trying out"
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        certificate = (
            _builder(name, _subject(name), key.public_key(), CA_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write(self._directory / "ca.key", _private(key), 0o600)
        _write(self._directory / "ca.pem", certificate.public_bytes(Encoding.PEM), 0o644)


def issue_for_cluster(
    directory: Path,
    cluster_id: str,
    *,
    controllers: Sequence[int],
    brokers: Sequence[int],
    hosts: Sequence[str],
    days: int,
) -> list[str]:
    """Certificates of all members, and of an operator, a viewer and a producer; the names of the files."""
    authority = DevAuthority(directory)
    members = [("controller", node, f"controller-{node}") for node in controllers]
    members += [("broker", broker, f"agent-{broker}") for broker in brokers]
    for kind, number, file in members:
        authority.issue(file, [CertifiedName(cluster_id, kind, str(number))], hosts, days)
    people = ("operator", "viewer", "producer")
    for kind in people:
        authority.issue(kind, [CertifiedName(cluster_id, kind, "dev")], (), days)
    return [*(file for _, _, file in members), *people]


def _builder(subject: str, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(_subject(subject)).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(now - BEGINS_BEFORE).not_valid_after(now + timedelta(days=days))


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _write(path: Path, content: bytes, mode: int) -> None:
    """In the place of what is there: a process that looks meanwhile reads the one or the other."""
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with os.fdopen(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
        file.write(content)
    unfinished.replace(path)
