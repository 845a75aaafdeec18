"""The document is valid OpenAPI 3.1, lists every route, and every answer is as it says."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from openapi_schema_validator import OAS31Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from pidkeeper.controller.api.app import build_app
from pidkeeper.controller.api.console.pages import console_routes
from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.controller.api.routes import ROUTES
from pidkeeper.controller.migration.znode import ZnodeBlock, encode
from pidkeeper.controller.state.transactions import TransactionsState
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from pidkeeper.protocol.metadata_version import TRANSACTIONAL_BLOCKS
from pidkeeper.protocol.migration import MigrationPhase, MigrationRecord
from pidkeeper.protocol.transactions import TopicPartitions, TransactionRecord
from pidkeeper.service.access import Access
from pidkeeper.service.exchange import HttpResponse
from pidkeeper.service.openapi import Description, build_document
from pidkeeper.service.routes import TextRoute
from pidkeeper.service.throttle import Rate
from tests.support.memory_member import CLUSTER_ID, FOUNDING_ID, QUORUM_NAME, MemoryMember
from tests.unit.controller.api.conftest import Answer, Api, Serve

MEDIA = ("application/json", "application/msgpack")


async def document_of(api: Api) -> dict[str, Any]:
    document: dict[str, Any] = (await api.call("GET", "/openapi.json")).json()
    return document


def check(document: dict[str, Any], answer: Answer, method: str, path: str) -> None:
    """Whether the answer is one that the document announces, in media type and in every field."""
    announced = document["paths"][path][method.lower()]["responses"]
    assert str(answer.status) in announced, f"{method} {path} does not announce {answer.status}: {answer.text}"
    content = announced[str(answer.status)]["content"]
    assert answer.content_type in content
    schema = {**content[answer.content_type]["schema"], "components": document["components"]}
    value = answer.json() if answer.content_type.endswith("json") else answer.text
    OAS31Validator(schema).validate(value)


@pytest.mark.parametrize("token", [None, "secret"])
async def test_the_document_is_valid(serve: Serve, token: str | None) -> None:
    document = await document_of(await serve(token=token))
    OpenAPIV31SpecValidator(document).validate()
    assert document["openapi"].startswith("3.1")


async def test_the_document_says_who_must_have_a_name_and_how_one_has_it(serve: Serve) -> None:
    document = await document_of(await serve(token="secret"))
    assert set(document["components"]["securitySchemes"]) == {"bearer"}
    assert document["paths"]["/v1/quorum"]["get"]["security"] == [{"bearer": []}]
    assert "security" not in document["paths"]["/metrics"]["get"]
    description = Description("a service", "with names")
    metrics = TextRoute(
        path="/metrics",
        name="metrics",
        summary="Samples",
        handler=lambda *_: HttpResponse(200, {}, b""),
        answers={200: "samples"},
        access=Access.VIEWER,
    )
    document = build_document(description, ROUTES, [metrics], "1", ("bearer", "certificate"))
    OpenAPIV31SpecValidator(document).validate()
    assert document["components"]["securitySchemes"]["certificate"] == {"type": "mutualTLS"}
    for path in ("/v1/quorum", "/metrics"):
        assert document["paths"][path]["get"]["security"] == [{"bearer": []}, {"certificate": []}]
        assert {"401", "403"} <= document["paths"][path]["get"]["responses"].keys()


async def test_the_document_lists_exactly_what_is_served(api: Api, member: MemoryMember) -> None:
    document = await document_of(api)
    announced = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    served = build_app(member, limits=ApiLimits()).served()
    assert announced == {(method, path) for method, path in served if method != "HEAD"}
    assert {(route.method, route.path) for route in ROUTES} < announced


PRODUCER = {
    "broker_id": 1,
    "broker_epoch": 1,
    "transactional_id": "tx",
    "producer_id": 0,
    "producer_epoch": 0,
}
TOPIC = {"topic_id": str(uuid.UUID(int=3)), "name": "t", "partitions": 1}
GROUP = {"group_id": "g", "broker_id": 1, "broker_epoch": 1}
OFFSETS = [["t", [[0, 5, -1, ""]]]]
MIGRATION = "/v1/migration/zookeeper"
CALLS: list[tuple[str, str, str, dict[str, Any] | None]] = [
    ("POST", "/v1/brokers/{id}/register", "/v1/brokers/1/register", {"incarnation_id": "a"}),
    ("POST", "/v1/brokers/{id}/heartbeat", "/v1/brokers/1/heartbeat", {"broker_epoch": 1}),
    ("POST", "/v1/producer-ids/allocate", "/v1/producer-ids/allocate", {"broker_id": 1, "broker_epoch": 1}),
    ("GET", "/v1/producer-ids/blocks", "/v1/producer-ids/blocks?limit=1", None),
    ("GET", "/v1/producer-ids/{id}/owner", "/v1/producer-ids/5/owner", None),
    ("POST", "/v1/producer-ids/floor", "/v1/producer-ids/floor", {"at_least": 7}),
    ("GET", "/v1/quorum", "/v1/quorum", None),
    ("GET", "/v1/whoami", "/v1/whoami", None),
    ("POST", "/v1/quorum/found", "/v1/quorum/found", {"founding_id": str(uuid.UUID(int=1)), "voters": [1, 2]}),
    ("POST", "/v1/quorum/evidence/dismiss", "/v1/quorum/evidence/dismiss", {"broker_id": 1}),
    ("POST", "/v1/quorum/transfer", "/v1/quorum/transfer", {"target": None}),
    (
        "POST",
        "/v1/quorum/voters",
        "/v1/quorum/voters",
        {"id": 4, "peer": "127.0.0.1:1", "http": "http://127.0.0.1:1"},
    ),
    ("DELETE", "/v1/quorum/voters/{id}", "/v1/quorum/voters/4", None),
    ("GET", "/v1/brokers", "/v1/brokers", None),
    (
        "POST",
        "/v1/transactions/init-producer-id",
        "/v1/transactions/init-producer-id",
        {**PRODUCER, "transaction_timeout_ms": 1000, "producer_id": -1, "producer_epoch": -1, "candidate": 0},
    ),
    (
        "POST",
        "/v1/transactions/add-partitions",
        "/v1/transactions/add-partitions",
        {**PRODUCER, "topics": [{"topic": "t", "partitions": [0, 1]}]},
    ),
    ("GET", "/v1/transactions", "/v1/transactions?after=&limit=5&state=Ongoing&producer_id=0", None),
    ("GET", "/v1/transactions/describe", "/v1/transactions/describe?transactional_id=tx", None),
    ("POST", "/v1/transactions/end", "/v1/transactions/end", {**PRODUCER, "committed": True}),
    ("POST", "/v1/transactions/abort", "/v1/transactions/abort", {"transactional_id": "other"}),
    ("POST", "/v1/topics/create", "/v1/topics/create", {**TOPIC, "broker_id": 1, "broker_epoch": 1}),
    ("POST", "/v1/topics", "/v1/topics", {**TOPIC, "validate_only": True}),
    ("POST", "/v1/topics/find", "/v1/topics/find", {"names": ["t", "u"]}),
    ("GET", "/v1/topics", "/v1/topics?after=&limit=5", None),
    ("GET", "/v1/topics/describe", "/v1/topics/describe?name=t&after=-1&limit=5", None),
    (
        "POST",
        "/v1/objects/commit",
        "/v1/objects/commit",
        {
            "broker_id": 1,
            "broker_epoch": 1,
            "founding_id": str(FOUNDING_ID),
            "number": 0,
            "size": 80,
            "batches": [[0, 1, 0, 80, -1, -1, -1, 5, False]],
        },
    ),
    ("POST", "/v1/logs/read", "/v1/logs/read", {"logs": [[0, 0, 1000]], "confirmed": True}),
    ("POST", "/v1/logs/watch", "/v1/logs/watch", {"logs": [[0, 0, 0]], "wait_ms": 0}),
    ("POST", "/v1/logs/offsets", "/v1/logs/offsets", {"logs": [[0, -1]]}),
    ("POST", "/v1/logs/rolls", "/v1/logs/rolls", {"limit": 5}),
    (
        "POST",
        "/v1/segments/commit",
        "/v1/segments/commit",
        {
            "broker_id": 1,
            "broker_epoch": 1,
            "founding_id": str(FOUNDING_ID),
            "number": 0,
            "log": 0,
            "name": ["t", 0, 0],
            "end_offset": 1,
            "size": 80,
            "index_size": 10,
            "max_timestamp": 5,
            "replaces": 1,
        },
    ),
    ("POST", "/v1/logs/read", "/v1/logs/read", {"logs": [[0, 0, 1000]]}),
    ("POST", "/v1/objects/garbage", "/v1/objects/garbage", {"limit": 5}),
    ("POST", "/v1/objects/deleted", "/v1/objects/deleted", {"broker_id": 1, "broker_epoch": 1, "keys": [0, 9]}),
    (
        "POST",
        "/v1/objects/check",
        "/v1/objects/check",
        {"founding_id": str(FOUNDING_ID), "segments": True, "objects": [[1, 1, 0], [1, 0, 7]]},
    ),
    ("GET", "/v1/objects", "/v1/objects?after=-1&limit=5", None),
    ("POST", "/v1/objects/release", "/v1/objects/release", {"foundings": [str(FOUNDING_ID)]}),
    (
        "POST",
        "/v1/logs/delete-records",
        "/v1/logs/delete-records",
        {"broker_id": 1, "broker_epoch": 1, "logs": [[0, -1], [9, 0]]},
    ),
    (
        "POST",
        "/v1/groups/commit",
        "/v1/groups/commit",
        {**GROUP, "after": -1, "generation": 1, "protocol_type": "consumer", "members": [["m", None, "c", "h"]]},
    ),
    ("POST", "/v1/groups/find", "/v1/groups/find", {"group_id": "g"}),
    (
        "POST",
        "/v1/groups/offsets/commit",
        "/v1/groups/offsets/commit",
        {**GROUP, "generation": 1, "member_id": "m", "topics": OFFSETS},
    ),
    (
        "POST",
        "/v1/groups/offsets/fetch",
        "/v1/groups/offsets/fetch",
        {"group_id": "g", "topics": [["t", [0, 1]]], "require_stable": True, "after": ["t", -1]},
    ),
    ("GET", "/v1/groups", "/v1/groups?after=f&limit=5", None),
    ("GET", "/v1/groups/describe", "/v1/groups/describe?group=g", None),
    ("GET", "/v1/groups/offsets", "/v1/groups/offsets?group=g&after_topic=t&after_partition=-1&limit=5", None),
    ("POST", "/v1/groups/offsets/delete", "/v1/groups/offsets/delete", {**GROUP, "topics": [["t", [0]]]}),
    ("POST", "/v1/groups/offsets/reset", "/v1/groups/offsets/reset", {"group_id": "s", "topics": OFFSETS}),
    ("POST", "/v1/groups/offsets/forget", "/v1/groups/offsets/forget", {"group_id": "s", "topics": [["t", [0]]]}),
    ("POST", "/v1/groups/offsets/reset", "/v1/groups/offsets/reset", {"group_id": "s", "topics": OFFSETS}),
    ("DELETE", "/v1/groups", "/v1/groups?group=s", None),
    ("POST", "/v1/groups/offsets/reset", "/v1/groups/offsets/reset", {"group_id": "s", "topics": OFFSETS}),
    ("POST", "/v1/groups/delete", "/v1/groups/delete", {**GROUP, "group_id": "s"}),
    ("POST", "/v1/topics/delete", "/v1/topics/delete", {"name": "t", "broker_id": 1, "broker_epoch": 1}),
    ("POST", "/v1/topics/create", "/v1/topics/create", {**TOPIC, "broker_id": 1, "broker_epoch": 1}),
    ("DELETE", "/v1/topics", f"/v1/topics?name=t&topic_id={TOPIC['topic_id']}", None),
    ("GET", MIGRATION, MIGRATION, None),
    ("POST", f"{MIGRATION}/start", f"{MIGRATION}/start", {}),
    ("GET", MIGRATION, MIGRATION, None),
    ("POST", f"{MIGRATION}/finalize", f"{MIGRATION}/finalize", {"agreed": True}),
    ("POST", f"{MIGRATION}/rollback", f"{MIGRATION}/rollback", {}),
    ("POST", "/v1/brokers/{id}/register", "/v1/brokers/2/register", {"incarnation_id": "b"}),
    ("POST", "/v1/brokers/{id}/fence", "/v1/brokers/2/fence", {}),
    ("POST", "/v1/brokers/{id}/unregister", "/v1/brokers/1/unregister", {"broker_epoch": 1}),
    ("GET", "/livez", "/livez", None),
    ("GET", "/livez/{check}", "/livez/disk", None),
    ("GET", "/readyz", "/readyz?verbose", None),
    ("GET", "/readyz/{check}", "/readyz/leader", None),
    ("GET", "/readyz/{check}", "/readyz/nobody", None),
    ("GET", "/metrics", "/metrics", None),
    ("GET", "/openapi.json", "/openapi.json", None),
    *(("GET", route.path, route.path, None) for route in console_routes()),
]
PLAIN = 7 + len(console_routes())
"""The last of them: what is open to everybody."""


async def test_every_success_is_as_announced(api: Api, member: MemoryMember) -> None:
    document = await document_of(api)
    other = TransactionRecord("other", 99, 0, -1, -1, 1000, 1, 0, (TopicPartitions("t", (0,)),), 0)
    member.machine.transactions = TransactionsState([other])
    member.machine.replay([MigrationRecord(MigrationPhase.BRIDGE, QUORUM_NAME, -1, 0)])
    member.znode.put(encode(ZnodeBlock(7, 5000, 5999)))
    for method, template, path, body in CALLS:
        answer = await api.call(method, path, json=body) if body is not None else await api.call(method, path)
        assert answer.status == 200 or path.endswith("nobody"), answer.text
        check(document, answer, method, template)
    # A stream never ends by itself; test_events.py reads one.
    assert {template for _, template, _, _ in CALLS} | {"/v1/events"} == set(document["paths"])


async def test_every_refusal_is_as_announced(serve: Serve, member: MemoryMember) -> None:
    once = Rate(0.001, 1)
    limits = ApiLimits(
        broker_sessions=once,
        broker_allocations=once,
        broker_transactional_inits=once,
        broker_transactions=once,
        broker_commits=once,
        broker_reads=once,
    )
    api = await serve(limits=limits, token="secret")
    document = await document_of(api)
    token = {"Authorization": "Bearer secret"}
    for leader_id in (1, None, 2):
        member.leader_id = leader_id
        for method, template, path, body in CALLS[:-PLAIN]:
            for _ in range(3):
                answer = await api.call(method, path, headers=token, **({"json": body} if body is not None else {}))
                check(document, answer, method, template)
            check(document, await api.call(method, path), method, template)
            if body is not None:
                for kind, data in (("application/json", b"{"), ("text/plain", b"{}"), (MEDIA[0], b" " * 70_000)):
                    headers = {**token, "Content-Type": kind}
                    check(document, await api.call(method, path, data=data, headers=headers), method, template)
    member.place["leader"] = member.checks["disk"] = False
    for _, template, path, _ in CALLS[-PLAIN:]:
        check(document, await api.call("GET", path), "GET", template)


async def test_a_stream_of_events_is_announced_as_one(serve: Serve) -> None:
    document = await document_of(await serve(token="secret"))
    events = document["paths"]["/v1/events"]["get"]
    assert set(events["responses"]["200"]["content"]) == {"text/event-stream"}
    assert {"401", "403", "429", "503"} <= set(events["responses"])
    assert events["security"] == [{"bearer": []}]


async def test_another_cluster_is_an_announced_refusal(api: Api) -> None:
    document = await document_of(api)
    assert CLUSTER_ID != "elsewhere"
    for _, template, path, body in (CALLS[0], CALLS[2]):
        answer = await api.call("POST", path, json={**(body or {}), "cluster_id": "elsewhere"})
        assert answer.status == 409
        check(document, answer, "POST", template)


async def test_that_no_id_is_left_is_an_announced_refusal(api: Api, member: MemoryMember) -> None:
    document = await document_of(api)
    member.next_id = MAX_PRODUCER_ID
    member.machine.metadata_version = TRANSACTIONAL_BLOCKS
    calls = {template: body for _, template, _, body in CALLS[:-PLAIN]}
    for path in ("/v1/brokers/{id}/register", "/v1/producer-ids/allocate", "/v1/transactions/init-producer-id"):
        answer = await api.call("POST", path.replace("{id}", "1"), json=calls[path])
        assert answer.status == (200 if path.endswith("register") else 507), answer.text
        check(document, answer, "POST", path)
