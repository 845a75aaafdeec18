"""Faults, one after another, at random times. Never beyond what the members can survive, see `budget.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pidkeeper.controller.raft.core import Role
from pidkeeper.controller.raft.messages import Entry
from pidkeeper.protocol.errors import RequestError
from pidkeeper.protocol.founding import FoundingRecord
from pidkeeper.protocol.metadata_version import FOUNDING, LATEST
from pidkeeper.protocol.records import decode_batch
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.simulation.forged_terms import forged
from tests.simulation.world import MILLISECOND, SECOND

if TYPE_CHECKING:
    from tests.simulation.cluster import Cluster
    from tests.simulation.member import Member, OldCopy
    from tests.simulation.process import Process

_YEAR = 365 * 24 * 3_600 * SECOND


class Nemesis:
    """Throws faults from `start` to `stop`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.world = cluster.world
        self.network = cluster.network
        self.rng = cluster.world.stream("nemesis")
        self._misnaming = cluster.world.stream("misnaming")
        self._handovers = cluster.world.stream("handovers")
        self.active = False
        weights = cluster.swarm.weights
        self._kinds = [kind for kind, weight in weights.items() if weight > 0]
        self._weights = [weights[kind] for kind in self._kinds]
        # Each returns whether its fault has fired; one that is only armed is counted when and if it fires.
        self._faults: dict[str, Callable[[], bool]] = {
            kind.removeprefix("_throw_"): getattr(self, kind) for kind in dir(self) if kind.startswith("_throw_")
        }

    def start(self) -> None:
        """Begin; the cluster gets a moment to come up first."""
        self.active = True
        self.world.at(2 * SECOND, self._next)
        if self.cluster.swarm.weights.get("disk_rolled_back"):
            self.world.at(2 * SECOND, self._copy_disk)

    def stop(self) -> None:
        """Undo what lasts, start what is down, and let no damage stay in the dark."""
        self.active = False
        self.network.heal()
        self.cluster.zookeeper.heal()
        self.cluster.kill_points.disarm()
        for member in self.cluster.members.values():
            member.disk.heal()
            member.disk_slowness = 1
            member.least_disk_delay = member.hangs_until = 0
            member.cut_next_open = False
            member.install(LATEST)
            if member.edited:
                self._mend_file(member)
            else:
                self._read_again(member)
            if member.wrongly_a_learner:
                member.crash(power=False, restart_after=None)
                member.replace_disk()
            old = member.process is not None and member.process.build < LATEST
            if (member.damage_is_latent or old) and member.process is not None:
                member.crash(power=False, restart_after=None)
            member.start()

    def _next(self) -> None:
        if not self.active:
            return
        self.world.at(int(self.rng.expovariate(1.0) * self.cluster.swarm.fault_interval) + 1, self._next)
        kind = self.rng.choices(self._kinds, self._weights)[0]
        before = self.cluster.phase()
        self.world.phase = before
        if self._faults[kind]():
            self.world.fault(kind)

    # Whom it hits, and for how long.

    def _later(self, longest: int) -> int:
        """A duration; short ones are as likely as long ones, and it ends before the faults do."""
        longest = max(2 * MILLISECOND, min(longest, self.cluster.swarm.safety_time - self.world.now))
        return int(min(longest, MILLISECOND * 10 ** self.rng.uniform(0.5, 4.0)))

    def _running(self) -> Process | None:
        running = self.cluster.processes()
        return self.rng.choice(running) if running else None

    def _machine(self) -> Member:
        return self.rng.choice(self.cluster.machines())

    def _nodes(self) -> list[int]:
        return [member.node_id for member in self.cluster.machines()]

    def _leader(self) -> Process | None:
        leader = self.cluster.leader()
        return leader if leader is not None and self.rng.random() < 0.8 else self._running()

    def _may_damage(self) -> Member | None:
        """A member whose disk may be damaged now."""
        candidates = self.cluster.budget.candidates()
        return self.rng.choice(candidates) if candidates else None

    def _crash(self, process: Process | None, *, power: bool) -> bool:
        if process is None:
            return False
        process.member.crash(power=power, restart_after=self._later(3 * SECOND))
        return True

    # Processes and machines.

    def _throw_kill(self) -> bool:
        return self._crash(self._leader() if self.rng.random() < 0.5 else self._running(), power=False)

    def _throw_power_cut(self) -> bool:
        process = self._leader() if self.rng.random() < 0.5 else self._running()
        if process is not None and self.rng.random() < 0.7:
            process.member.disk.arm(cut_after=self.rng.randrange(4))
            return False
        return self._crash(process, power=True)

    def _throw_kill_all(self) -> bool:
        for process in self.cluster.processes():
            self._crash(process, power=False)
        return True

    def _throw_power_cut_all(self) -> bool:
        for member in self.cluster.machines():
            if self.rng.random() < 0.7:
                member.disk.arm(cut_after=self.rng.randrange(4))
                self.world.at(100 * MILLISECOND, self._cut_power_of, member)
            else:
                self._crash(member.process, power=True)
        return True

    def _cut_power_of(self, member: Member) -> None:
        if member.disk.cut_after is not None:
            self._crash(member.process, power=True)

    def _throw_pause(self) -> bool:
        process = self._leader()
        if process is None:
            return False
        process.loop.pause(self._later(6 * SECOND))
        return True

    def _throw_clock_jump(self) -> bool:
        member = self._machine()
        member.clock_set = self.world.now
        member.clock_offset = self.rng.randrange(-10 * _YEAR, 10 * _YEAR)
        return True

    def _throw_crash_at_open(self) -> bool:
        process = self._running()
        if process is not None:
            process.member.cut_next_open = True
        return self._crash(process, power=self.rng.random() < 0.5)

    # Operators.

    def _throw_transfer(self) -> bool:
        leader = self.cluster.leader()
        if leader is None or not leader.runs(self._nothing):
            return False
        others = [voter for voter in self.cluster.voters if voter != leader.node_id]
        try:
            leader.driver.transfer_leadership(self.rng.choice([*others, None]))
        except RequestError:
            return False
        return True

    def _throw_graceful_restart(self) -> bool:
        return self._restart_gracefully(self._leader())

    def _throw_rolling_restart(self) -> bool:
        for place, member in enumerate(self.cluster.machines()):
            self.world.at(place * (500 * MILLISECOND + self._later(SECOND)), self._restart_member, member)
        return True

    def _throw_upgrade(self) -> bool:
        """An operator restarts a member as the next build; or as the one before, while the quorum may still do that."""
        machines = self.cluster.machines()
        older = [member for member in machines if member.build < LATEST]
        newer = [member for member in machines if member.build == LATEST and self.cluster.metadata_version() < LATEST]
        if older and (not newer or self.rng.random() < 0.8):
            member = self.rng.choice(older)
            member.install(LATEST)
        elif newer:
            member = self.rng.choice(newer)
            member.install(LATEST - 1)
        else:
            return False
        self._restart_gracefully(member.process)
        return True

    def _throw_files_edited(self) -> bool:
        """Somebody names other voters in the file of a member, or in all of them, and starts it again, maybe alone."""
        founded = [member for member in self.cluster.machines() if member.founding is not None]
        if not founded:
            return False
        chosen = founded if self.rng.random() < 0.3 else [self.rng.choice(founded)]
        named = self.rng.sample(sorted(self.cluster.members), self.rng.randrange(len(self.cluster.members)))
        for member in chosen:
            member.configure(tuple(sorted({member.node_id, *named})), edited=True)
            self._crash(member.process, power=False)
        return True

    def _throw_alone_in_its_file(self) -> bool:
        """A member's disk is as builds without foundings keep it, and somebody names that member alone in its file."""
        process = self._running()
        old = self.cluster.founder.aged and self.cluster.metadata_version() < FOUNDING
        if not old or process is None or process.member.founding is None:
            return False
        core, foundings = process.core, process.machine.foundings
        # By what is on its disk: a cluster that was just started again has applied nothing yet.
        log = core.log.slice(core.first_index, core.last_index)
        if foundings.founding_id is not None or any(_is_founding(entry) for entry in log):
            return False
        member = process.member
        member.crash(power=False, restart_after=self._later(SECOND))
        member.unfound()
        member.configure((member.node_id,), edited=True)
        self.world.at(self._later(8 * SECOND), self._mend_file, member)
        return True

    def _mend_file(self, member: Member) -> None:
        """The file is as it was. A member that waits, as by the edited one it belongs to nobody, is started again."""
        if not member.edited:
            return
        member.configure(self.cluster.voters)
        self._read_again(member)

    def _read_again(self, member: Member) -> None:
        """One that waits, as whoever its file named at its start was removed, is started with what it says now."""
        if member.process is not None and member.process.node.gate.founding is None:
            self._crash(member.process, power=False)

    def _throw_term_forged(self) -> bool:
        """A member that knows the key sends a term of its own making."""
        target = self._running()
        others = [] if target is None else [node for node in self._nodes() if node != target.node_id]
        if target is None or not others:
            return False
        self.network.send([forged(self.rng, target.core.term, self.rng.choice(others), target.node_id)])
        return True

    def _restart_member(self, member: Member) -> None:
        if self.active:
            self._restart_gracefully(member.process)

    def _restart_gracefully(self, process: Process | None) -> bool:
        if process is None or process.node.stopping or not process.started() or not process.runs(self._nothing):
            return False
        if process.core.role is Role.LEADER and self._handovers.random() < 0.5:
            self._cut_handover(process.node_id)
        process.member.stop(process, restart_after=self._later(SECOND))
        return True

    def _cut_handover(self, leader: int) -> None:
        """Half of those to whom a leader may hand over do not hear of it: while it waits for them it leads on."""
        others = [node for node in self._nodes() if node != leader]
        links = {(leader, other) for other in self._handovers.sample(others, (len(others) + 1) // 2)}
        self.network.block(links)
        self.world.at(2 * SECOND, self.network.unblock, links)
        self.world.fault("handover_cut_off")

    def _throw_add_voter(self) -> bool:
        self.cluster.operator.add()
        return False

    def _throw_remove_voter(self) -> bool:
        self.cluster.operator.remove(self._voter())
        return False

    def _throw_replace_member(self) -> bool:
        """A voter makes room for an empty machine; sometimes because it has lost its disk, and is gone already."""
        node = self._voter()
        member = self.cluster.members[node]
        lost = self.rng.random() < 0.3 and member in self.cluster.budget.candidates()
        if self.cluster.operator.replace(node) and lost:
            self._lose_machine(member)
        return False

    def _lose_machine(self, member: Member) -> None:
        if member.process is not None:
            member.crash(power=True, restart_after=None)
        member.replace_disk()
        self.world.at(self.rng.choice((self._later(3 * SECOND), 15 * SECOND)), member.start)

    def _voter(self) -> int:
        leader = self.cluster.leader()
        if leader is not None and leader.node_id in self.cluster.voters and self.rng.random() < 0.4:
            return leader.node_id
        return self.rng.choice(self.cluster.voters)

    @staticmethod
    def _nothing() -> None:
        """What a paused process would be asked to do later."""

    # The network.

    def _throw_partition(self) -> bool:
        nodes = self._nodes()
        self.rng.shuffle(nodes)
        split = self.rng.randrange(1, len(nodes))
        one, other = nodes[:split], nodes[split:]
        self._cut({(a, b) for a in one for b in other} | {(b, a) for a in one for b in other})
        return True

    def _throw_partition_one_way(self) -> bool:
        nodes = self._nodes()
        links = [(a, b) for a in nodes for b in nodes if a != b]
        self._cut(set(self.rng.sample(links, self.rng.randrange(1, len(links) // 2 + 1))))
        return True

    def _throw_isolate_leader(self) -> bool:
        leader = self.cluster.leader()
        if leader is None:
            return False
        node = leader.node_id
        out = {(node, peer) for peer in self._nodes() if peer != node}
        back = {(peer, node) for peer in self._nodes() if peer != node}
        self._cut(self.rng.choice((out, back, out | back)))
        return True

    def _throw_reset_links(self) -> bool:
        one, other = self.rng.sample(self._nodes(), 2)
        self.network.reset(one, other)
        return True

    def _cut(self, links: set[tuple[int, int]]) -> None:
        length = self._later(6 * SECOND)
        self.network.block(links)
        self.world.at(length, self.network.unblock, links)
        if self.rng.random() < 0.5:
            for one, other in sorted(links):
                self.world.at(self.rng.randrange(length), self.network.reset, one, other)

    # ZooKeeper.

    def _throw_zookeeper_away(self) -> bool:
        self.cluster.zookeeper.go_away(self._later(6 * SECOND))
        return True

    def _throw_zookeeper_cut_off(self) -> bool:
        leader = self._leader()
        if leader is None:
            return False
        self.cluster.zookeeper.cut(leader.node_id, self._later(6 * SECOND))
        return True

    def _throw_zookeeper_slow(self) -> bool:
        self.cluster.zookeeper.slow_down(self.rng.choice((10, 50, 200)), self._later(5 * SECOND))
        return True

    def _throw_kill_point(self) -> bool:
        """A leader is to be lost in the midst of a claim or a step; counted when it is."""
        self.cluster.kill_points.arm()
        return False

    # Disks.

    def _throw_disk_slow(self) -> bool:
        member = self._machine()
        member.disk_slowness = self.rng.choice((10, 100, 300))
        self.world.at(self._later(5 * SECOND), setattr, member, "disk_slowness", 1)
        return True

    def _throw_disk_hang(self) -> bool:
        process = self._leader()
        if process is None:
            return False
        process.member.hangs_until = self.world.now + self._later(8 * SECOND)
        return True

    def _throw_disk_slow_all(self) -> bool:
        """As on a storage that all share. What is under way when it ends takes its time still."""
        delay, length = self.rng.choice((300, 1_000, 2_000)) * MILLISECOND, self._later(5 * SECOND)
        for member in self.cluster.machines():
            member.least_disk_delay = delay
            self.world.at(length, setattr, member, "least_disk_delay", 0)
        return True

    def _throw_disk_full(self) -> bool:
        member = self._machine()
        member.disk.arm(full=True)
        self.world.at(self._later(5 * SECOND), self._make_room, member)
        return True

    @staticmethod
    def _make_room(member: Member) -> None:
        member.disk.arm(full=False)

    def _throw_disk_sync_error(self) -> bool:
        return self._fail("sync")

    def _throw_disk_write_error(self) -> bool:
        return self._fail("write")

    def _throw_disk_open_error(self) -> bool:
        return self._fail("open", then_kill=True)

    def _throw_disk_read_error(self) -> bool:
        return self._fail("read", then_kill=True)

    def _fail(self, kind: str, *, then_kill: bool = False) -> bool:
        member = self._machine()
        member.disk.arm(fail=kind)
        if then_kill and self._crash(member.process, power=False):
            self.world.fault("kill")
        return False

    def _throw_disk_flip(self) -> bool:
        member = self._may_damage()
        folder = "/data/" + self.rng.choice(("wal", "wal", "wal", "snapshots", "archive"))
        name = None if member is None else member.disk.flip_bit(self.rng, folder)
        if member is None or name is None:
            return False
        self.world.note(f"a bit of {name} of member {member.node_id} flips")
        self._damaged(member)
        return True

    def _throw_disk_misdirected_write(self) -> bool:
        member = self._may_damage()
        if member is None or member.process is None:
            return False
        member.disk.order_misdirection(self.rng)
        self._damaged(member)
        return False

    def _throw_disk_replaced(self) -> bool:
        member = self._may_damage()
        if member is None:
            return False
        if member.process is not None:
            member.crash(power=True, restart_after=None)
        member.replace_disk()
        self._misname(member)
        member.damage_is_latent = True
        self.world.at(self._later(3 * SECOND), member.start)
        return True

    def _misname(self, member: Member) -> None:
        """In half of the cases whoever put in the empty disk has left out some of the voters, or named others.

        Builds of before cannot tell a blank member who the voters are: it counts by its file among them.
        """
        shown = self.cluster.operator.shown()
        others = sorted(set(shown) - {member.node_id})
        told = self.cluster.metadata_version() == LATEST and member.node_id in shown
        if told and others and self._misnaming.random() < 0.5:
            named = self._misnaming.sample(others, self._misnaming.randint(1, len(others)))
            strangers = [one for one in self.cluster.members if self._misnaming.random() < 0.2]
            member.configure(tuple(sorted({member.node_id, *named, *strangers})), edited=True)
            self.world.fault("disk_replaced_by_another_file", f"member {member.node_id} names {sorted(named)}")

    def _copy_disk(self) -> None:
        """Somebody takes a copy of a disk, of a running member or at rest."""
        if not self.active:
            return
        self.world.at(self.rng.randrange(SECOND, 4 * SECOND), self._copy_disk)
        member = self._machine()
        index = self.cluster.monitor.configuration.index
        process = member.process
        known = not index if process is None else self.cluster.budget.knows_configuration(process)
        if known and not member.damaged:
            member.take_copy(index)

    def _throw_disk_rolled_back(self) -> bool:
        index = self.cluster.monitor.configuration.index
        fit = [(process.member, process.member.copy) for process in self.cluster.budget.may_forget()]
        copies = [(member, copy) for member, copy in fit if copy is not None and copy.configuration == index]
        if not copies:
            return False
        member, copy = self.rng.choice(copies)
        self._forget(member, copy)
        return True

    def _throw_disk_stale_read(self) -> bool:
        fit = self.cluster.budget.may_forget()
        if fit:
            self._forget(self.rng.choice(fit).member, None)
        return False

    def _forget(self, member: Member, copy: OldCopy | None) -> None:
        process = member.process
        assert process is not None, f"member {member.node_id} is down: nobody knows what its disk holds"
        end = SnapshotId(process.durable_last, process.core.term_at(process.durable_last) or 0)
        self.world.note(f"the disk of member {member.node_id} goes back, from {end}")
        member.forget(end, copy, self._later(2 * SECOND))

    def _damaged(self, member: Member) -> None:
        """What is wrong with the disk comes to light at the next start, which comes soon."""
        member.damaged = member.damage_is_latent = True
        self.world.at(self.rng.randrange(1, 2 * SECOND), self._bring_to_light, member)

    def _bring_to_light(self, member: Member) -> None:
        member.disk.misdirect = None
        if member.damage_is_latent and member.process is not None:
            member.crash(power=self.rng.random() < 0.5, restart_after=self._later(SECOND))


def _is_founding(entry: Entry) -> bool:
    return bool(entry.data) and any(isinstance(record, FoundingRecord) for record in decode_batch(entry.data))
