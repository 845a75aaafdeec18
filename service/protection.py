"""How far a process insists on TLS and on names: one setting, for all that it listens on and connects to."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Sequence
from typing import Final, Literal

from pidkeeper.service.access import Principal
from pidkeeper.service.certified import Certificate, CertifiedName, principal_of
from pidkeeper.service.listening import MAX_HANDSHAKES
from pidkeeper.service.settings import SettingsError
from pidkeeper.service.tls import Contexts, Tls
from pidkeeper.service.tls_files import TlsFiles

Level = Literal["off", "optional", "required"]
"""`off`: no TLS. `optional`: with TLS and without, on the same ports, while a cluster changes from one to the other.
`required`: nothing without TLS, and nobody without a name, but for whoever asks whether the process lives or is ready.
"""

LISTENERS: Final = 4
"""The most that a process has: HTTP, probes, Kafka and peers."""

FILES_PER_HANDSHAKE: Final = 2
"""In a flood there are as many that are just being closed, for some turns of the event loop."""

OFF: Final = "off"
REQUIRED: Final = "required"


class Protection:
    """What `security` and the files of `[tls]` come to. `tls` is None where there is none.

    `handshakes`: how many may be under way at each listener. `wall_clock`: seconds since the epoch, by which
    certificates end.
    """

    def __init__(
        self,
        level: Level = OFF,
        tls: Tls | None = None,
        cluster_id: str = "",
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.tls = tls
        self.handshakes = MAX_HANDSHAKES
        self.required = level == REQUIRED
        self.wall_clock: Final = wall_clock
        self._cluster_id = cluster_id

    def context(self, choose: Callable[[Contexts], ssl.SSLContext]) -> Callable[[], ssl.SSLContext] | None:
        """What a `listening.Listener` takes: the context of its next handshake."""
        tls = self.tls
        return None if tls is None else lambda: choose(tls.contexts)

    def name(self, certificate: Certificate) -> Principal:
        """Whoever showed a certificate to this process."""
        return principal_of(certificate, self._cluster_id)

    @property
    def files(self) -> int:
        """How many files the handshakes of a process should be able to hold open."""
        return 0 if self.tls is None else LISTENERS * FILES_PER_HANDSHAKE * MAX_HANDSHAKES

    def fit(self, files: int) -> None:
        """Let handshakes hold no more files than these. Before there is a listener."""
        if self.tls is not None:
            self.handshakes = max(1, min(MAX_HANDSHAKES, files // (LISTENERS * FILES_PER_HANDSHAKE)))

    def refresh(self) -> None:
        """Use new files, if there are some."""
        if self.tls is not None:
            self.tls.refresh()


UNPROTECTED: Final = Protection()


def load_protection(level: Level, files: TlsFiles, own: tuple[str, int], cluster_id: str | None = None) -> Protection:
    """The protection of a process whose certificate must name `own`, as ("broker", 7), of this cluster, or of any.

    Raises SettingsError.
    """
    missing = [name for name in TlsFiles.__struct_fields__ if getattr(files, name) is None]
    if level == OFF:
        if len(missing) < len(TlsFiles.__struct_fields__):
            raise SettingsError('tls: without effect as long as security = "off": say "optional" or "required"')
        return UNPROTECTED
    if missing:
        raise SettingsError(f'tls.{missing[0]}: security = "{level}" needs it; `pidkeeper certs dev` makes some to try')
    clusters: set[str] = set()

    def check(names: Sequence[CertifiedName]) -> None:
        found = {name.cluster_id for name in names if (name.kind, name.name) == (own[0], str(own[1]))}
        if not (found if cluster_id is None else found & {cluster_id}):
            wanted = CertifiedName(cluster_id or "CLUSTER", own[0], str(own[1])).uri
            shown = ", ".join(name.uri for name in names) or "none of the kind"
            raise SettingsError(
                f"tls.certificate_file: {files.certificate_file} must have {wanted} among its subject alternative "
                f"names, as a URI; it has {shown}"
            )
        if len(found) > 1 and cluster_id is None:
            raise SettingsError(f"tls.certificate_file: {files.certificate_file} names several clusters")
        clusters.update(found)

    tls = Tls(files, check=check)
    return Protection(level, tls, cluster_id or next(iter(clusters)))


def check_urls(level: Level, urls: Sequence[str], key: str, scheme: str = "https://") -> None:
    """Raise SettingsError for an address that a process of this level must not speak to."""
    for url in urls if level == REQUIRED else ():
        if not url.startswith(scheme):
            raise SettingsError(f'{key}: {url} is no {scheme} address, and security = "required" takes no other')
