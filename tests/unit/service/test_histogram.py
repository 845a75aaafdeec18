"""What is counted by buckets, and how it is shown."""

from __future__ import annotations

from prometheus_client.core import HistogramMetricFamily

from pidkeeper.service.histogram import BUCKET_BOUNDS_US, SHORT_BOUNDS_US, Histogram, durations

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
OTHER_TRACE = "0af7651916cd43dd8448eb211c80319c"


def buckets(family: HistogramMetricFamily) -> dict[str, float]:
    return {sample.labels["le"]: sample.value for sample in family.samples if "le" in sample.labels}


def traces(family: HistogramMetricFamily) -> dict[str, tuple[dict[str, str], float]]:
    return {
        sample.labels["le"]: (sample.exemplar.labels, sample.exemplar.value)
        for sample in family.samples
        if sample.exemplar is not None
    }


def test_a_number_falls_into_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram((1, 2, 4))
    for number in (1, 2, 3, 4, 5):
        histogram.observe(number)
    family = histogram.family("requests", "R.")
    assert buckets(family) == {"1.0": 1, "2.0": 2, "4.0": 4, "+Inf": 5}
    totals = {sample.name: sample.value for sample in family.samples if "le" not in sample.labels}
    assert totals == {"requests_count": 5, "requests_sum": 15}
    assert histogram.count == 5


def test_durations_are_taken_in_nanoseconds_and_shown_in_seconds() -> None:
    histogram = durations(SHORT_BOUNDS_US)
    histogram.observe(62_000)
    histogram.observe(62_001)
    found = buckets(histogram.family("d", "D."))
    assert next(iter(found)) == "6.2e-05"
    assert list(found.values())[:2] == [1, 2]
    assert list(found)[-2] == str(BUCKET_BOUNDS_US[-1] / 1e6)


def test_each_bucket_names_the_latest_trace_in_it() -> None:
    histogram = Histogram((1, 10), scale=10)
    histogram.observe(1)
    assert traces(histogram.family("h", "H.")) == {}
    histogram.observe(1, OTHER_TRACE)
    histogram.observe(0, TRACE)
    histogram.observe(1)
    histogram.observe(11, OTHER_TRACE)
    named = {"0.1": ({"trace_id": TRACE}, 0), "+Inf": ({"trace_id": OTHER_TRACE}, 1.1)}
    assert traces(histogram.family("h", "H.")) == named


def test_histograms_of_one_family_are_told_apart_by_their_labels() -> None:
    family = HistogramMetricFamily("h", "H.", labels=["peer"])
    for peer, number in (("2", 1), ("3", 5)):
        histogram = Histogram((2,))
        histogram.observe(number)
        histogram.add_to(family, peer)
    first = {sample.labels["peer"]: sample.value for sample in family.samples if sample.labels.get("le") == "2.0"}
    assert first == {"2": 1, "3": 0}
