"""Which founding this quorum is of, and what brokers hold that it has not handed out (docs/decisions/0026).

A broker says with each sign of life which is the highest ID that it ever held. If that is not below the next producer
ID, the quorum does not know what was handed out: it was restored from an old copy, or founded anew under live brokers.
The word is committed, so that it outlives leader and broker, and nothing is handed out until an operator has raised the
floor above it, or has dismissed it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

import msgspec

from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import (
    EvidenceDismissedRecord,
    EvidenceRecord,
    FoundingRecord,
    Succession,
    SuccessionRecord,
)
from pidkeeper.protocol.ids import MAX_FLOOR_JUMP
from pidkeeper.protocol.messages import HeldIds
from pidkeeper.snapshots.image import MAX_EVIDENCE, Evidence


class Foundings(msgspec.Struct, frozen=True):
    """A value: what changes it returns another one.

    `evidence` ascends by broker id; one of each broker at most. `succeeded`: by which the quorum came to its founding,
    if it took the place of another.
    """

    founding: FoundingRecord | None = None
    evidence: tuple[Evidence, ...] = ()
    succeeded: SuccessionRecord | None = None

    @property
    def founding_id(self) -> uuid.UUID | None:
        """By which the quorum is known; None before it is in the log."""
        return None if self.founding is None else self.founding.founding_id

    @property
    def succession(self) -> Succession | None:
        """Whose place this quorum has taken, and from which ID on."""
        return None if self.succeeded is None else self.succeeded.succession

    def can_be_followed(self, founding_id: uuid.UUID, predecessor: uuid.UUID) -> bool:
        """Whether founding `founding_id` may take the place of `predecessor` here, where that has not happened yet."""
        if self.founding_id == founding_id:
            return self.succeeded is None or self.succeeded.founding_id != founding_id
        return self.founding_id == predecessor

    def of(self, broker_id: int) -> Evidence | None:
        """The evidence of a broker, if any."""
        return next((one for one in self.evidence if one.broker_id == broker_id), None)

    def open(self, next_producer_id: int) -> list[Evidence]:
        """The evidence because of which nothing may be handed out."""
        return [one for one in self.evidence if is_open(one, next_producer_id)]

    def after(
        self,
        record: FoundingRecord | SuccessionRecord | EvidenceRecord | EvidenceDismissedRecord,
        offset: int,
        next_producer_id: int,
    ) -> Foundings:
        """With one committed record. Only what was decided gets here, so a mismatch stops the process."""
        if isinstance(record, FoundingRecord):
            return self.founded(record, offset)
        if isinstance(record, SuccessionRecord):
            return self.followed(record, offset)
        if isinstance(record, EvidenceRecord):
            return self.heard(record, offset, next_producer_id)
        return self.dismissed(record, offset)

    def founded(self, record: FoundingRecord, offset: int) -> Foundings:
        """The founding is known from now on."""
        assert self.founding is None, f"F1: offset {offset} founds the quorum of founding {self.founding_id} again"
        return msgspec.structs.replace(self, founding=record)

    def followed(self, record: SuccessionRecord, offset: int) -> Foundings:
        """Another founding is in force, which takes the place of the one before. The evidence stays."""
        founding = self.founding
        assert founding is not None and self.can_be_followed(record.founding_id, record.predecessor), (
            f"F6: offset {offset} has {record}, but the quorum is of founding {self.founding_id}, by {self.succeeded}"
        )
        founding = msgspec.structs.replace(founding, founding_id=record.founding_id)
        return msgspec.structs.replace(self, founding=founding, succeeded=record)

    def heard(self, record: EvidenceRecord, offset: int, next_producer_id: int) -> Foundings:
        """A broker has left evidence; what the floor has passed meanwhile is forgotten."""
        assert record.highest_producer_id >= next_producer_id, (
            f"F2: offset {offset} has {record}, but the next producer ID is {next_producer_id}"
        )
        one = Evidence(record.broker_id, record.founding_id, record.highest_producer_id, offset)
        return self._with(one, [other for other in self.evidence if other.highest_producer_id >= next_producer_id])

    def dismissed(self, record: EvidenceDismissedRecord, offset: int) -> Foundings:
        """An operator has judged that a broker's evidence is wrong. It stays, so that it is not taken up again."""
        before = self.of(record.broker_id)
        assert before is not None, f"F3: offset {offset} dismisses evidence of broker {record.broker_id}, who left none"
        return self._with(msgspec.structs.replace(before, dismissed=True), self.evidence)

    def _with(self, one: Evidence, kept: Iterable[Evidence]) -> Foundings:
        evidence = {other.broker_id: other for other in kept} | {one.broker_id: one}
        ordered = tuple(evidence[broker_id] for broker_id in sorted(evidence))
        return msgspec.structs.replace(self, evidence=ordered)


NOT_FOUNDED: Final = Foundings()


def is_open(one: Evidence, next_producer_id: int) -> bool:
    """Whether it keeps the quorum from handing out: neither dismissed, nor passed by the next producer ID."""
    return not one.dismissed and one.highest_producer_id >= next_producer_id


def said_of(one: Evidence, next_producer_id: int) -> str:
    """What an operator is told of open evidence, with what to do."""
    return (
        f"broker {one.broker_id} holds IDs up to {one.highest_producer_id} of founding {one.founding_id}, but the next "
        f"one here is {next_producer_id}, so nothing is handed out: raise the floor above all that was handed out "
        f"(`pidkeeper ids raise-floor`, {one.highest_producer_id + 1} at least), or dismiss it if that broker is wrong "
        f"(`pidkeeper quorum dismiss-evidence {one.broker_id} --highest {one.highest_producer_id}`)"
    )


def check_open(evidence: Iterable[Evidence], next_producer_id: int) -> None:
    """Raise EVIDENCE_OPEN while any is open."""
    for one in evidence:
        if is_open(one, next_producer_id):
            raise RequestError(ErrorCode.EVIDENCE_OPEN, said_of(one, next_producer_id))


def is_news(held: HeldIds | None, next_producer_id: int) -> bool:
    """Whether a broker holds what was not handed out here."""
    return held is not None and held.highest_producer_id >= next_producer_id


def weigh(before: Evidence | None, broker_id: int, held: HeldIds, next_producer_id: int, *, same_process: bool) -> bool:
    """Whether what a broker holds is new evidence. Raises EVIDENCE_REFUSED, which concerns this broker alone.

    before: what the broker had said until now; same_process: it was the process that speaks now. No more is believed
    than an operator could raise the floor by at once: else one broker could burn all IDs. And nothing of a process that
    was judged to be wrong: else it would stop the quorum again with each number that it makes up.
    """
    highest, news = held.highest_producer_id, is_news(held, next_producer_id)
    if news and highest - next_producer_id > MAX_FLOOR_JUMP:
        raise _refused(broker_id, f"holds ID {highest}, more than {MAX_FLOOR_JUMP} above {next_producer_id}")
    if news and before is not None and before.dismissed and same_process:
        raise _refused(broker_id, f"holds ID {highest}, but an operator has judged what it holds to be wrong")
    known = before is not None and not before.dismissed and highest <= before.highest_producer_id
    return news and not known


def check_room(evidence: tuple[Evidence, ...], broker_id: int, next_producer_id: int) -> None:
    """Raise EVIDENCE_OPEN if of too many brokers something is kept that the next ID has not passed.

    The quorum has stopped for them, unless all of it was dismissed. Each of the others says it again.
    """
    kept = [one for one in evidence if one.highest_producer_id >= next_producer_id]
    if len(kept) >= MAX_EVIDENCE and all(one.broker_id != broker_id for one in kept):
        detail = f"broker {broker_id} is one of more than {MAX_EVIDENCE} that hold what was not handed out here"
        raise RequestError(ErrorCode.EVIDENCE_OPEN, f"{detail}: see the others in health, then ask again")


def _refused(broker_id: int, what: str) -> RequestError:
    detail = f"broker {broker_id} {what}: it is not believed, and gets nothing; start it anew if that is wrong"
    return RequestError(ErrorCode.EVIDENCE_REFUSED, detail)
