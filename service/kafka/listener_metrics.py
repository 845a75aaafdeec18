"""The samples of a listener of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from pidkeeper.service.kafka.listener import KafkaListener


def listener_families(prefix: str, listener: KafkaListener) -> Iterator[Metric]:
    """Every family, freshly made."""
    for name, text, value in (
        ("connections_accepted", "Kafka connections accepted.", listener.accepted),
        ("connections_refused", "Kafka connections refused because the limit was reached.", listener.refused),
        ("connections_evicted", "Kafka connections that gave way to new ones.", listener.evicted),
        ("connections_idle_closed", "Kafka connections closed as idle.", listener.idle_closed),
        ("malformed_frames", "Kafka connections closed for a malformed request.", listener.malformed),
    ):
        yield CounterMetricFamily(prefix + name, text, value=value)
    for name, text, value in (
        ("connections", "Open Kafka connections.", len(listener.connections)),
        ("pool_bytes", "Bytes that long and overlapping Kafka requests hold.", listener.pool.used),
        ("pool_waiting", "Kafka connections that wait for memory for such a request.", listener.pool.waiting),
    ):
        yield GaugeMetricFamily(prefix + name, text, value=value)
    for name, text, counts in (
        (
            "connections_cut",
            "Kafka connections closed for taking too long, holding too much, or an expired certificate or user.",
            listener.cut,
        ),
        ("handshakes_failed", "New Kafka connections that came to no TLS.", listener.handshakes_failed),
    ):
        family = CounterMetricFamily(prefix + name, text, labels=["reason"])
        for reason, count in counts.items():
            family.add_metric([reason], count)
        yield family
    authenticated = CounterMetricFamily(
        prefix + "authentications", "Kafka clients that authenticated by SASL.", labels=["mechanism", "outcome"]
    )
    for mechanism_and_outcome, count in listener.authentications.items():
        authenticated.add_metric(mechanism_and_outcome, count)
    yield authenticated
