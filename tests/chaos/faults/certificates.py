"""Certificates of one process at a time: made anew under load, and run out under load before they are made anew.

A process reads its files again within a second. One whose certificate has ended keeps the connections that it has and
gets no new ones, so it counts as down until its certificate is a good one.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import ssl
from datetime import timedelta
from pathlib import Path
from typing import Final

from cryptography import x509

from pidkeeper.cli.controllers import CERTIFICATES
from pidkeeper.cli.dev_certificates import DevAuthority
from pidkeeper.cli.local_cluster import CERTIFICATE_DAYS, HOST, Agent, Member, member_name
from pidkeeper.service.certified import CertifiedName
from tests.chaos.fault import Fault, FaultKind
from tests.chaos.looking import sample, started, until
from tests.chaos.plan import Planned, Target
from tests.chaos.stage import ChaosCluster, Stage

SHORT_LIFE_SECONDS: Final = 3.0
"""Of a certificate that runs out: a process has read it within one of them."""

TAKEN_SECONDS: Final = 10.0
"""Within which a busy process has read its files again."""

ENDS: Final = "pidkeeper_certificate_expiry_timestamp_seconds"


class RenewedCertificate(Fault):
    """A certificate is made anew, and at the end once more. Nobody may notice."""

    days: float = CERTIFICATE_DAYS

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        member = stage.chosen(planned)
        assert member is not None, "a certificate is of one process"
        self._member = member
        self.victims = (member_name(member),)

    async def begin(self) -> None:
        """Make another one."""
        await self.stage.in_turn(issue, self.stage.cluster, self._member, self.days)

    async def end(self) -> None:
        """Make one that lasts."""
        await self.stage.in_turn(issue, self.stage.cluster, self._member, CERTIFICATE_DAYS)

    async def bites(self) -> int:
        """Whether the process tells the end of the last one. Waits for that."""
        return int(await until(self._uses_its_file, TAKEN_SECONDS))

    def _uses_its_file(self) -> bool:
        return sample(self.stage.cluster, self._member, ENDS) == ends(self.stage.cluster, self._member)


class ExpiringCertificate(RenewedCertificate):
    """A certificate that lasts for SHORT_LIFE_SECONDS, and a good one at the end, of a process that has started.

    `refused`: handshakes that failed because it had ended, of two a second.
    """

    days = SHORT_LIFE_SECONDS / timedelta(days=1).total_seconds()

    def __init__(self, stage: Stage, planned: Planned) -> None:
        super().__init__(stage, planned)
        self.refused = 0
        self._caller: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Make it, and call until the end."""
        await started(self._member)
        await super().begin()
        self._caller = asyncio.create_task(self._call(), name="calls under a certificate that ends")

    async def end(self) -> None:
        """Make one that lasts."""
        assert self._caller is not None, "it was begun"
        self._caller.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._caller
        await super().end()

    async def bites(self) -> int:
        """How many handshakes were refused, if it has the good one now."""
        return self.refused if await super().bites() else 0

    async def _call(self) -> None:
        while True:
            self.refused += await asyncio.to_thread(_has_ended, self.stage.cluster, self._member)
            await asyncio.sleep(0.5)


def issue(cluster: ChaosCluster, member: Member, days: float) -> None:
    """Put another certificate, and its key, in the place of the one that the member has."""
    kind = "broker" if isinstance(member, Agent) else "controller"
    names = [CertifiedName(cluster.layout.cluster_id, kind, str(member.id))]
    DevAuthority(cluster.directory / CERTIFICATES).issue(member_name(member), names, (HOST, "localhost"), days)


def ends(cluster: ChaosCluster, member: Member) -> float:
    """When the certificate in the member's file ends, since the epoch."""
    path: Path = cluster.directory / CERTIFICATES / f"{member_name(member)}.pem"
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc.timestamp()


def why_no_certificates(stage: Stage) -> str | None:
    """Only a secure cluster has some."""
    return None if stage.cluster.layout.secure else "the cluster has no certificates"


def _has_ended(cluster: ChaosCluster, member: Member) -> bool:
    try:
        cluster.get(member, "/livez")
    except ssl.SSLCertVerificationError as error:
        return "expired" in error.verify_message
    except (OSError, http.client.HTTPException):
        return False
    return False


ONE_PROCESS: Final = (Target.LEADER, Target.FOLLOWER, Target.AGENT)

KINDS: Final = (
    FaultKind(
        "certificate_renewed",
        RenewedCertificate,
        ONE_PROCESS,
        (3.0, 10.0),
        takes_down=False,
        why_not=why_no_certificates,
    ),
    FaultKind(
        "certificate_expires",
        ExpiringCertificate,
        ONE_PROCESS,
        (6.0, 20.0),
        takes_down=True,
        why_not=why_no_certificates,
    ),
)
