"""The commands of a scenario. README.md beside this file is their reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pidkeeper.controller.raft.core import NotLeader, ProposalRefused, RaftConfig, Role
from pidkeeper.controller.raft.messages import HardState, Message
from pidkeeper.snapshots.snapshot_id import SnapshotId
from tests.scenarios.changes import Changes
from tests.scenarios.transcript import Args, ScenarioError, parse_int, rerun
from tests.scenarios.wording import configuration, entries, payload, slots, status, terms
from tests.scenarios.world import Member, World
from tests.support.raft_network import Disk, entries_of

_OPTIONS: Final = {
    "heartbeat": "heartbeat_ticks",
    "election": "election_ticks",
    "link-lost": "link_lost_ticks",
    "window": "max_inflight_messages",
    "append-bytes": "max_append_bytes",
    "chunk-bytes": "chunk_bytes",
    "promotion-lag": "promotion_lag",
}


class Scenario(Changes):
    """A world, and the commands that move it; each returns nothing and leaves its trace in the world."""

    def execute(self, command: str) -> list[str]:
        """Run one command; its trace. Raises ScenarioError if it cannot be understood or has nothing to act on."""
        args = Args(command)
        if args.verb not in _COMMANDS:
            raise ScenarioError(f"unknown command {args.verb!r}; there are {', '.join(sorted(_COMMANDS))}")
        self.world.trace = []
        try:
            _COMMANDS[args.verb](self, args)
        except (NotLeader, ProposalRefused, ValueError) as refusal:
            self.world.trace.append(f"refused: {refusal}")
        args.finish()
        return self.world.trace

    # Members and their disks.

    def voters(self, args: Args) -> None:
        """Name the voters of a blank cluster, what differs from the defaults, and who else has a machine ready.

        `named`: leaders name the voters in their logs.
        """
        named = args.flag("named")
        given = {field: args.option(key) for key, field in _OPTIONS.items()}
        config: dict[str, Any] = {field: parse_int(text) for field, text in given.items() if text is not None}
        ids = tuple(args.numbers())
        spare = [parse_int(word) for word in (args.option("spare") or "").split(",") if word]
        configs = [RaftConfig(one, ids, learner=one in spare, **config) for one in [*ids, *spare]]
        self.world = World({config.node_id: Member(config, names_voters=named) for config in configs})

    def start(self, args: Args) -> None:
        """Boot members that have not run yet, from disks that hold what the options say."""
        blank = args.flag("blank")
        log = [parse_int(term) for term in (args.option("log") or "").split(",") if term]
        index, _, term = (args.option("snapshot") or "0@0").partition("@")
        snapshot = SnapshotId(parse_int(index), parse_int(term))
        last_term = log[-1] if log else snapshot.term
        vote = args.option("vote")
        hard_state = HardState(
            args.number("term", last_term),
            None if vote is None else parse_int(vote),
            args.number("commit", snapshot.index),
            blank,
        )
        for member in self._named(args):
            member.disk = Disk(recovering=blank)
            member.disk.hard_state = hard_state
            member.disk.snapshot = snapshot
            member.disk.image = "".join(f"{i}@{snapshot.term} \n" for i in range(1, snapshot.index + 1)).encode()
            member.disk.entries = entries_of(log, snapshot.index + 1)
            self._boot(member)

    def crash(self, args: Args) -> None:
        """The process ends; what has left is on its way, what was not durable is gone but for `kept=` writes."""
        kept = args.number("kept", 0)
        for member in self._some(args):
            for _ in range(min(kept, len(member.disk.pending))):
                self.world.note(member, f"write #{member.disk.pending[0].token} is durable, unnoticed")
                member.disk.sync_one()
            lost = [self.world.write_text(ready) for ready in member.disk.pending]
            member.down = "down"
            self.world.note(member, "crashes" + (f", losing: {' and '.join(lost)}" if lost else ""))

    def restart(self, args: Args) -> None:
        """Start members again from what is durable; `lost=`: so many of the last entries were torn off the disk.

        `torn`: a part of a write that was under way is there, so nobody can tell whether more was.
        """
        lost, torn = args.number("lost", 0), args.flag("torn")
        for member in self._named(args):
            disk = member.disk
            if lost or torn:
                old = disk.hard_state
                disk.entries = disk.entries[: len(disk.entries) - lost]
                disk.hard_state = HardState(old.term, old.vote, old.commit, True)
            self._boot(member)

    def wipe(self, args: Args) -> None:
        """The disk is replaced by a freshly formatted one, and the member started on it."""
        member = self._one(args)
        member.disk = Disk(recovering=True)
        self._boot(member)

    def _boot(self, member: Member) -> None:
        member.boot()
        core = member.core
        recovering = ", recovering" if core.recovering else ""
        vote = "no vote" if core.vote is None else f"vote {core.vote}"
        log = terms(slots(core))
        members = f"; {configuration(core)}" if core.membership.index else ""
        text = f"starts in term {core.term}, {vote}, commit {core.commit}{recovering}; log: {log}{members}"
        self.world.note(member, text)

    # Time.

    def tick(self, args: Args) -> None:
        """Let the clocks of some members run, all of them the same number of ticks; nothing else happens.

        `unheard`: what they send meanwhile is lost, and counted instead of shown.
        """
        times = args.number("times", 1)
        unheard = args.flag("unheard")
        members = self._some(args)
        for _ in range(times):
            for member in members:
                with self.world.calling(member) as core:
                    core.tick()
        if unheard:
            before = list(self.world.flying)
            for member in members:
                self.world.finish(member)
            self.world.trace.append(f"({len(self.world.flying) - len(before)} messages lost)")
            self.world.flying = before

    def run(self, args: Args) -> None:
        """Let time pass: after every tick of all clocks, everything is settled. Heartbeats are counted, not shown."""
        times = args.number("times", 1)
        world = self.world
        members = self._some(args)
        world.hidden_heartbeats = 0
        for _ in range(times):
            for member in members:
                if member.down is None:
                    with world.calling(member) as core:
                        core.tick()
            world.settle(set(world.members))
        world.trace.append(f"({times} ticks, {world.hidden_heartbeats} heartbeats and replies not shown)")
        world.hidden_heartbeats = None

    def campaign(self, args: Args) -> None:
        """Let the clock of one member alone run until its election timeout has passed."""
        member = self._one(args)
        draws = member.rng.timeouts
        for count in range(1, 2 * member.config.election_ticks + 1):
            before = len(self.world.trace)
            with self.world.calling(member) as core:
                core.tick()
            if member.rng.timeouts > draws:
                self.world.trace.insert(before, f"{member.node_id:<8}hears from no leader for {count} ticks")
                return
        raise ScenarioError(f"{member.node_id} does not time out")

    def elect(self, args: Args) -> None:
        """Let a member time out and win, and a heartbeat pass; only the outcome is shown."""
        member = self._one(args)
        self.campaign(args)
        self.world.settle(set(self.world.members))
        for _ in range(member.config.heartbeat_ticks):
            with self.world.calling(member) as core:
                core.tick()
        self.world.settle(set(self.world.members))
        if member.core.role is not Role.LEADER:
            raise ScenarioError(f"{member.node_id} was not elected: " + "; ".join(self.world.trace))
        self.world.trace = []
        self.world.note(member, f"is elected in term {member.core.term}")
        args.words = []
        self.log(args)

    def set_timeout(self, args: Args) -> None:
        """The election timeout that a member draws from its next draw on, in ticks."""
        member = self._one(args)
        member.rng.timeout = self._second(args)

    # What clients and operators ask for.

    def propose(self, args: Args) -> None:
        """Propose each word as an entry of its own."""
        member = self._one(args)
        for word in args.words[1:]:
            with self.world.calling(member) as core:
                term, index = core.propose(word.encode())
                self.world.note(member, f"appends {index}@{term} {payload(word.encode())}")

    def transfer(self, args: Args) -> None:
        """Ask a leader to hand over to a member, or to the one that is most caught up."""
        member = self._one(args)
        target = parse_int(args.words[1]) if len(args.words) > 1 else None
        with self.world.calling(member) as core:
            core.transfer_leadership(target)

    def compact(self, args: Args) -> None:
        """Take a snapshot of all that was applied, and drop the log through it but for `keep=` entries."""
        member = self._one(args)
        index = member.core.applied
        term = member.core.term_at(index)
        assert term is not None
        snapshot, keep_from = SnapshotId(index, term), max(index + 1 - args.number("keep", 0), 1)
        with self.world.calling(member) as core:
            core.compact(snapshot, keep_from)
        image = "".join(line + "\n" for line in member.applied).encode()
        member.disk.compact(snapshot, image, keep_from)
        log = terms(slots(member.core))
        self.world.note(member, f"snapshot {index}@{term}, {len(image)} bytes; log: {log}")

    # The work of one member, step by step.

    def ready(self, args: Args) -> None:
        """Take one round of work from a member: writes begin, messages leave, entries wait to be applied."""
        for member in self._some(args):
            ready = self.world.take_ready(member, arrow="~>")
            if ready is None:
                self.world.note(member, "has nothing to do")
                continue
            if ready.token is not None:
                self.world.note(member, f"begins write #{ready.token}: {self.world.write_text(ready)}")
            if ready.committed:
                self.world.note(member, f"may apply {entries(ready.committed)}")

    def durable(self, args: Args) -> None:
        """The oldest writes under way are durable."""
        member = self._one(args)
        for _ in range(args.number("count", 1)):
            if not member.disk.pending:
                raise ScenarioError("no write is under way")
            self.world.write_done(member, begun=True)

    def apply(self, args: Args) -> None:
        """Apply everything that was handed out."""
        member = self._one(args)
        if not member.to_apply:
            raise ScenarioError("nothing was handed out for applying")
        while member.to_apply:
            self.world.apply_one(member)

    def install(self, args: Args) -> None:
        """The snapshot that was received to the end is in force, or `damaged`."""
        damaged = args.flag("damaged")
        member = self._one(args)
        if member.installing is None:
            raise ScenarioError("no snapshot was received to the end")
        self.world.install(member, damaged=damaged)

    def settle(self, args: Args) -> None:
        """Deliver and work until the members named, or all, have nothing left to do."""
        only = set(args.numbers()) or set(self.world.members)
        self.world.settle(only)

    # The network.

    def _wanted(self, args: Args) -> Callable[[Message], bool]:
        sender, to, kind = args.option("from"), args.option("to"), args.option("kind")
        if sender is not None:
            parse_int(sender)
        return lambda message: (
            sender in {None, str(message.sender)}
            and to in {None, str(message.to)}
            and kind in {None, type(message).__name__}
        )

    def _taken(self, args: Args) -> list[Message]:
        return self.world.take_flying(self._wanted(args), args.number("skip", 0), args.number("count", 1000))

    def deliver(self, args: Args) -> None:
        """Messages arrive in the order in which they left; the receivers do no work yet. `copy`: they stay, too."""
        copy = args.flag("copy")
        messages = self._taken(args)
        if copy:
            self.world.flying = messages + self.world.flying
        for message in messages:
            self.world.arrive(message)

    def drop(self, args: Args) -> None:
        """Messages are lost."""
        for message in self._taken(args):
            self.world.note_message(message, "-x")

    def hold(self, args: Args) -> None:
        """Messages are late: they arrive after `release`, and behind all others."""
        for message in self._taken(args):
            self.world.held.append(message)
            self.world.note_message(message, "~>")

    def release(self, args: Args) -> None:
        """What was held goes on."""
        self.world.flying += self.world.held
        self.world.held = []

    def messages(self, args: Args) -> None:
        """List what is on its way."""
        for message in self.world.flying:
            self.world.note_message(message, "~>")

    def cut(self, args: Args) -> None:
        """Lose what travels between two members, or between one and all others. Nobody is told."""
        self.world.cuts |= self._links(args)

    def heal(self, args: Args) -> None:
        """Mend the links named, or all."""
        self.world.cuts -= self._links(args) if args.words else self.world.cuts.copy()

    def _links(self, args: Args) -> set[frozenset[int]]:
        named = [member.node_id for member in self._named(args)]
        if len(named) == 1:
            return {frozenset({named[0], peer}) for peer in self.world.members if peer != named[0]}
        return {frozenset({named[0], peer}) for peer in named[1:]}

    def link_lost(self, args: Args) -> None:
        """Tell a member that its connection to a peer broke."""
        with self.world.calling(self._one(args)) as core:
            core.link_lost(self._second(args))

    def link_up(self, args: Args) -> None:
        """Tell a member that a connection to a peer exists."""
        with self.world.calling(self._one(args)) as core:
            core.link_up(self._second(args))

    # Looking.

    def status(self, args: Args) -> None:
        """What members are and know."""
        for member in self._some(args):
            first, *rest = status(member.core)
            self.world.note(member, first)
            self.world.trace += [f"{'':<8}{line}" for line in rest]

    def log(self, args: Args) -> None:
        """The logs in memory: what is durable, what is not, and where they begin."""
        for member in self._some(args):
            core = member.core
            durable = [slot for slot in slots(core) if slot[0] <= core.log.stable]
            rest = [slot for slot in slots(core) if slot[0] > core.log.stable]
            text = terms(durable) + (f", not durable: {terms(rest)}" if rest else "")
            if core.snapshot.index:
                text = f"snapshot {core.snapshot.index}@{core.snapshot.term}, then {text}"
            self.world.note(member, f"commit {core.commit}; {text}")

    def applied(self, args: Args) -> None:
        """What the state machines hold: the proposals that they were told, empty entries left out."""
        for member in self._some(args):
            words = [line.split(" ", 1)[1] for line in member.applied]
            self.world.note(member, " ".join(word for word in words if word) or "nothing")


_COMMANDS: Final[dict[str, Callable[[Scenario, Args], None]]] = {
    "add-learner": Scenario.add_learner,
    "applied": Scenario.applied,
    "apply": Scenario.apply,
    "campaign": Scenario.campaign,
    "compact": Scenario.compact,
    "crash": Scenario.crash,
    "cut": Scenario.cut,
    "deliver": Scenario.deliver,
    "drop": Scenario.drop,
    "durable": Scenario.durable,
    "heal": Scenario.heal,
    "elect": Scenario.elect,
    "hold": Scenario.hold,
    "install": Scenario.install,
    "join": Scenario.join,
    "link-lost": Scenario.link_lost,
    "link-up": Scenario.link_up,
    "log": Scenario.log,
    "members": Scenario.members,
    "messages": Scenario.messages,
    "promote": Scenario.promote,
    "propose": Scenario.propose,
    "ready": Scenario.ready,
    "release": Scenario.release,
    "remove": Scenario.remove,
    "restart": Scenario.restart,
    "run": Scenario.run,
    "set-timeout": Scenario.set_timeout,
    "settle": Scenario.settle,
    "start": Scenario.start,
    "status": Scenario.status,
    "tick": Scenario.tick,
    "transfer": Scenario.transfer,
    "voters": Scenario.voters,
    "wipe": Scenario.wipe,
}


def run_scenario(text: str) -> str:
    """The transcript with the traces that its commands print now."""
    return rerun(text, Scenario().execute)
