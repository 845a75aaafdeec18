"""Bugs in the listeners: whom a crowd keeps out, and who is cut off though it does nothing wrong."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, insert_after, replace
from tests.mutants.planted import Planted

KIT: Final = "service"
KAFKA: Final = "service/kafka"
_PLACES: Final = "tests/unit/service/test_places.py"
_SERVER: Final = "tests/unit/service/test_server.py"
_SLOW: Final = "tests/unit/service/test_slow_callers.py"
_PROBES: Final = "tests/unit/service/test_probe_listener.py"
_KNOWN: Final = "tests/unit/service/test_known_head.py"
_KAFKA: Final = "tests/unit/broker_agent/test_kafka_listener.py"
_LINKS: Final = "tests/unit/controller/transport/test_links.py"
_NO_SOCKETS: Final = "it has no sockets"

LISTENER_BUGS: Final = (
    Planted(
        "busy-before-its-body-came",
        "whoever never finishes asking keeps nobody out",
        "this project before decision 0025; Slowloris' slow POST",
        (insert_after(KIT, "build_handler.handle", "content = request.content", "whole(request)"),),
        (_SERVER,),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "idle-callers-before-newcomers",
        "a crowd takes nobody's place who has asked",
        "this project before decision 0025: whoever was idle for longest goes, however long it was",
        (replace(KIT, "Places._who_gives_way", "len(self._newcomers) > self._share", "False"),),
        (_PLACES, _SLOW),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "newcomers-push-each-other-out",
        "newcomers have the time to ask",
        "this project's Kafka listener before decision 0025",
        (replace(KIT, "Places._who_gives_way", "len(self._newcomers) > self._share", "self._newcomers"),),
        (_PLACES,),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "the-busy-give-way",
        "a request under way is answered",
        "an over-reaction to a full listener",
        (replace(KIT, "Places.set_busy", "self._busy[holder] = _", "self._idle[holder] = None"),),
        (_PLACES, _SERVER),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "a-slow-upload-is-a-late-head",
        "who is slow within the limits is served",
        "an over-reaction to slow callers",
        (delete(KIT, "BoundedServer._watched.handle", "self._heads.end(connection)"),),
        (_SLOW,),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "a-head-has-all-the-time",
        "a first head has a limit",
        "Slowloris",
        (delete(KIT, "BoundedServer.connection_made", "self._heads.wait(_, _)"),),
        (_SLOW,),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "closed-where-nothing-is-read",
        "a file is given back",
        "this project before decision 0025: a close waits until everything is sent",
        (replace("service/connections.py", "_cut", "_.line.abort()", "connection.line.close()"),),
        (_SLOW,),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "a-known-head-out-of-step",
        "what is a part of one request is no other request",
        "request smuggling: two parsers that disagree on where a request begins",
        (replace("service/connection.py", "Connection.data_received", "self._in_step and _1 and _2", "_1 and _2"),),
        (_KNOWN,),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "bytes-counted-for-ever",
        "who holds nothing is not cut",
        "an over-reaction to large requests",
        (delete(KIT, "Connection._free", "self._received = _"),),
        (_SLOW,),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "bytes-of-the-dead-counted",
        "who holds nothing is not cut",
        "found while decision 0025 was carried out: a handler ends after its connection",
        (delete(KIT, "BoundedServer.request_grew", "if connection.line.is_closing():"),),
        (_SLOW,),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "the-newest-holder-is-cut",
        "a crowd of large requests keeps no other one out",
        "cutting whoever asks for more",
        (replace(KIT, "SharedBytes._give_way", "self._over.popitem(last=False)", "self._over.popitem()"),),
        (_PLACES, _SLOW),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "probes-in-the-main-places",
        "probes answer whatever goes on at the main listener",
        "a listener of its own in name only",
        (replace(KIT, "probes_served", "HttpServer(app.probes, ...)", "HttpServer(app)"),),
        (_PROBES,),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "a-kafka-request-takes-for-ever",
        "a request that has begun has a limit",
        "this project before decision 0025: ten minutes",
        (delete(KAFKA, "KafkaListener.await_request", "self._requests.wait(_, _)"),),
        (_KAFKA,),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "a-kafka-client-is-waited-for-since-its-connect",
        "who is slow within the limits is served",
        "an over-reaction to slow clients",
        (replace(KAFKA, "Connection._renew", "self._listener.request_came(self)", "pass"),),
        (_KAFKA,),
        unseen=_NO_SOCKETS,
    ),
    Planted(
        "strangers-keep-members-out",
        "members reach each other in a crowd of strangers",
        "this project before decision 0025: the newest handshake is refused",
        (
            replace(
                "controller/transport",
                "PeerLinks.opened",
                "crowded_out.close()",
                "self._strangers.leave(link)\nreturn False",
            ),
        ),
        (_LINKS,),
        unseen=_NO_SOCKETS,
    ),
)
