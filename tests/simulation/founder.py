"""The operator who founds the quorum, as `pidkeeper quorum found` does: once, when all its voters are there.

Requests and answers may be lost. In some seeds the disks are those of a build without foundings, which nobody founds.
"""

from __future__ import annotations

import random
import uuid
from typing import TYPE_CHECKING, Any, Final

from pidkeeper.controller.storage.founding import Founding
from pidkeeper.protocol.errors import ErrorCode, RequestError
from pidkeeper.protocol.founding import FoundingRecord, Succession, SuccessionRecord
from pidkeeper.protocol.messages import FoundQuorumRequest
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.protocol.records import AllocateProducerIdsRecord, Record
from pidkeeper.protocol.transactions import TransactionalBlockRecord
from tests.simulation.process import listen
from tests.simulation.world import MILLISECOND, Violation

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.process import Process

RETRY: Final = (50 * MILLISECOND, 150 * MILLISECOND)
AGED: Final = 0.5
"""Of the clusters that begin with an old build."""


class Founder:
    """`founding_id`: the one that it orders, when `ordered`; `aged`: the disks were begun without one.

    `recorded`: the one in the log. `hears`: nothing is handed out before that. `name`: of this order; the next one
    makes another founding, which may take the place of the first: `succession`, in force once `succeeded`.
    """

    def __init__(self, cluster: Cluster, name: str = "founder") -> None:
        self.cluster = cluster
        self.succession: Succession | None = None
        self.succeeded = False
        self.world = cluster.world
        self.rng: random.Random = cluster.world.stream(name)
        self.founding_id = uuid.UUID(int=self.rng.getrandbits(128))
        self.voters = sorted(cluster.voters)
        self.recorded: uuid.UUID | None = None
        self.ordered = False
        self.done = False
        self.aged = cluster.swarm.first_build < LATEST and self.rng.random() < AGED
        if self.aged:
            for voter in self.voters:
                cluster.members[voter].age()
        self.hears = cluster.swarm.founding_hearing_ms > 0 and not self.aged

    def start(self) -> None:
        """Order it soon, and in some seeds only after other things have happened."""
        if not self.aged:
            self.world.at(self.rng.randrange(self.rng.choice((200, 200, 200, 5_000)) * MILLISECOND), self._ask)

    def committed(self, records: list[Record]) -> None:
        """The quorum has a founding in its log: the one that was ordered, if any was, and before it hands out."""
        for record in records:
            hands_out = isinstance(record, AllocateProducerIdsRecord | TransactionalBlockRecord)
            if hands_out and self.succession is not None and not self.succeeded:
                raise Violation("handed-out-unheard", f"{record} before {self.succession} was recorded")
            if isinstance(record, SuccessionRecord):
                if self.succeeded or (record.founding_id, record.succession) != (self.founding_id, self.succession):
                    raise Violation("founding-recorded", f"{record}, wanted was {self.succession}")
                self.succeeded = True
            if hands_out and self.recorded is None and self.hears:
                raise Violation("handed-out-unheard", f"{record} before the founding was recorded")
            if isinstance(record, FoundingRecord):
                if self.recorded is not None or not (self.aged or record.founding_id == self.founding_id):
                    raise Violation("founding-recorded", f"{record} after {self.recorded}, not {self.founding_id}")
                self.recorded = record.founding_id

    def check(self, node_id: int, founding: Founding) -> None:
        """A disk came to belong to `founding`. Raises Violation if nobody wanted that."""
        wanted = {None, self.recorded} if self.aged else {self.founding_id}
        if founding.founding_id not in wanted or not (self.ordered or self.aged):
            facts = f"member {node_id} is of {founding}, wanted is one of {wanted}, ordered: {self.ordered}"
            raise Violation("founded-by-itself", facts)

    def _ask(self) -> None:
        if self.done:
            return
        self.world.at(self.rng.randrange(*RETRY), self._ask)
        asked = self.rng.choice((self.voters[0], self.voters[0], self.rng.choice(self.voters)))
        process = self.cluster.members[asked].process
        if process is not None and not self._lost():
            self.world.at(int(self.cluster.swarm.delay * (0.5 + self.rng.random())), self._arrive, process)

    def _arrive(self, process: Process) -> None:
        if process.node.stopping or not process.started() or not process.runs(self._arrive, process):
            return
        self.ordered = True
        try:
            answer: Any = process.interface.found(FoundQuorumRequest(self.founding_id, self.voters, self.succession))
        except RequestError as refusal:
            self._check_refusal(process, refusal)
            return
        listen(answer, self._answered)
        process.watch()

    def _check_refusal(self, process: Process, refusal: RequestError) -> None:
        """Another member than the one that founds, or one that must wait, or whose disk was replaced since."""
        founded = any(member.founding is not None for member in self.cluster.members.values())
        waits = refusal.code is ErrorCode.VOTERS_NOT_CONNECTED
        if process.node_id == self.voters[0] and not (founded or waits):
            raise Violation("founding-refused", f"member {process.node_id}: {refusal}")

    def _answered(self, result: Any, refusal: RequestError | None) -> None:
        if refusal is not None:
            raise Violation("founding-refused", f"{refusal}")
        if not self._lost():
            self.world.note(f"the operator has founded {result}")
            self.done = True

    def _lost(self) -> bool:
        return not self.cluster.healed and self.rng.random() < 0.1
