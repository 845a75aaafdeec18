"""The exposition: parseable, complete, and counting what happened."""

from __future__ import annotations

import platform

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from pidkeeper.controller.api.limits import ApiLimits
from pidkeeper.service.build import build_version
from pidkeeper.service.throttle import Rate
from tests.support.memory_member import MemoryMember
from tests.unit.controller.api.conftest import Api, Serve

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}
DURATION_COUNT = "pidkeeper_api_request_duration_seconds_count"
THROTTLED = "pidkeeper_ids_allocation_throttled_total"

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


async def scrape(api: Api) -> Samples:
    text = (await api.call("GET", "/metrics")).text
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse_text(text)
        for sample in family.samples
    }


def requests(samples: Samples, route: str, outcome: str) -> float:
    return samples.get(("pidkeeper_api_requests_total", (("outcome", outcome), ("route", route))), 0.0)


async def test_every_answer_is_counted_by_route_and_outcome(api: Api, member: MemoryMember) -> None:
    member.epochs = {1: 1}
    for epoch in (1, 1, 7):
        await api.call("POST", "/v1/producer-ids/allocate", json={"broker_id": 1, "broker_epoch": epoch})
    await api.call("POST", "/v1/producer-ids/allocate", data=b"{", headers={"Content-Type": "application/json"})
    await api.call("GET", "/nowhere")
    samples = await scrape(api)
    assert requests(samples, "allocate_producer_ids", "success") == 2
    assert requests(samples, "allocate_producer_ids", "STALE_BROKER_EPOCH") == 1
    assert requests(samples, "allocate_producer_ids", "INVALID_REQUEST") == 1
    assert requests(samples, "unknown", "RESOURCE_NOT_FOUND") == 1
    assert samples["pidkeeper_allocation_duration_seconds_count", ()] == 2


async def test_health_build_process_and_the_members_own_samples_are_there(api: Api, member: MemoryMember) -> None:
    member.place["caught_up"] = False
    samples = await scrape(api)
    assert samples["pidkeeper_healthcheck", (("name", "leader"), ("type", "readyz"))] == 1
    assert samples["pidkeeper_healthcheck", (("name", "caught_up"), ("type", "readyz"))] == 0
    assert samples["pidkeeper_raft_term", ()] == 1
    assert samples["process_start_time_seconds", ()] > 0
    assert samples["pidkeeper_event_loop_lag_seconds", ()] >= 0
    (info,) = [dict(labels) for (name, labels), value in samples.items() if name == "pidkeeper_build_info" and value]
    assert info == {"version": build_version(), "python_version": platform.python_version()}


async def test_every_name_has_a_prefix_that_says_whose_it_is(api: Api) -> None:
    assert {name.split("_")[0] for name, _ in await scrape(api)} == {"pidkeeper", "process"}


async def test_openmetrics_on_request(api: Api) -> None:
    answer = await api.call("GET", "/metrics", headers=OPENMETRICS)
    assert answer.content_type == "application/openmetrics-text"
    families = parse_openmetrics(answer.text)  # type: ignore[no-untyped-call]
    assert "pidkeeper_api_requests" in {family.name for family in families}


async def test_a_traced_request_is_an_exemplar_of_its_bucket(api: Api, member: MemoryMember) -> None:
    member.epochs = {1: 1}
    body = {"broker_id": 1, "broker_epoch": 1}
    for header in (f"00-{TRACE}-00f067aa0ba902b7-01", "00-nonsense"):
        await api.call("POST", "/v1/producer-ids/allocate", json=body, headers={"traceparent": header})
    answer = await api.call("GET", "/metrics", headers=OPENMETRICS)
    families = {family.name: family for family in parse_openmetrics(answer.text)}  # type: ignore[no-untyped-call]
    for name in ("pidkeeper_allocation_duration_seconds", "pidkeeper_api_request_duration_seconds"):
        found = [sample.exemplar for sample in families[name].samples if sample.exemplar is not None]
        assert [exemplar.labels for exemplar in found] == [{"trace_id": TRACE}], name
    assert TRACE not in (await api.call("GET", "/metrics")).text, "the older format has no exemplars"


async def test_a_stranger_names_no_trace(serve: Serve) -> None:
    api = await serve(token="right")
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
    body = {"broker_id": 1, "broker_epoch": 1}
    assert (await api.call("POST", "/v1/producer-ids/allocate", json=body, headers=headers)).status == 401
    answer = await api.call("GET", "/metrics", headers=OPENMETRICS)
    assert TRACE not in answer.text
    assert (await scrape(api))[DURATION_COUNT, (("route", "allocate_producer_ids"),)] == 1


async def test_what_brokers_ask_for_is_timed_by_route(api: Api, member: MemoryMember) -> None:
    member.epochs = {1: 1}
    await api.call("POST", "/v1/producer-ids/allocate", json={"broker_id": 1, "broker_epoch": 7})
    await api.call("GET", "/v1/quorum")
    samples = await scrape(api)
    timed = {dict(labels)["route"]: value for (name, labels), value in samples.items() if name == DURATION_COUNT}
    assert timed.pop("allocate_producer_ids") == 1
    assert timed == dict.fromkeys(
        (
            "register_broker",
            "broker_heartbeat",
            "unregister_broker",
            "init_producer_id",
            "add_partitions_to_txn",
            "end_txn",
            "commit_object",
            "read_logs",
            "watch_logs",
            "find_offsets",
            "find_rolls",
            "commit_segment",
            "delete_records",
            "find_garbage",
            "objects_deleted",
            "check_objects",
            "find_topics",
            "create_topic",
            "delete_topic",
            "find_group",
            "commit_group",
            "commit_offsets",
            "fetch_offsets",
            "delete_group",
            "delete_offsets",
        ),
        0,
    )


async def test_throttled_allocations_are_counted_by_broker(serve: Serve, member: MemoryMember) -> None:
    one = Rate(per_second=0.001, burst=1)
    api = await serve(limits=ApiLimits(broker_allocations=one, broker_sessions=one))
    member.epochs = {1: 1, 2: 1}
    for broker in (1, 1, 1, 2):
        await api.call("POST", "/v1/producer-ids/allocate", json={"broker_id": broker, "broker_epoch": 1})
    # Of other requests the quota is told, and no broker.
    for _ in range(3):
        await api.call("POST", "/v1/brokers/2/heartbeat", json={"broker_epoch": 1})
    samples = await scrape(api)
    throttled = {dict(labels)["broker"]: value for (name, labels), value in samples.items() if name == THROTTLED}
    assert throttled == {"1": 2, "other": 0}
    assert samples["pidkeeper_throttled_total", (("quota", "broker"),)] == 4
