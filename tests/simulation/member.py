"""One machine of the cluster: its disk, its clock, and the process that lives, dies and starts again on it."""

from __future__ import annotations

import functools
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from pidkeeper.controller.node.assembly import raft_config
from pidkeeper.controller.node.durable_voters import VotersRefused
from pidkeeper.controller.node.opening import InconsistentStorage, open_storage
from pidkeeper.controller.node.settings import PROFILES, MemberSettings, SegmentSettings, Voter
from pidkeeper.controller.raft.messages import HardState
from pidkeeper.controller.state.machine import UnsupportedMetadataVersion
from pidkeeper.controller.storage.directory import format_directory, read_meta
from pidkeeper.controller.storage.errors import DirectoryError, LogCorruption, LogFailed, LogFull
from pidkeeper.controller.storage.founding import FOUNDING_NAME, Founding
from pidkeeper.controller.storage.recovery import RecoveredLog, recover
from pidkeeper.controller.storage.restoring import restore_directory
from pidkeeper.controller.storage.wal import WriteAheadLog
from pidkeeper.protocol.addresses import HostPort
from pidkeeper.protocol.metadata_version import LATEST
from pidkeeper.snapshots.archive_format import ArchiveError
from pidkeeper.snapshots.snapshot_format import SnapshotError
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.simulation.disk import DiskCopy, SimDisk
from tests.simulation.process import Process
from tests.simulation.world import MILLISECOND, SECOND, Violation
from tests.support.memory_files import PowerCut

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster

CLUSTER_ID = "simulated-cluster"
NOWHERE = HostPort("127.0.0.1", 1)
"""No socket is ever opened."""
DAY_MS = 24 * 3_600_000
_DAMAGE = (LogCorruption, InconsistentStorage, ArchiveError, DirectoryError, SnapshotError)
_EXPECTED_FAULTS = (OSError, LogFailed, LogFull)


class OldCopy(NamedTuple):
    """A copy of a member's disk, the index of the configuration in force when it was taken, and `Member.founding`."""

    disk: DiskCopy
    configuration: int
    founding: frozenset[int] | None


class Member:
    """`process` is None while nothing runs.

    `damaged`: what is on the disk may lack what was acknowledged; `damage_is_latent`: no start has found out yet.
    `deployed`: the machine is in use; a spare one waits, or was removed. `ready`: since then it has not been recovering
    at some time; `top`: and held entries up to there. `counts_by`: the voters of every configuration that this disk has
    led its member to count by; `newest`: the members by the last of them, and by the one before, for a power cut may
    take the last one back.
    `forgot`: the last entry on the disk before it went back to an older state, until that entry is on it again.
    `copy`: the last copy that was taken of the disk.
    `clock_set`: when its wall clock jumped last.
    `hangs_until`: no work on the disk ends before that. `least_disk_delay`: none takes less than that.
    `build`: the newest metadata version that the next process reads; `taken_back`: it once was a newer one.
    `founding`: the voters that the disk was founded with, None until it was; `edited`: the file says otherwise than its
    operator knows.
    """

    def __init__(self, cluster: Cluster, node_id: int, clock_rate: float) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.network = cluster.network
        self.monitor = cluster.monitor
        self.node_id = node_id
        self.clock_rate = clock_rate
        self.tick_us = int(10 * MILLISECOND * clock_rate)
        self.disk = SimDisk()
        self.disk.lying = cluster.bug == "no-sync"
        self.core_random = self.world.stream(f"core-{node_id}")
        self.deployed = node_id in cluster.voters
        self.ready = False
        self.top = 0
        self.forgot: SnapshotId | None = None
        self.copy: OldCopy | None = None
        self.counts_by: set[frozenset[int]] = set()
        self.newest: list[frozenset[int]] = []
        self.build = cluster.swarm.first_build
        self.taken_back = False
        self.founding: frozenset[int] | None = None
        self.configure(cluster.voters)
        self.process: Process | None = None
        self.damaged = False
        self.damage_is_latent = False
        self.clock_offset = 0
        self.clock_set = -SECOND
        self.disk_slowness = 1
        self.least_disk_delay = 0
        self.hangs_until = 0
        self.cut_next_open = False
        self.starts = 0
        self._rng = self.world.stream(f"machine-{node_id}")
        self._path = Path("/data")
        self.format()

    # The machine.

    def wall_clock(self) -> float:
        """Seconds since the epoch, as this machine believes."""
        return 1_700_000_000 + (self.world.now + self.clock_offset) / SECOND

    def disk_delay(self) -> int:
        """How long the next piece of work on the disk takes."""
        base = self.cluster.swarm.disk_delay * self.disk_slowness
        delay = int(base * (0.5 + self._rng.random())) + 1
        return max(delay, self.least_disk_delay, self.hangs_until - self.world.now)

    def format(self) -> None:
        """Make the empty disk a data directory."""
        self.disk.make_directory(self._path)
        self.directory_id = uuid.UUID(int=self._rng.getrandbits(128))
        format_directory(self.disk, self._path, CLUSTER_ID, self.node_id, directory_id=self.directory_id)
        self._is_blank()

    def _is_blank(self) -> None:
        """Nothing on the disk says who the voters are: its member would count by those that the file names."""
        self.counts_by = {self._file}
        self.newest = [self._file]
        self.founding = None

    def age(self) -> None:
        """Make the empty disk one that a build without foundings has begun: there is a term in its log, and no more."""
        meta = read_meta(self.disk, self._path)
        log, _ = WriteAheadLog.open(self.disk, self._path / "wal", meta, segment_bytes=self.settings.segment_bytes)
        log.append([], HardState(1, None, 0, recovering=True))
        log.close()

    def unfound(self) -> None:
        """Take the founding off the disk, as a build that kept none leaves it; nothing runs at this time."""
        self.disk.unlink(self._path / FOUNDING_NAME)
        self.disk.fsync_directory(self._path)
        self.founding = None

    def configure(self, voters: tuple[int, ...], *, edited: bool = False) -> None:
        """Write the configuration file anew; it is read at the next start. `edited`: by mistake."""
        self._file = frozenset(voters)
        self.edited = edited
        self.settings = _settings(self.cluster, self.node_id, voters)

    def deploy(self, voters: tuple[int, ...]) -> None:
        """A machine with an empty disk, and a file that names `voters`, comes into use."""
        self.configure(voters)
        self.replace_disk()
        self.ready = False
        self.top = 0
        self.deployed = True
        self.install(LATEST)
        self.start()

    def retire(self) -> None:
        """Switch the machine off for good: what is on its disk is never seen again."""
        self.deployed = False
        self.crash(power=True, restart_after=None)
        self.damaged = self.damage_is_latent = False

    # Life.

    def start(self) -> None:
        """Open the disk and run, unless it runs already. What cannot be opened is tried again or replaced."""
        if self.process is not None or not self.deployed:
            return
        try:
            self.process = self._open()
        except PowerCut:
            self.world.note(f"member {self.node_id} loses power while it opens its log")
            self.disk.cut_power(self._rng)
        except UnsupportedMetadataVersion as error:
            self._upgrade_late(self.taken_back, error)
            self.disk.kill()
        except VotersRefused as error:
            self._file_refused(error)
            self.disk.kill()
        except _DAMAGE as error:
            self._refused(error)
        except (OSError, LogFull, LogFailed) as error:
            self.world.note(f"member {self.node_id} does not start: {error}")
            self.disk.kill()
        self._count_disk_faults()
        if self.process is None:
            self.world.at(self._rng.randrange(50 * MILLISECOND, SECOND), self.start)
            return
        self.starts += 1
        self.monitor.opened(self.process)
        self.process.start()

    def founded(self, process: Process, founding: Founding) -> None:
        """The disk belongs to a founding from now on: to the operator's, once that was ordered, or to none by name."""
        self.founding = frozenset(voter.id for voter in founding.voters)
        self.counts_by = {self.founding}
        self.newest = [self.founding]
        first = self.monitor.configuration
        # Of a change the log tells, whomever the file has named until then.
        if self.edited and not first.index and self.founding != first.voters:
            facts = f"member {self.node_id} counts by {sorted(self.founding)}, not by {sorted(first.voters)}"
            raise Violation("counts-by-its-file", facts)
        self.cluster.founder.check(self.node_id, founding)

    def crash(self, *, power: bool, restart_after: int | None) -> None:
        """Kill the process, or cut the machine's power; start again after `restart_after`."""
        process, self.process = self.process, None
        if process is not None:
            self.cluster.kill_points.gone(process)
            process.die(
                [self._rng.randrange(12) if self._rng.random() < 0.3 else self._rng.randrange(3) for _ in "1234"]
            )
            self.network.stopped(process, silent=power)
        if power:
            self.disk.cut_power(self._rng)
        else:
            self.disk.kill()
        if restart_after is not None:
            self.world.at(restart_after, self.start)

    def power_failed(self, process: Process) -> None:
        """The power went in the middle of some work on the disk."""
        if self.process is process:
            process.writer.current = None
            self.world.fault("power_cut_within_work", f"member {self.node_id}")
            self.crash(power=True, restart_after=self._rng.randrange(10 * MILLISECOND, 2 * SECOND))

    def stop(self, process: Process, restart_after: int) -> None:
        """End in order, as on SIGTERM, and start again."""
        process.stop(functools.partial(self._stopped, restart_after=restart_after))

    def _stopped(self, process: Process, restart_after: int) -> None:
        if self.process is not process:
            return
        self.process = None
        process.end()
        self.disk.kill()
        self._count_disk_faults()
        self.world.at(restart_after, self.start)

    def replace_disk(self) -> None:
        """Put an empty disk in; nothing runs at this time."""
        assert self.process is None, f"member {self.node_id} runs while its disk is replaced"
        # Whoever replaces a disk asks the others (docs/operations.md); `Nemesis._misname` is for those who do not.
        self.configure(self.cluster.operator.shown())
        self.damaged = self.damage_is_latent = True
        self.forgot = self.copy = None
        full = self.disk.full
        self.disk.replace()
        self.format()
        if full:
            self.disk.arm(full=True)

    def restore(self, copy: DiskCopy, floor: int, founding_id: uuid.UUID) -> RecoveredLog:
        """Put a copy in the disk's place, and let it take the place of its quorum; its log. Nothing runs meanwhile."""
        self.disk.go_back(copy)
        restored = restore_directory(self.disk, self._path, floor, new_founding_id=lambda: founding_id)
        return recover(self.disk, self._path / "wal", restored.meta).log

    def take_copy(self, configuration: int) -> None:
        """Copy the disk, while the configuration at this index is in force."""
        self.copy = OldCopy(self.disk.copy(), configuration, self.founding)

    def forget(self, end: SnapshotId, back_to: OldCopy | None, restart_after: int) -> None:
        """Lose power and come back with the disk as it was once; None: its newest log segment is read wrongly."""
        self.crash(power=back_to is not None, restart_after=restart_after)
        self.damaged = self.damage_is_latent = True
        self.forgot = end
        if back_to is None:
            self.disk.order_stale_read(self._rng)
        else:
            self.disk.go_back(back_to.disk)
            if back_to.founding is None:
                # As with a new one: whoever finds it blank asks the others who the voters are.
                self.configure(self.cluster.operator.shown())
                self._is_blank()

    def faulted(self, process: Process, error: BaseException) -> None:
        """The process found that it must stop."""
        self._count_disk_faults()
        self.cluster.full_disks.ended(process, error)
        if isinstance(error, UnsupportedMetadataVersion):
            self._upgrade_late(process.taken_back, error)
            self.world.at(self._rng.randrange(5 * MILLISECOND), self._exit, process)
            return
        excused = isinstance(error, _EXPECTED_FAULTS) or (self.damaged and isinstance(error, _DAMAGE))
        if self.forgot is not None and str(error).startswith("R4: told that"):
            self.world.fault("forgetting_noticed", f"member {self.node_id}: {error}")
            self.world.at(self._rng.randrange(5 * MILLISECOND), self._exit_and_replace, process)
            return
        if not excused:
            raise Violation("member-fault", f"member {self.node_id} stops: {error!r}") from error
        self.world.note(f"member {self.node_id} stops after a fault: {error}")
        self.world.at(self._rng.randrange(5 * MILLISECOND), self._exit, process)

    def install(self, build: int) -> None:
        """The next process that starts here is of `build`."""
        self.taken_back = build < self.build
        self.build = build

    def _upgrade_late(self, taken_back: bool, error: UnsupportedMetadataVersion) -> None:
        """The build is too old for the quorum: the fault of whoever took the member back to it, or else of ours.

        The process may still be of that build when the next one is installed already.
        """
        if not taken_back:
            raise Violation("upgrade", f"member {self.node_id} was always of build {self.build}: {error}") from error
        self.world.note(f"member {self.node_id} is upgraded again: {error}")
        self.install(LATEST)

    def _exit(self, process: Process) -> None:
        if self.process is process:
            self.crash(power=False, restart_after=self._rng.randrange(100 * MILLISECOND, 2 * SECOND))

    def _exit_and_replace(self, process: Process) -> None:
        """What a process that finds that its disk has forgotten asks for: an empty one."""
        if self.process is process:
            self.crash(power=False, restart_after=None)
            self.replace_disk()
            self.world.at(self._rng.randrange(100 * MILLISECOND, 2 * SECOND), self.start)

    def _open(self) -> Process:
        swarm = self.cluster.swarm
        if self.cut_next_open:
            self.cut_next_open = False
            self.disk.arm(cut_after=self._rng.randrange(12))
        storage = open_storage(self.disk, self.settings, self.build)
        if self.disk.cut_after is not None:
            self.disk.arm()
        config = replace(
            raft_config(self.settings, storage),
            heartbeat_ticks=swarm.heartbeat_ticks,
            election_ticks=swarm.election_ticks,
            link_lost_ticks=swarm.link_lost_ticks,
            max_inflight_messages=swarm.max_inflight,
            max_append_bytes=swarm.max_append_bytes,
            chunk_bytes=swarm.chunk_bytes,
            promotion_lag=swarm.promotion_lag,
        )
        try:
            return Process(self, storage, config)
        except AssertionError as error:
            raise Violation("member-fault", f"member {self.node_id} cannot start: {error!r}") from error

    def _refused(self, error: Exception) -> None:
        if not self.damaged:
            raise Violation("refused-start", f"member {self.node_id}, undamaged, does not start: {error}") from error
        self.world.note(f"member {self.node_id} refuses its disk, which is replaced: {error}")
        self.world.fault("disk_replaced_after_refusal")
        self.replace_disk()

    @property
    def wrongly_a_learner(self) -> bool:
        """Whether an empty disk was put in when its member was not yet known to be a voter, and holds elections up."""
        blank = self.damaged and self.founding is not None and self.node_id not in self.founding
        return blank and self.node_id in self.cluster.operator.shown()

    def _file_refused(self, error: VotersRefused) -> None:
        """Right where the file names nobody of the quorum; any other difference must not keep a founded member down."""
        names_nobody = any(self._file.isdisjoint(members) for members in self.newest)
        removed = self.founding is None and re.search(r"but members \[(.*)\] led this quorum", str(error))
        if removed:
            # An old disk that has not heard of a removal: its file names whoever was removed as well.
            self.world.fault("file_refused", f"member {self.node_id}: {error}")
            self.configure(tuple(sorted({*self.cluster.voters, *map(int, removed[1].split(", "))})), edited=True)
            return
        if not self.edited or not (names_nobody or self.damaged or self.founding is None):
            raise Violation("refused-file", f"member {self.node_id} does not start: {error}") from error
        self.world.fault("file_refused", f"member {self.node_id}: {error}")
        self.configure(self.cluster.voters)

    def _count_disk_faults(self) -> None:
        for kind in self.disk.on_fault:
            self.world.fault(kind, f"member {self.node_id}")
        self.disk.on_fault.clear()


def base_url(node_id: int) -> str:
    """Where nobody listens."""
    return f"http://127.0.0.1:{node_id}"


def _segments(cluster: Cluster) -> SegmentSettings:
    if cluster.data is None:
        return SegmentSettings()
    load = cluster.data.load
    return SegmentSettings(
        rows=load.roll_rows,
        age_ms=load.roll_age_ms,
        segment_bytes=load.segment_bytes,
        retention_check_ms=load.retention_check_ms,
        garbage_ms=load.garbage_ms,
    )


def _settings(cluster: Cluster, node_id: int, voters: tuple[int, ...]) -> MemberSettings:
    swarm = cluster.swarm
    return MemberSettings(
        node_id=node_id,
        cluster_id=CLUSTER_ID,
        data_dir="/data",
        voters=tuple(Voter(voter, NOWHERE, base_url(voter)) for voter in voters),
        learner=None if node_id in voters else Voter(node_id, NOWHERE, base_url(node_id)),
        peer_listen=NOWHERE,
        timing=PROFILES["lan"],
        block_size=swarm.block_size,
        broker_session_timeout_ms=swarm.session_ticks * 10,
        founding_hearing_ms=swarm.founding_hearing_ms,
        snapshot_entries=swarm.snapshot_entries,
        snapshot_allocations=swarm.snapshot_allocations,
        snapshot_bytes=swarm.snapshot_bytes,
        segment_bytes=swarm.segment_bytes,
        segments=_segments(cluster),
        peer_keys=(b"the key of the simulated cluster",),
        bridge=cluster.migrating.present and cluster.migrating.bridge,
        transaction_abort_check_ms=cluster.transactional.abort_check_ms,
        transactional_id_expiration_ms=cluster.transactional.expiration_ms,
        producer_id_expiration_ms=DAY_MS if cluster.data is None else cluster.data.load.expiration_ms,
    )
