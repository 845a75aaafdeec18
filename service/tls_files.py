"""Where the files of TLS are: nothing is read here, so that whoever needs none of them imports little."""

from __future__ import annotations

import msgspec


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Paths of PEM files.

    `certificate_file`: the own certificate, and those between it and its CA; `key_file`: its key. `ca_file`: the CAs
    that the other side's certificate must come from.
    """

    certificate_file: str | None = None
    key_file: str | None = None
    ca_file: str | None = None
