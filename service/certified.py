"""Who a certificate names, and what such a caller may do.

A certificate of ours has a subject alternative name that is a URI: `pidkeeper://CLUSTER/KIND/NAME`, percent-encoded,
where KIND is one of KINDS and NAME the id of a controller or broker, or what a person or a machine is called. One that
has none of them is of some client of Kafka, called as its subject is.
"""

from __future__ import annotations

import re
import ssl
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from pidkeeper.service.access import EVERY_ROLE, Access, Principal

SCHEME: Final = "pidkeeper"

KINDS: Final[Mapping[str, frozenset[Access]]] = {
    "controller": frozenset(),
    "broker": frozenset({Access.BROKER, Access.VIEWER}),
    "operator": EVERY_ROLE | {Access.OVERRIDE},
    "viewer": frozenset({Access.VIEWER}),
    "producer": frozenset({Access.PRODUCER}),
}
"""The roles of each over HTTP. Controllers ask each other nothing there; their links want their names."""

_NUMBERED: Final = frozenset({"controller", "broker"})
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}")

_SHORT: Final = {
    "commonName": "CN",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
}

Certificate = Mapping[str, Any]
"""As `ssl.SSLSocket.getpeercert` gives it: of a certificate that was verified."""


class CertifiedName(NamedTuple):
    """What one URI of a certificate says. `kind` is one of KINDS."""

    cluster_id: str
    kind: str
    name: str

    @property
    def uri(self) -> str:
        """As it stands in a certificate."""
        cluster, name = (urllib.parse.quote(part, safe="") for part in (self.cluster_id, self.name))
        return f"{SCHEME}://{cluster}/{self.kind}/{name}"


def names_in(certificate: Certificate) -> Iterator[CertifiedName]:
    """Every name of ours. A URI that is nearly one names nobody."""
    for kind, value in certificate.get("subjectAltName", ()):
        if kind == "URI" and (name := _parsed(value)) is not None:
            yield name


def principal_of(certificate: Certificate, cluster_id: str) -> Principal:
    """Whoever showed the certificate, to a service of this cluster: one that names other clusters alone has no role."""
    names = list(names_in(certificate))
    if not names:
        return Principal(_subject(certificate), frozenset({Access.PRODUCER}))
    ours = [name for name in names if name.cluster_id == cluster_id]
    if not ours:
        return Principal(f"{names[0].kind} {names[0].name} of cluster {names[0].cluster_id}", frozenset())
    roles = frozenset[Access]().union(*(KINDS[name.kind] for name in ours))
    brokers = None if any(name.kind == "operator" for name in ours) else _ids(ours, "broker")
    return Principal(f"{ours[0].kind} {ours[0].name}", roles, brokers)


def end_of(certificate: Certificate) -> float:
    """When it ends, in seconds since the epoch."""
    return float(ssl.cert_time_to_seconds(certificate["notAfter"]))


def controllers_in(certificate: Certificate, cluster_id: str) -> frozenset[int]:
    """The members of the quorum that a certificate names."""
    return _ids([name for name in names_in(certificate) if name.cluster_id == cluster_id], "controller")


def _ids(names: list[CertifiedName], kind: str) -> frozenset[int]:
    return frozenset(int(name.name) for name in names if name.kind == kind)


def _parsed(uri: str) -> CertifiedName | None:
    scheme, _, rest = uri.partition("://")
    parts = [urllib.parse.unquote(part) for part in rest.split("/")]
    if scheme != SCHEME or len(parts) != len(CertifiedName._fields) or not all(parts):
        return None
    name = CertifiedName(*parts)
    if name.kind not in KINDS or name.uri != uri:
        return None
    return None if name.kind in _NUMBERED and _NUMBER.fullmatch(name.name) is None else name


def _subject(certificate: Certificate) -> str:
    """Like `CN=app-7,O=shop`, as Kafka calls the principals of its certificates."""
    found = [(name, value) for part in certificate.get("subject", ()) for name, value in part]
    return ",".join(f"{_SHORT.get(name, name)}={value}" for name, value in reversed(found)) or "a certificate"
