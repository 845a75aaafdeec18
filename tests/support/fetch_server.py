"""A Kafka listener that serves one partition by Fetch, and offsets by time, with the agents' codecs.

It keeps what it was asked.
"""

from __future__ import annotations

import socketserver
import ssl
import threading
from collections.abc import Sequence
from typing import Any, Final

from pidkeeper.broker_agent.kafka.wire.data import fetch, list_offsets
from pidkeeper.broker_agent.kafka.wire.data.frames import Buffer, RecordsReader, frame_pieces
from pidkeeper.broker_agent.kafka.wire.data.isolation import IsolationLevel
from pidkeeper.broker_agent.kafka.wire.data.record_batch import read_batch_header
from pidkeeper.protocol.errors import ErrorCode
from pidkeeper.service.kafka.wire import api_versions, sasl
from pidkeeper.service.kafka.wire.headers import read_request_header
from pidkeeper.service.kafka.wire.versions import (
    API_VERSIONS,
    FETCH,
    LIST_OFFSETS,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Versions,
)
from tests.support.sasl_users import plain

SASL: Final = {SASL_HANDSHAKE: sasl.HANDSHAKE_VERSIONS, SASL_AUTHENTICATE: sasl.AUTHENTICATE_VERSIONS}


class FetchServer:
    """Serves `batches`, which have their offsets, `per_answer` of them at once and then the first `cut` bytes of more.

    `served`: what ApiVersions tells. `last_stable`: where READ_COMMITTED ends. `errors`: answered before anything else,
    each once. `since`: what ListOffsets finds, by topic and partition. `login`: the message of PLAIN that lets a client
    in; None lets in everybody.
    """

    def __init__(self, batches: Sequence[bytes] = (), *, context: ssl.SSLContext | None = None) -> None:
        self.batches = list(batches)
        self.aborted: list[fetch.AbortedTransaction] = []
        self.last_stable = 2**62
        self.per_answer = 1000
        self.cut = 0
        self.errors: list[int] = []
        self.error_of_all = 0
        self.served: dict[int, Versions] = {FETCH: fetch.VERSIONS}
        self.login: bytes | None = None
        self.since: dict[tuple[str, int], int] = {}
        self.asked: list[tuple[int, fetch.FetchRequest]] = []
        self.asked_for_offsets: list[list_offsets.ListOffsetsRequest] = []
        self._context = context
        server = self

        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                server._serve(self.request)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @classmethod
    def plain(cls, name: str, password: str) -> bytes:
        """What `login` is for a user."""
        return plain(name, password)

    def close(self) -> None:
        """Serve no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _serve(self, connection: Any) -> None:
        connection.settimeout(10)
        try:
            if self._context is not None:
                connection = self._context.wrap_socket(connection, server_side=True)
            with connection.makefile("rwb") as stream:
                let_in = self.login is None
                while head := stream.read(4):
                    frame = stream.read(int.from_bytes(head, "big"))
                    pieces, let_in = self._answer(frame, let_in=let_in)
                    if not pieces:
                        return
                    stream.write(b"".join(pieces))
                    stream.flush()
        except OSError:
            pass
        finally:
            connection.close()

    def _answer(self, frame: bytes, *, let_in: bool) -> tuple[list[Buffer], bool]:
        """The frame that answers, none to hang up; and whether the client is let in."""
        reader = RecordsReader(frame)
        versions = {
            API_VERSIONS: api_versions.VERSIONS,
            FETCH: fetch.VERSIONS,
            LIST_OFFSETS: list_offsets.VERSIONS,
            **SASL,
        }
        header = read_request_header(reader, versions)
        key, version = header.api_key, header.api_version
        if key == API_VERSIONS:
            body: list[Buffer] = [api_versions.api_versions_response(version, self.served)]
        elif key == SASL_HANDSHAKE:
            sasl.read_handshake_request(reader, version)
            code = ErrorCode.ILLEGAL_SASL_STATE if self.login is None else ErrorCode.NONE
            body = [sasl.handshake_response(code, ["PLAIN"])]
        elif key == SASL_AUTHENTICATE:
            let_in = sasl.read_authenticate_request(reader, version).auth_bytes == self.login
            code = ErrorCode.NONE if let_in else ErrorCode.SASL_AUTHENTICATION_FAILED
            body = [sasl.authenticate_response(version, code)]
        elif not let_in:
            return [], False
        elif key == LIST_OFFSETS:
            body = [self._found(list_offsets.read_list_offsets_request(reader, version), version)]
        else:
            body = self._fetched(fetch.read_fetch_request(reader, version), version)
        return frame_pieces(header, versions[key], body), let_in

    def _found(self, request: list_offsets.ListOffsetsRequest, version: int) -> bytes:
        self.asked_for_offsets.append(request)
        code = self.errors.pop(0) if self.errors else 0
        return list_offsets.list_offsets_response(
            version,
            [
                list_offsets.TopicOffsets(
                    topic.topic,
                    [
                        list_offsets.PartitionOffset(
                            one.partition, code, offset=-1 if code else self.since.get((topic.topic, one.partition), -1)
                        )
                        for one in topic.partitions
                    ],
                )
                for topic in request.topics
            ],
        )

    def _fetched(self, request: fetch.FetchRequest, version: int) -> list[Buffer]:
        self.asked.append((version, request))
        ((topic, (wanted,)),) = [(one.topic, one.partitions) for one in request.topics]
        if self.error_of_all:
            return fetch.fetch_response(version, [], self.error_of_all)
        if self.errors:
            found = fetch.FetchedPartition(wanted.partition, self.errors.pop(0))
        else:
            committed = request.isolation_level == IsolationLevel.READ_COMMITTED
            found = self._partition(wanted, committed=committed)
        return fetch.fetch_response(version, [fetch.FetchedTopic(topic, [found])])

    def _partition(self, wanted: fetch.FetchPartition, *, committed: bool) -> fetch.FetchedPartition:
        headers = [read_batch_header(batch) for batch in self.batches]
        below = self.last_stable if committed else 2**62
        wanted_batches = [
            batch
            for batch, header in zip(self.batches, headers, strict=True)
            if header.last_offset >= wanted.fetch_offset and header.base_offset < below
        ]
        records: list[Buffer] = list(wanted_batches[: self.per_answer])
        if self.cut and len(wanted_batches) > self.per_answer:
            records.append(wanted_batches[self.per_answer][: self.cut])
        end = headers[-1].last_offset + 1 if headers else 0
        aborted = self.aborted if committed else None
        return fetch.FetchedPartition(wanted.partition, 0, end, min(end, self.last_stable), 0, aborted, records)
