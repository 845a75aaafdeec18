"""What the data plane counts: plain numbers that the metrics read."""

from __future__ import annotations

from collections import Counter

from pidkeeper.service.histogram import durations


class Counters:
    """Since the start, but `unknown_names`, which is of the last sweep.

    `*_durations` are histograms of nanoseconds, each with its tries and pauses.
    `refused_batches`: by Kafka's code. `damaged_reads`: ranges whose object is missing, or is not what the quorum says.
    """

    def __init__(self) -> None:
        self.produce_requests = 0
        self.batches_in = 0
        self.bytes_in = 0
        self.refused_batches: Counter[int] = Counter()
        self.objects_put = 0
        self.objects_given_up = 0
        self.put_durations = durations()
        self.commit_durations = durations()
        self.fetch_requests = 0
        self.bytes_out = 0
        self.store_reads = 0
        self.damaged_reads = 0
        self.recent_reads = 0
        self.index_hits = 0
        self.index_loads = 0
        self.rolls = 0
        self.rolled_bytes = 0
        self.rolls_refused = 0
        self.rolls_damaged = 0
        self.duties_failed = 0
        self.objects_deleted = 0
        self.garbage_misnamed = 0
        self.orphans_deleted = 0
        self.unknown_names = 0
