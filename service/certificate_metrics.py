"""When the certificate of a process ends, for whoever has to renew it."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pidkeeper.service.protection import Protection


class CertificateCollector(Collector):
    """Until when the process's certificate is valid; nothing where there is none."""

    def __init__(self, protection: Protection) -> None:
        self._protection = protection

    def collect(self) -> Iterable[Metric]:
        """One gauge."""
        if (tls := self._protection.tls) is not None:
            yield GaugeMetricFamily(
                "pidkeeper_certificate_expiry_timestamp_seconds",
                "When the certificate of this process ends.",
                value=tls.ends.timestamp(),
            )
