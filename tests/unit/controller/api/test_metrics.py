"""The exposition: parseable, complete, and counting what happened."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from pidkeeper.service.metrics import BUCKET_BOUNDS_US, DurationHistogram
from tests.support.memory_member import MemoryMember
from tests.unit.controller.api.conftest import Api

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
    assert any(name == "pidkeeper_build_info" and value == 1 for (name, _), value in samples.items())


async def test_every_name_has_a_prefix_that_says_whose_it_is(api: Api) -> None:
    assert {name.split("_")[0] for name, _ in await scrape(api)} == {"pidkeeper", "process"}


async def test_openmetrics_on_request(api: Api) -> None:
    answer = await api.call("GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.content_type == "application/openmetrics-text"
    families = parse_openmetrics(answer.text)  # type: ignore[no-untyped-call]
    assert "pidkeeper_api_requests" in {family.name for family in families}


def test_a_duration_falls_into_the_first_bucket_that_holds_it() -> None:
    histogram = DurationHistogram()
    for duration_us in (1, 250, 251, 10**9):
        histogram.observe(duration_us * 1000)
    samples = {s.labels.get("le", s.name): s.value for s in histogram.family("d", "D.").samples}
    assert (samples["0.00025"], samples["0.0005"], samples["+Inf"]) == (2, 3, 4)
    assert samples[str(BUCKET_BOUNDS_US[-1] / 1e6)] == 3
    assert samples["d_sum"] == (1 + 250 + 251 + 10**9) / 1e6
