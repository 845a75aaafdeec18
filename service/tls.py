"""TLS contexts from certificate, key and CA files, with errors that say which file is wrong and why."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from pidkeeper.service.settings import SettingsError

MAX_PEM_BYTES: Final = 1024 * 1024
"""Longest file: a bundle of all public CAs is about 220 KiB."""

_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_TIME_FORMATS: Final = {_UTC_TIME: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
"""UTCTime and GeneralizedTime as certificates have them (RFC 5280, section 4.1.2.5)."""

Clock = Callable[[], datetime]


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Paths of PEM files.

    `certificate_file`: the own certificate, and those between it and its CA; `key_file`: its key. `ca_file`: the CAs
    that the other side's certificate must come from.
    """

    certificate_file: str | None = None
    key_file: str | None = None
    ca_file: str | None = None


def utc_now() -> datetime:
    """The time of the system's clock."""
    return datetime.now(UTC)


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


def _load_own(context: ssl.SSLContext, files: TlsFiles, clock: Clock) -> None:
    certificate, key = files.certificate_file, files.key_file
    if certificate is None or key is None:
        raise SettingsError("certificate_file, key_file: a certificate is of use together with its key alone")
    chain = _certificates("certificate_file", certificate)
    _check_readable("key_file", key)
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


def _check_readable(key: str, path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_PEM_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{key}: cannot read {path}: {error.strerror}") from error
    if len(content) > MAX_PEM_BYTES:
        raise SettingsError(f"{key}: {path} is larger than {MAX_PEM_BYTES} bytes, so it is no PEM file")
    return content


def _certificates(key: str, path: str) -> list[bytes]:
    """The DER forms of the certificates in a PEM file, in order. Raises SettingsError if there is none."""
    text = _check_readable(key, path).decode("ascii", "replace")
    blocks = [block.partition(ssl.PEM_FOOTER)[0] for block in text.split(ssl.PEM_HEADER)[1:]]
    try:
        found = [ssl.PEM_cert_to_DER_cert(f"{ssl.PEM_HEADER}{block}{ssl.PEM_FOOTER}") for block in blocks]
    except ValueError as error:
        raise SettingsError(f"{key}: {path} holds a damaged certificate: {error}") from error
    if not found:
        raise SettingsError(f"{key}: {path} holds no certificate in PEM form")
    return found


def _check_validity(key: str, path: str, der: bytes, now: datetime) -> None:
    begins, ends = _validity(der)
    if now > ends:
        raise SettingsError(f"{key}: the certificate in {path} expired on {ends:%Y-%m-%d %H:%M} UTC; renew it")
    if now < begins:
        raise SettingsError(f"{key}: the certificate in {path} is not valid before {begins:%Y-%m-%d %H:%M} UTC")


def _validity(der: bytes) -> tuple[datetime, datetime]:
    """The times from and to which a certificate is valid (RFC 5280, section 4.1), which OpenSSL has accepted."""
    ((_, certificate),) = _elements(der)
    _, content = next(_elements(certificate))
    fields = _elements(content)
    tag, _ = next(fields)
    # Serial number, algorithm and issuer stand before it, and the version in front of them if it is given.
    _, validity = next(islice(fields, 3 if tag == _VERSION else 2, None))
    begins, ends = (
        datetime.strptime(text.decode("ascii"), _TIME_FORMATS[tag]).replace(tzinfo=UTC)
        for tag, text in _elements(validity)
    )
    return begins, ends


def _elements(der: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element in a row of DER."""
    at = 0
    while at < len(der):
        tag, length = der[at], der[at + 1]
        at += 2
        if length >= 0x80:
            octets = length - 0x80
            length = int.from_bytes(der[at : at + octets], "big")
            at += octets
        yield tag, der[at : at + length]
        at += length


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).lower().replace("_", " ")
