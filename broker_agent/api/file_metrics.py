"""Whether agents go by the same files, for whoever has to see to it."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pidkeeper.broker_agent.security.fingerprints import Fingerprints


class FileCollector(Collector):
    """A number for each file, which is the same where its entries are."""

    def __init__(self, fingerprints: Fingerprints) -> None:
        self._fingerprints = fingerprints

    def collect(self) -> Iterable[Metric]:
        """One gauge."""
        family = GaugeMetricFamily(
            "pidkeeper_agent_file_fingerprint",
            "Fingerprint of the users, rules or quotas in force, the same where those are the same; 0 without a file.",
            labels=["file"],
        )
        family.add_metric(["users"], int(self._fingerprints.users, 16))
        family.add_metric(["acls"], int(self._fingerprints.acls, 16))
        family.add_metric(["quotas"], int(self._fingerprints.quotas, 16))
        yield family
