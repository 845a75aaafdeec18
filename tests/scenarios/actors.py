"""The members that a command names."""

from __future__ import annotations

from tests.scenarios.transcript import Args, ScenarioError, parse_int
from tests.scenarios.world import Member, World


class Actors:
    """A world, and how commands find its members; ScenarioError where there is none."""

    def __init__(self) -> None:
        self.world = World({})

    def _member(self, node_id: int) -> Member:
        if node_id not in self.world.members:
            raise ScenarioError(f"there is no member {node_id}: `voters` names them")
        return self.world.members[node_id]

    def _one(self, args: Args) -> Member:
        if not args.words:
            raise ScenarioError(f"{args.verb} needs a member")
        return self._member(parse_int(args.words[0]))

    def _second(self, args: Args) -> int:
        if len(args.words) != 2:
            raise ScenarioError(f"{args.verb} needs a member and a number")
        return parse_int(args.words[1])

    def _named(self, args: Args) -> list[Member]:
        if not args.words:
            raise ScenarioError(f"{args.verb} needs members")
        return [self._member(node_id) for node_id in args.numbers()]

    def _some(self, args: Args) -> list[Member]:
        """The members named, or all that run."""
        running = [member for member in self.world.members.values() if member.down is None]
        return self._named(args) if args.words else running
