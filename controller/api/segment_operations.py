"""What the calls about segments and the store's objects do."""

from __future__ import annotations

from pidkeeper.controller.api.admission import Admission, check_epoch
from pidkeeper.controller.api.models import ObjectsQuery
from pidkeeper.controller.state import requests
from pidkeeper.protocol.logs import ObjectId
from pidkeeper.protocol.segment_messages import (
    CheckObjectsRequest,
    CheckObjectsResponse,
    CommitSegmentRequest,
    CommitSegmentResponse,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    FindGarbageRequest,
    FindGarbageResponse,
    FindRollsRequest,
    FindRollsResponse,
    KeptObjectsPage,
    ObjectsDeletedRequest,
    ObjectsDeletedResponse,
    ReleaseCollectionRequest,
    ReleaseCollectionResponse,
)
from pidkeeper.service.call import Call


class SegmentOperations:
    """One method for each call; see `Operations`."""

    def __init__(self, gate: Admission) -> None:
        self._gate = gate
        self._member = gate.member

    async def commit(self, call: Call[None, None, CommitSegmentRequest]) -> CommitSegmentResponse:
        """Let a segment take the place of a part of its log."""
        body = call.body
        check_epoch(body.broker_epoch)
        request = requests.CommitSegment(
            ObjectId(body.broker_id, body.broker_epoch, body.number),
            body.founding_id,
            body.log,
            body.name,
            body.end_offset,
            body.size,
            body.index_size,
            body.max_timestamp,
            body.replaces,
        )
        response: CommitSegmentResponse = await self._gate.submit_for(body.broker_id, call, self._gate.commits, request)
        return response

    async def delete_records(self, call: Call[None, None, DeleteRecordsRequest]) -> DeleteRecordsResponse:
        """Drop what lies below an offset of logs."""
        body = call.body
        check_epoch(body.broker_epoch)
        request = requests.DeleteRecords((body.broker_id, body.broker_epoch), body.logs)
        response: DeleteRecordsResponse = await self._gate.submit_for(body.broker_id, call, self._gate.commits, request)
        return response

    async def deleted(self, call: Call[None, None, ObjectsDeletedRequest]) -> ObjectsDeletedResponse:
        """Objects are deleted from the store."""
        body = call.body
        check_epoch(body.broker_epoch)
        request = requests.ObjectsDeleted((body.broker_id, body.broker_epoch), body.keys)
        response: ObjectsDeletedResponse = await self._gate.submit_for(
            body.broker_id, call, self._gate.commits, request
        )
        return response

    async def rolls(self, call: Call[None, None, FindRollsRequest]) -> FindRollsResponse:
        """Logs whose tails are to be rolled."""
        await self._gate.admit_reader()
        return self._member.find_rolls(call.body.limit)

    async def garbage(self, call: Call[None, None, FindGarbageRequest]) -> FindGarbageResponse:
        """Objects that are to be deleted from the store, as sure as no other leader knows more."""
        await self._gate.confirm()
        return self._member.find_garbage(call.body.limit)

    async def check(self, call: Call[None, None, CheckObjectsRequest]) -> CheckObjectsResponse:
        """Which objects of the store nobody needs."""
        await self._gate.confirm()
        return self._member.check_objects(call.body)

    async def kept(self, call: Call[None, ObjectsQuery, None]) -> KeptObjectsPage:
        """One page of the objects that logs need, and of those that are to be deleted."""
        await self._gate.confirm()
        return self._member.kept_objects(call.query.after, call.query.limit)

    async def release(self, call: Call[None, None, ReleaseCollectionRequest]) -> ReleaseCollectionResponse:
        """Collect the objects of some foundings."""
        request = requests.ReleaseCollection(tuple(call.body.foundings))
        response: ReleaseCollectionResponse = await self._gate.submit_order(request)
        return response
