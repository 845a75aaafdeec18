"""What one member can do next, and what comes of it, whatever the others do meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from pidkeeper.controller.raft.messages import PreVote, RequestVote
from tests.explore.automaton import Automaton, Permutation, Step, inverse
from tests.explore.member import Event
from tests.explore.past import BrokenError, Pasts
from tests.explore.scope import Scope
from tests.explore.table import Table


class Move(NamedTuple):
    """What happens: an event at the member at `place`. `message`: what arrives; `repeated`: and stays on its way;
    `lost`: what the member's own messages push out."""

    place: int
    event: Event
    message: int | None = None
    repeated: bool = False
    lost: tuple[int, ...] = ()


class FoundError(Exception):
    """A move breaks a rule or a promise."""

    def __init__(self, move: Move, what: str) -> None:
        super().__init__(what)
        self.move = move


class Change(NamedTuple):
    """What comes of a move: the member and the past after it, by number, and what it sends."""

    move: Move
    member: int
    past: int
    sent: tuple[int, ...]


Changes = tuple[Change, ...]


class Moves:
    """The moves of the members of one scope, worked out once for each state of a member. All raise FoundError."""

    def __init__(self, scope: Scope, automaton: Automaton, pasts: Pasts) -> None:
        self._scope = scope
        self._automaton = automaton
        self._pasts = pasts
        self._own = tuple(range(scope.places))
        self.local = Table(self._local)
        """What happens by itself: by the member, the past, and whether its disk may be lost now."""
        self.arrivals = Table(self._arrivals)
        """What an arrival comes to: by the message, the member and the past."""
        self._standing = Table(self._stands)
        self._candidacies = Table(self._stand)

    def candidacies(self, members: tuple[int, ...], place: int, past: int) -> Changes:
        """The member at `place` times out. Where pre-votes do not travel, it has the answers of some peers at once."""
        spent = self._standing[members[place], past]
        return () if spent is None else self._candidacies[members, place, spent]

    # By itself.

    def _local(self, question: tuple[int, int, bool]) -> Changes:
        member, past, may_lose = question
        return self._under_all_names(member, past, None, may_lose)

    def _arrivals(self, question: tuple[int, int, int]) -> Changes:
        message, member, past = question
        return self._under_all_names(member, past, message, False)

    def _happenings(self, member: int, past: int, may_lose: bool) -> Iterator[Change]:
        facts, place = self._automaton.facts[member], self._automaton.places[member]
        if facts.asks:
            yield from self._ask(member, past, place)
            return
        if facts.leads:
            yield from self._lead(member, past, place)
        if facts.writes or facts.installing:
            yield from self._after(member, past, Move(place, ("sync",)))
        for kept in range(facts.writes + 1):
            yield from self._after(member, past, Move(place, ("crash", kept)), "crashes")
        yield from self._after(member, past, Move(place, ("tear",)), "tears")
        if may_lose:
            yield from self._after(member, past, Move(place, ("lose_disk",)), "losses")
        yield from self._after(member, past, Move(place, ("compact",)), "snapshots")

    def _ask(self, member: int, past: int, place: int) -> Iterator[Change]:
        yield from self._after(member, past, Move(place, ("restart",)), "restarts")
        for target in self._automaton.ids[: self._scope.members]:
            yield from self._after(member, past, Move(place, ("ask", target)), "asks")

    def _lead(self, member: int, past: int, place: int) -> Iterator[Change]:
        yield from self._after(member, past, Move(place, ("heartbeat",)), "heartbeats")
        yield from self._after(member, past, Move(place, ("hear_nobody",)), "resignations")
        yield from self._after(member, past, Move(place, ("propose",)), "proposals")
        for target in self._own:
            if target != place:
                yield from self._after(
                    member, past, Move(place, ("transfer", self._automaton.ids[target])), "transfers"
                )
        for kind, target in itertools.product(("add", "promote", "remove"), self._automaton.ids):
            yield from self._after(member, past, Move(place, ("change", kind, target)), "changes")

    def _receive(self, message: int, member: int, past: int) -> Iterator[Change]:
        place = self._automaton.places[member]
        elections = self._automaton.kinds[message] in {PreVote, RequestVote}
        for impatient in (False, True) if elections else (False,):
            move = Move(place, ("receive", message, impatient), message)
            yield from self._after(member, past, move)
            yield from self._after(member, past, move._replace(repeated=True), "repeats")

    def _after(self, member: int, past: int, move: Move, budget: str | None = None) -> Iterator[Change]:
        spent = past if budget is None else self._pasts.spent(past, budget)
        if spent is None:
            return
        step = self._automaton.step(member, move.event)
        if step is not None:
            yield from self._change(move, step, spent)

    def _change(self, move: Move, step: Step, past: int) -> Iterator[Change]:
        if self._automaton.facts[step.member].term <= self._scope.terms:
            yield Change(move, step.member, self._judged(past, move, step), step.sent)

    def _judged(self, past: int, move: Move, step: Step) -> int:
        if step.broken is not None:
            raise FoundError(move, step.broken)
        facts = self._automaton.facts[step.member]
        try:
            if step.elected:
                past = self._pasts.elected(past, move.place, facts.term, facts.log)
            if step.committed:
                past = self._pasts.committed(past, step.committed, facts.term)
            if step.granted or step.handed:
                past = self._pasts.given(past, step.granted, step.handed)
        except BrokenError as broken:
            raise FoundError(move, str(broken)) from broken
        return past

    # Elections.

    def _stands(self, question: tuple[int, int]) -> int | None:
        """The past after the member has timed out; None if it does not."""
        member, past = question
        facts = self._automaton.facts[member]
        if facts.asks or facts.leads or facts.term >= self._scope.terms:
            return None
        return self._pasts.spent(past, "timeouts")

    def _stand(self, question: tuple[tuple[int, ...], int, int]) -> Changes:
        members, place, past = question
        step = self._automaton.step(members[place], ("time_out",))
        if step is None:
            return ()
        if self._scope.pre_votes:
            return tuple(self._change(Move(place, ("time_out",)), step, past))
        return tuple(self._stand_with_answers(members, place, past, step))

    def _stand_with_answers(self, members: tuple[int, ...], place: int, past: int, step: Step) -> Iterator[Change]:
        asked = [message for message in step.sent if self._automaton.kinds[message] is PreVote]
        step = step._replace(sent=tuple(message for message in step.sent if message not in asked))
        reached = set()
        for answers in itertools.product((None, True, False), repeat=len(asked)):
            chosen = tuple(
                (one, impatient) for one, impatient in zip(asked, answers, strict=True) if impatient is not None
            )
            after = self._answered(members, step, chosen)
            if after is not None and after not in reached:
                reached.add(after)
                yield from self._change(Move(place, ("stand", chosen)), after, past)

    def _answered(self, members: tuple[int, ...], step: Step, chosen: tuple[tuple[int, bool], ...]) -> Step | None:
        """`step` with the pre-votes of some peers behind it; None if one of them has no answer yet."""
        automaton = self._automaton
        for question, impatient in chosen:
            peer = members[automaton.links[question][1]]
            answer = automaton.step(peer, ("receive", question, impatient))
            assert answer is not None, "a question arrives always"
            if answer.broken is not None:
                return step._replace(broken=answer.broken)
            # An answer that waits for a write is none at once.
            if answer.member != peer or not answer.sent:
                return None
            after = automaton.step(step.member, ("receive", answer.sent[0], False))
            assert after is not None, "an answer arrives always"
            if after.broken is not None:
                return step._replace(broken=after.broken)
            step = after._replace(sent=(*step.sent, *after.sent), elected=step.elected or after.elected)
        return step

    # Names.

    def _under_all_names(self, member: int, past: int, message: int | None, may_lose: bool) -> Changes:
        """What becomes of a member by itself, or by `message`, under its name or, if it chooses by name, under any.

        A leader that was removed asks one of those who are equally fit to stand, by its id. It might be any of them.
        """
        found = list(self._changes(member, past, message, may_lose))
        if not self._automaton.facts[member].leads_removed:
            return tuple(found)
        known = {(change[1:], change.move.repeated) for change in found}
        for permutation in itertools.permutations(self._own):
            for change in self._under_other_names(member, past, message, may_lose, permutation):
                key = change[1:], change.move.repeated
                if key not in known:
                    known.add(key)
                    found.append(change)
        return tuple(found)

    def _under_other_names(
        self, member: int, past: int, message: int | None, may_lose: bool, permutation: Permutation
    ) -> Iterator[Change]:
        automaton, pasts, back = self._automaton, self._pasts, inverse(permutation)
        try:
            for change in self._changes(
                automaton.renamed(member, permutation),
                pasts.renamed(past, permutation),
                None if message is None else automaton.renamed_message(message, permutation),
                may_lose,
            ):
                yield Change(
                    self.named(change.move, back),
                    automaton.renamed(change.member, back),
                    pasts.renamed(change.past, back),
                    tuple(automaton.renamed_message(one, back) for one in change.sent),
                )
        except FoundError as wrong:
            raise FoundError(self.named(wrong.move, back), str(wrong)) from wrong

    def _changes(self, member: int, past: int, message: int | None, may_lose: bool) -> Iterator[Change]:
        return self._happenings(member, past, may_lose) if message is None else self._receive(message, member, past)

    def named(self, move: Move, permutation: Permutation) -> Move:
        """The move with everybody in another's place."""
        automaton = self._automaton

        def message(number: int) -> int:
            return automaton.renamed_message(number, permutation)

        name, *given = move.event
        if name == "receive":
            given[0] = message(given[0])
        elif name == "stand":
            given[0] = tuple((message(one), impatient) for one, impatient in given[0])
        elif name in {"transfer", "change", "ask"}:
            given[-1] = automaton.ids[permutation[automaton.ids.index(given[-1])]]
        return Move(
            permutation[move.place],
            (name, *given),
            None if move.message is None else message(move.message),
            move.repeated,
            tuple(message(one) for one in move.lost),
        )
