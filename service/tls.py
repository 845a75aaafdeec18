"""TLS contexts from certificate, key and CA files, made anew when these change; errors say which is wrong and why.

What reads certificates is imported with the first one: it takes 8 MiB, which a process without TLS can do without.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from pidkeeper.service.certified import CertifiedName, names_in
from pidkeeper.service.refreshing import Refreshed
from pidkeeper.service.settings import SettingsError
from pidkeeper.service.tls_files import TlsFiles

if TYPE_CHECKING:
    from cryptography import x509

MAX_PEM_BYTES: Final = 1024 * 1024
"""Longest file: a bundle of all public CAs is about 220 KiB."""

Clock = Callable[[], datetime]


class Contexts(NamedTuple):
    """`listener`: callers may show a certificate of the CA; `members`: they must. `client`: the server is checked by
    its name. `dialler`: by its CA alone, so whoever dials looks at what the certificate says.
    """

    listener: ssl.SSLContext
    members: ssl.SSLContext
    client: ssl.SSLContext
    dialler: ssl.SSLContext


def utc_now() -> datetime:
    """The time of the system's clock."""
    return datetime.now(UTC)


class Tls:
    """The contexts of a process, and when its own certificate ends. Raises SettingsError for files of no use.

    `check` gets the names in the own certificate, and raises SettingsError if they are not the process's.
    """

    def __init__(
        self,
        files: TlsFiles,
        clock: Clock = utc_now,
        check: Callable[[Sequence[CertifiedName]], None] = lambda _: None,
    ) -> None:
        self._files = files
        self._clock = clock
        self._check = check
        self._read = Refreshed("a file of [tls]", msgspec.structs.astuple(files), self._load)

    @property
    def contexts(self) -> Contexts:
        """Those of the files as they are."""
        return self._read.value[0]

    @property
    def ends(self) -> datetime:
        """When the own certificate does."""
        return self._read.value[1]

    def refresh(self) -> None:
        """Read the files if one has changed."""
        self._read.refresh()

    def _load(self) -> tuple[Contexts, datetime]:
        files, clock = self._files, self._clock
        listener, members = server_context(files, clock), server_context(files, clock)
        client, dialler = client_context(files, clock), client_context(files, clock)
        listener.verify_mode = ssl.CERT_OPTIONAL
        dialler.check_hostname = False
        assert files.certificate_file is not None, "a context was made of it"
        own = _certificates("certificate_file", files.certificate_file)[0]
        self._check([*names_in({"subjectAltName": [("URI", uri) for uri in _uris(own)]})])
        return Contexts(listener, members, client, dialler), own.not_valid_after_utc


def server_context(files: TlsFiles, clock: Clock = utc_now) -> ssl.SSLContext:
    """For a listener: TLS 1.2 or newer. With a `ca_file` clients must show a certificate. Raises SettingsError."""
    if files.certificate_file is None:
        raise SettingsError("certificate_file: a listener with TLS needs a certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load_own(context, files, clock)
    if files.ca_file is not None:
        _load_authorities(context, files.ca_file, clock)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def client_context(files: TlsFiles, clock: Clock = utc_now) -> ssl.SSLContext:
    """For connections out: the server is checked by name and CA, those of the system without a `ca_file`.

    Raises SettingsError.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.ca_file is None:
        context.load_default_certs()
    else:
        _load_authorities(context, files.ca_file, clock)
    if files.certificate_file is not None:
        _load_own(context, files, clock)
    return context


def _uris(certificate: x509.Certificate) -> list[str]:
    from cryptography import x509

    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return []
    return found.get_values_for_type(x509.UniformResourceIdentifier)


def _load_own(context: ssl.SSLContext, files: TlsFiles, clock: Clock) -> None:
    certificate, key = files.certificate_file, files.key_file
    if certificate is None or key is None:
        raise SettingsError("certificate_file, key_file: a certificate is of use together with its key alone")
    chain = _certificates("certificate_file", certificate)
    _read("key_file", key)
    try:
        context.load_cert_chain(certificate, key, password=_refuse_password(key))
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise SettingsError(f"key_file: {key} is not the key of the certificate in {certificate}") from error
        raise SettingsError(f"key_file: {key} with {certificate} cannot be used: {_reason(error)}") from error
    _check_validity("certificate_file", certificate, chain[0], clock())


def _load_authorities(context: ssl.SSLContext, path: str, clock: Clock) -> None:
    authorities = _certificates("ca_file", path)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise SettingsError(f"ca_file: {path} cannot be used: {_reason(error)}") from error
    if len(authorities) == 1:
        _check_validity("ca_file", path, authorities[0], clock())


def _refuse_password(path: str) -> Callable[[], str]:
    """What OpenSSL asks for a password, in place of asking at the terminal."""

    def refuse() -> str:
        raise SettingsError(f"key_file: {path} is encrypted; store the key without a password")

    return refuse


def _read(key: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_PEM_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{key}: cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_PEM_BYTES:
        raise SettingsError(f"{key}: {path} is larger than {MAX_PEM_BYTES} bytes, so it is no PEM file")
    return content


def _certificates(key: str, path: str) -> list[x509.Certificate]:
    """Those in a PEM file, in order. Raises SettingsError if there is none."""
    from cryptography import x509

    content = _read(key, path)
    if ssl.PEM_HEADER.encode() not in content:
        raise SettingsError(f"{key}: {path} holds no certificate in PEM form")
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise SettingsError(f"{key}: {path} holds a damaged certificate and cannot be used: {error}") from error


def _check_validity(key: str, path: str, certificate: x509.Certificate, now: datetime) -> None:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > ends:
        raise SettingsError(f"{key}: the certificate in {path} expired on {ends:%Y-%m-%d %H:%M} UTC; renew it")
    if now < begins:
        raise SettingsError(f"{key}: the certificate in {path} is not valid before {begins:%Y-%m-%d %H:%M} UTC")


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")
