"""The leader puts the quorum's founding into the log; one that was just founded hears its brokers before that.

All disks may have been lost under live brokers. Whoever founds the quorum anew then need not know that: before it hands
out its first ID, every broker that lives has had the time to say which IDs it holds (docs/decisions/0026). Likewise for
one that was restored from a copy: its directories are of a founding that their log does not know yet (0027). Soft state
of the leader; the end of the hearing is the FoundingRecord, or the SuccessionRecord where the quorum takes the place of
another. Pure.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from pidkeeper.controller.node.settings import MemberSettings
from pidkeeper.controller.state import requests
from pidkeeper.controller.state.foundings import Foundings
from pidkeeper.controller.state.machine import Allocation, StateMachine
from pidkeeper.controller.state.transactions import gets_new_id
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import Founded, Succession
from pidkeeper.protocol.logs import ObjectRecord
from pidkeeper.protocol.messages import HeldIds, keeps
from pidkeeper.protocol.metadata_version import FOUNDING, SUCCESSION
from pidkeeper.protocol.records import Record
from pidkeeper.protocol.segments import SegmentRecord
from pidkeeper.protocol.transactions import TransactionRecord

logger = logging.getLogger(__name__)

_HEARING: Final = "the quorum was founded just now, and hears which IDs its brokers hold before it hands out any"

_OF_ANOTHER: Final = (
    "nothing is handed out, because the directories were restored to take the place of founding {}, but their log is "
    "of {}: take the copy anew, and restore that"
)

_OF_TWO: Final = (
    "nothing is handed out, because members belong to different foundings: stop those that are of another quorum, and "
    "format their directories anew"
)

_WAITING: Final = frozenset(
    {requests.AllocateProducerIds, requests.FillOwnIds, requests.CommitObject, requests.CommitSegment}
)
"""What is not granted in the hearing."""


class Ask(Protocol):
    """Have a request of the leader's own decided; `refused` is called if that fails."""

    def __call__(self, request: requests.Request, refused: Callable[[], None]) -> None: ...


class FoundingDuty:
    """The duty of one member while it leads.

    `own()`: what this member says of its founding; `foundings()`: what it and those connected to it say, by id, without
    those that have none. An operator has ordered any that is there. `everybody_connected()`: whether all members are.
    """

    def __init__(
        self,
        machine: StateMachine,
        settings: MemberSettings,
        new_founding_id: Callable[[], uuid.UUID],
        ask: Ask,
        *,
        own: Callable[[], Founded],
        foundings: Callable[[], Mapping[int, Founded]],
        everybody_connected: Callable[[], bool],
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._new_founding_id = new_founding_id
        self._ask = ask
        self._own = own
        self._foundings = foundings
        self._everybody_connected = everybody_connected
        self._hearing_ticks = settings.timing.ticks(settings.founding_hearing_ms)
        self._heard_since: int | None = None
        self._recording = False
        # Values, which are replaced and never changed: what was said of these two holds as long as they are the same.
        self._recorded_in: Foundings | None = None
        self._recorded_of: Founded | None = None

    def lead(self) -> None:
        """This member serves from now on. What the leader before it has heard is in the log, if it was evidence."""
        self._heard_since = None

    def hearing(self) -> bool:
        """Whether nothing is handed out yet: the quorum was founded by an order, and that is not in the log."""
        if self._recorded():
            return False
        # Of two orders one founded another quorum, which may hand out the same IDs: an operator has to tell which.
        # And until the floor of a succession is in force, what the predecessor has handed out would be again.
        if len(self._ordered()) > 1 or self._succession() is not None:
            return True
        return bool(self._ordered()) and self._hearing_ticks > 0

    def _recorded(self) -> bool:
        """Whether the log has the founding of this member. Then its links refuse those of any other."""
        foundings, own = self._machine.foundings, self._own()
        if foundings is self._recorded_in and own is self._recorded_of:
            return True
        recorded = foundings.founding_id
        if recorded is None or (own.succession is not None and foundings.succeeded is None):
            return False
        if recorded == own.founding_id:
            self._recorded_in, self._recorded_of = foundings, own
            return True
        return self._ordered() <= {recorded}

    def _ordered(self) -> set[uuid.UUID]:
        return {one.founding_id for one in self._foundings().values() if one.founding_id is not None}

    def _succession(self) -> Succession | None:
        return next((one.succession for one in self._foundings().values() if one.succession is not None), None)

    def trouble(self) -> str | None:
        """What an operator is told while that is so."""
        if not self.hearing():
            return None
        if len(self._ordered()) > 1:
            said = sorted(self._foundings().items())
            return f"{_OF_TWO}: " + ", ".join(f"member {member} of {one.founding_id}" for member, one in said)
        succession, recorded = self._succession(), self._machine.foundings.founding_id
        if succession is not None and recorded not in {None, succession.predecessor}:
            return _OF_ANOTHER.format(succession.predecessor, recorded)
        if self._machine.metadata_version < self._needed():
            return f"{_HEARING}: that begins when all members are connected and run this build"
        return f"{_HEARING}: for {self._settings.founding_hearing_ms} ms"

    def _needed(self) -> int:
        return FOUNDING if self._succession() is None else SUCCESSION

    def check(self, request: requests.Request) -> None:
        """Raise FOUNDING_UNDER_WAY for a request of a block, or to commit an object, while nothing is handed out.

        Not even for the sake of the evidence that it may carry: the floor could pass that in the same batch, and then
        the request would be granted. Heartbeats carry the same. And objects are named by founding and epoch: those of
        the predecessor, which may have given the same epochs, are in the store.
        """
        if type(request) in _WAITING and (trouble := self.trouble()) is not None:
            raise RequestError(ErrorCode.FOUNDING_UNDER_WAY, f"{trouble}; ask again")

    def prepared(self, request: requests.Request) -> requests.Request:
        """`request`, as it may be decided while nothing is handed out. Raises as `check`: it came before that began."""
        if self._recorded():
            return request
        self.check(request)
        if isinstance(request, requests.InitProducerId | requests.EndTxn) and self.hearing():
            return replace(request, may_get_id=False)
        if isinstance(request, requests.SignOfLife) and self._is_expected(request.held):
            request = replace(request, held=None)
        if isinstance(request, requests.RegisterBroker | requests.BrokerHeartbeat) and self.hearing():
            # Whoever registers now would give its objects names that the predecessor's may have.
            return replace(request, untold=True)
        return request

    def _is_expected(self, held: HeldIds | None) -> bool:
        """Whether it is no news, because the floor that is to come into force lies above it."""
        if held is None:
            return False
        succession = self._succession()
        return succession is not None and keeps(held, succession)

    def checked(self, records: Sequence[Record]) -> None:
        """Raise AssertionError (F5) if an entry of `records` would hand out or commit anything while nothing may be."""
        if self.hearing():
            given = [record for record in records if self._hands_out(record)]
            assert not given, f"F5: {given} before the founding of this quorum is in its log"

    def _hands_out(self, record: Record) -> bool:
        if isinstance(record, TransactionRecord):
            return gets_new_id(self._machine.transactions.get(record.transactional_id), record)
        return isinstance(record, Allocation | ObjectRecord | SegmentRecord)

    def tick(self, ticks: int) -> None:
        """Ask for the record when it is due; called now and then while this member serves."""
        if self._machine.metadata_version < self._needed() or self._recorded() or self._recording:
            return
        known = self._ordered()
        if len(known) > 1:
            # Neither is recorded before the other has been gone for a whole hearing, and not just for a moment.
            self._heard_since = None
            return
        self._heard_since = ticks if self._heard_since is None else self._heard_since
        due = ticks - self._heard_since >= self._hearing_ticks if known else self._everybody_connected()
        if due:
            self._record(known.pop() if known else self._new_founding_id())

    def _record(self, founding_id: uuid.UUID) -> None:
        logger.info("this quorum is of founding %s", founding_id)
        self._recording = True
        settings = self._settings
        request = requests.RecordFounding(founding_id, settings.block_size, settings.bridge, self._succession())
        self._ask(request, self._not_recorded)

    def _not_recorded(self) -> None:
        """The next look asks again; until then a quorum that cannot commit is not asked once more with each."""
        self._recording = False
