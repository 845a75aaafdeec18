"""A span of each traced request for its way from the decision to the applied commit: what the quorum took of its time.

A batch answers many requests, which belong to traces of their own; each of them gets a span.
"""

from __future__ import annotations

from typing import Any

from pidkeeper.controller.node.assembly import ClusterMember
from pidkeeper.controller.node.interface import MemberInterface
from pidkeeper.controller.node.proposals import Proposal
from pidkeeper.controller.state.requests import Request
from pidkeeper.service.tracing import Tracer


class TracedInterface(MemberInterface):
    """As MemberInterface; what is submitted within a recorded span gets one below it once it is committed."""

    def __init__(self, member: ClusterMember, tracer: Tracer) -> None:
        super().__init__(member)
        self._tracer = tracer
        # Future answer -> the span to be told of it; not longer than somebody waits.
        self._parents: dict[Any, object] = {}
        member.proposals.on_commit = self._committed

    def submit(self, request: Request) -> Any:
        """As MemberInterface.submit."""
        answer = super().submit(request)
        if (parent := self._tracer.recorded()) is not None:
            self._parents[answer] = parent
            answer.add_done_callback(self._forget)
        return answer

    def _forget(self, answer: Any) -> None:
        self._parents.pop(answer, None)

    def _committed(self, proposal: Proposal, took_ns: int) -> None:
        if not self._parents:
            return
        attributes = {
            "pidkeeper.term": proposal.term,
            "pidkeeper.index": proposal.index,
            "pidkeeper.batch.requests": len(proposal.outcomes),
            "pidkeeper.batch.records": len(proposal.records),
        }
        for answer, _ in proposal.outcomes:
            if (parent := self._parents.pop(answer, None)) is not None:
                self._tracer.add("commit", parent, took_ns, attributes)
