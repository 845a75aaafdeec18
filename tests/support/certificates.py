"""A CA and what it issues, made when a test runs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from pidkeeper.service.tls_files import TlsFiles

NOW = datetime.now(UTC).replace(microsecond=0)
DAY = timedelta(days=1)
HOSTS = ("localhost", "127.0.0.1")


class CertificateAuthority:
    """A CA whose files are in `directory`; `path` is its certificate."""

    def __init__(self, directory: Path, name: str = "test CA", *, ends: datetime = NOW + 2 * DAY) -> None:
        self._directory = directory
        self._name = _name(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        certificate = (
            _builder(self._name, self._name, self._key.public_key(), NOW - 20 * DAY, ends)
            .add_extension(constraints, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.path = _write(directory / f"{name}.pem", certificate.public_bytes(Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        begins: datetime = NOW - 10 * DAY,
        ends: datetime = NOW + DAY,
        password: bytes | None = None,
        uris: Sequence[str] = (),
        hosts: Sequence[str] = HOSTS,
    ) -> TlsFiles:
        """Certificate and key for these hosts and with these URIs; the CA's own certificate as the one to trust."""
        key = ec.generate_private_key(ec.SECP256R1())
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in uris]
        names += [x509.IPAddress(ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts]
        certificate = (
            _builder(_name(name), self._name, key.public_key(), begins, ends)
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        encryption: KeySerializationEncryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password)
        )
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        return TlsFiles(
            certificate_file=_write(self._directory / f"{name}.pem", certificate.public_bytes(Encoding.PEM)),
            key_file=_write(self._directory / f"{name}.key", pem),
            ca_file=self.path,
        )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    builder = builder.serial_number(x509.random_serial_number())
    return builder.not_valid_before(begins).not_valid_after(ends)


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)
