"""`GET /v1/events`: what happens at this member, as it happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pidkeeper.controller.api.member_port import Member
from pidkeeper.protocol.events import EVENT_NAMES
from pidkeeper.service.access import Access
from pidkeeper.service.event_streams import EVENT_STREAM, HEADERS, EventStreams
from pidkeeper.service.exchange import HttpRequest, HttpResponse
from pidkeeper.service.routes import TextRoute


class LiveEvents:
    """Has the member watched while somebody listens, and tells what happened. `pass_on` is called ten times a second:
    blocks are told by the portion, so that a busy quorum costs a listener no more than ten events a second."""

    def __init__(self, member: Member, streams: EventStreams) -> None:
        self.streams: Final = streams
        self._member = member

    def pass_on(self) -> None:
        """Tell what happened since the last call."""
        self._member.watch(len(self.streams) > 0)
        if len(self.streams) > 0:
            for event in self._member.happened():
                self.streams.tell(EVENT_NAMES[type(event)], event)

    def route(self) -> TextRoute:
        """The call that opens a stream."""
        return TextRoute(
            path="/v1/events",
            name="events",
            summary="Allocations, leaders, brokers and members, told as they come (server-sent events).",
            handler=self._open,
            content_type=EVENT_STREAM,
            answers={
                200: "events `allocations`, `leader`, `broker` and `member`, whose data is JSON",
                429: "too many streams are open",
                503: "the server is shutting down",
            },
            access=Access.VIEWER,
        )

    def _open(self, request: HttpRequest, _: Mapping[str, str]) -> HttpResponse:
        if request.method == "HEAD":
            return HttpResponse(200, HEADERS, b"")
        stream = self.streams.open()
        self._member.watch(True)
        return stream.response()
