"""The commands that change who votes."""

from __future__ import annotations

from collections.abc import Callable

from pidkeeper.protocol.records import VotersRecord, encode_batch
from tests.scenarios.actors import Actors
from tests.scenarios.configuration import with_member, without_member
from tests.scenarios.transcript import Args, ScenarioError
from tests.scenarios.wording import configuration, payload


class Changes(Actors):
    """Ask a leader for a change, and look at what is in force."""

    def add_learner(self, args: Args) -> None:
        """Ask a leader for a new member, which does not vote."""
        self._change(args, lambda record, member_id: with_member(record, member_id, voting=False))

    def promote(self, args: Args) -> None:
        """Ask a leader to let a member vote."""
        self._change(args, lambda record, member_id: with_member(record, member_id, voting=True))

    def remove(self, args: Args) -> None:
        """Ask a leader to let a member go."""
        self._change(args, without_member)

    def join(self, args: Args) -> None:
        """Make a member a learner that has caught up, or a `voter`; only the outcome is shown."""
        steps = [self.add_learner, self.promote] if args.flag("voter") else [self.add_learner]
        leader = self._one(args)
        for step in steps:
            step(args)
            self.world.settle(set(self.world.members))
            for _ in range(leader.config.heartbeat_ticks):
                with self.world.calling(leader) as core:
                    core.tick()
            self.world.settle(set(self.world.members))
        progress = leader.core.progress[self._second(args)]
        if progress.recovery or progress.match < leader.core.last_index or leader.core.commit < leader.core.last_index:
            raise ScenarioError("it did not get that far: " + "; ".join(self.world.trace))
        self.world.trace = []
        args.words = []
        self.members(args)

    def members(self, args: Args) -> None:
        """The configuration in force, and to whom messages go if to others than its members."""
        for member in self._some(args):
            core = member.core
            contacts = [contact.id for contact in core.contacts()]
            apart = "" if set(contacts) == core.membership.members else f"; messages go to all of {contacts}"
            self.world.note(member, configuration(core) + apart)

    def _change(self, args: Args, change: Callable[[VotersRecord, int], VotersRecord]) -> None:
        member = self._one(args)
        record = change(member.core.membership.record, self._second(args))
        with self.world.calling(member) as core:
            term, index = core.change_members(record)
            self.world.note(member, f"appends {index}@{term} {payload(encode_batch([record]))}")
