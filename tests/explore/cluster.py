"""All members, what is on its way between them, and all that can happen next."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from pidkeeper.controller.raft.messages import PreVote, RequestVote
from tests.explore.automaton import Automaton, Permutation, Step
from tests.explore.member import Event
from tests.explore.past import BrokenError, Past, beginning, committed, elected
from tests.explore.scope import Scope


class State(NamedTuple):
    """Members by place, what has happened, and the messages on their way, which are in order of their numbers."""

    members: tuple[int, ...]
    past: int
    flying: tuple[int, ...]

    def packed(self) -> bytes:
        """The state in few bytes."""
        return array("I", (*self.members, self.past, *self.flying)).tobytes()


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


class Cluster:
    """The states of one scope, and what comes after each."""

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.automaton = Automaton(scope)
        self._pasts: list[Past] = []
        self._past_numbers: dict[Past, int] = {}
        self._renamed_pasts: dict[tuple[int, Permutation], int] = {}
        self._places = range(scope.members)
        self._own: Final = tuple(self._places)

    def first(self) -> State:
        """All members are up, and nothing has happened."""
        return State(self.automaton.first(), self._past(beginning(self.scope)), ())

    def unpacked(self, packed: bytes) -> State:
        """What `packed` was made of."""
        numbers, count = tuple(array("I", packed)), self.scope.members
        return State(numbers[:count], numbers[count], numbers[count + 1 :])

    # What can happen.

    def moves(self, state: State) -> Iterator[tuple[Move, State]]:
        """Every move that is possible, and the state that it leads to, as it is named. Raises FoundError.

        A leader that was removed asks one of those who are equally fit to stand, by its id. It might be any of them.
        """
        yield from self._moves(state, self._own)
        facts = self.automaton.facts
        choosing = [place for place in self._places if facts[state.members[place]].leads_removed]
        if choosing:
            for permutation in itertools.permutations(self._places):
                if permutation != self._own:
                    yield from self._moves_if_named(state, permutation, choosing)

    def _moves_if_named(self, state: State, permutation: Permutation, of: list[int]) -> Iterator[tuple[Move, State]]:
        """What those at the places `of` could do if everybody had another's id, with the ids that they have."""
        back = inverse(permutation)
        try:
            for move, after in self._moves(self._renamed(state, permutation), [permutation[place] for place in of]):
                yield self.named(move, back), self._renamed(after, back)
        except FoundError as wrong:
            raise FoundError(self.named(wrong.move, back), str(wrong)) from wrong

    def _moves(self, state: State, of: Sequence[int]) -> Iterator[tuple[Move, State]]:
        for place in of:
            yield from self._local(state, place)
        for message in state.flying:
            if self.automaton.links[message][1] in of:
                yield from self._arrivals(state, message)

    def _local(self, state: State, place: int) -> Iterator[tuple[Move, State]]:
        facts = self.automaton.facts[state.members[place]]
        if facts.leads:
            yield from self._after(state, Move(place, ("heartbeat",)), "heartbeats")
            yield from self._after(state, Move(place, ("hear_nobody",)), "resignations")
            yield from self._after(state, Move(place, ("propose",)), "proposals")
            for target in self._places:
                if target != place:
                    yield from self._after(state, Move(place, ("transfer", self.automaton.ids[target])), "transfers")
            for kind, target in itertools.product(("add", "promote", "remove"), self.automaton.ids):
                yield from self._after(state, Move(place, ("change", kind, target)), "changes")
        elif facts.term < self.scope.terms:
            yield from self._candidacies(state, place)
        if facts.writes or facts.installing:
            yield from self._after(state, Move(place, ("sync",)))
        for kept in range(facts.writes + 1):
            yield from self._after(state, Move(place, ("crash", kept)), "crashes")
        if self._may_lose(state, place):
            yield from self._after(state, Move(place, ("lose_disk",)), "losses")
        yield from self._after(state, Move(place, ("compact",)), "snapshots")

    def _may_lose(self, state: State, place: int) -> bool:
        """Fewer voters than a majority have lost data and not yet recovered: no protocol survives more."""
        facts = self.automaton.facts
        others = [facts[member].recovering for at, member in enumerate(state.members) if at != place]
        return sum(others) + 1 <= (self.scope.voters - 1) // 2

    def _arrivals(self, state: State, message: int) -> Iterator[tuple[Move, State]]:
        place = self.automaton.links[message][1]
        elections = self.automaton.kinds[message] in {PreVote, RequestVote}
        for impatient in (False, True) if elections else (False,):
            move = Move(place, ("receive", message, impatient), message)
            yield from self._after(state, move)
            yield from self._after(state, move._replace(repeated=True), "repeats")

    def _candidacies(self, state: State, place: int) -> Iterator[tuple[Move, State]]:
        """The member at `place` times out. Where pre-votes do not travel, it has the answers of some peers at once."""
        past = self._pasts[state.past].spent("timeouts")
        step = self.automaton.step(state.members[place], ("time_out",))
        if step is None or past is None:
            return
        if self.scope.pre_votes:
            yield from self._stepped(state, Move(place, ("time_out",)), step, past)
            return
        asked = [message for message in step.sent if self.automaton.kinds[message] is PreVote]
        step = step._replace(sent=tuple(message for message in step.sent if message not in asked))
        reached = set()
        for answers in itertools.product((None, True, False), repeat=len(asked)):
            chosen = tuple(
                (one, impatient) for one, impatient in zip(asked, answers, strict=True) if impatient is not None
            )
            after = self._answered(state, step, chosen)
            if after is not None and after not in reached:
                reached.add(after)
                yield from self._stepped(state, Move(place, ("stand", chosen)), after, past)

    def _answered(self, state: State, step: Step, chosen: tuple[tuple[int, bool], ...]) -> Step | None:
        """`step` with the pre-votes of some peers behind it; None if one of them has no answer yet."""
        automaton = self.automaton
        for question, impatient in chosen:
            peer = state.members[automaton.links[question][1]]
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

    def _after(self, state: State, move: Move, budget: str | None = None) -> Iterator[tuple[Move, State]]:
        past = self._pasts[state.past]
        if budget is not None:
            spent = past.spent(budget)
            if spent is None:
                return
            past = spent
        step = self.automaton.step(state.members[move.place], move.event)
        if step is None:
            return
        yield from self._stepped(state, move, step, past)

    def _stepped(self, state: State, move: Move, step: Step, past: Past) -> Iterator[tuple[Move, State]]:
        if self.automaton.facts[step.member].term > self.scope.terms:
            return
        flying = state.flying
        if move.message is not None and not move.repeated:
            flying = tuple(one for one in flying if one != move.message)
        member = state.members[move.place]
        if step.member == member and not step.broken and flying == state.flying and not (set(step.sent) - set(flying)):
            return
        past_number = self._past(self._judged(past, move, step))
        members = (*state.members[: move.place], step.member, *state.members[move.place + 1 :])
        for then, lost in self._with(flying, step.sent):
            yield move._replace(lost=lost), State(members, past_number, then)

    def _judged(self, past: Past, move: Move, step: Step) -> Past:
        if step.broken is not None:
            raise FoundError(move, step.broken)
        facts = self.automaton.facts[step.member]
        try:
            if step.elected:
                past = elected(past, move.place, facts.term, facts.log)
            if step.committed:
                past = committed(past, step.committed, facts.term)
        except BrokenError as broken:
            raise FoundError(move, str(broken)) from broken
        return past

    def _with(self, flying: tuple[int, ...], sent: tuple[int, ...]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """What may be on its way once `sent` has left, and what was lost: a full link loses any of its messages."""
        found: list[tuple[tuple[int, ...], tuple[int, ...]]] = [(flying, ())]
        links, capacity = self.automaton.links, self.scope.capacity
        for message in sent:
            link, after = links[message], []
            for then, lost in found:
                if message in then:
                    after.append((then, lost))
                    continue
                there = [one for one in then if links[one] == link]
                if len(there) < capacity:
                    after.append((tuple(sorted((*then, message))), lost))
                    continue
                after.append((then, (*lost, message)))
                for out in there:
                    rest = [one for one in then if one != out]
                    after.append((tuple(sorted((*rest, message))), (*lost, out)))
            found = after
        return found

    # Who is who makes no difference.

    def canonical(self, state: State) -> tuple[State, Permutation]:
        """The state that stands for all that differ from `state` in names alone, and who takes whose place in it."""
        facts = self.automaton.facts
        shapes = [facts[member].shape for member in state.members]
        order = sorted(self._places, key=shapes.__getitem__)
        best: tuple[State, Permutation] | None = None
        for permutation in self._orders(order, shapes):
            found = self._renamed(state, permutation)
            if best is None or found < best[0]:
                best = found, permutation
        assert best is not None
        return best

    def _orders(self, order: list[int], shapes: list[int]) -> Iterator[Permutation]:
        groups = [list(group) for _, group in itertools.groupby(order, key=shapes.__getitem__)]
        for choice in itertools.product(*[itertools.permutations(group) for group in groups]):
            permutation = [0] * len(order)
            for position, place in enumerate(itertools.chain.from_iterable(choice)):
                permutation[place] = position
            yield tuple(permutation)

    def _renamed(self, state: State, permutation: Permutation) -> State:
        if permutation == self._own:
            return state
        automaton = self.automaton
        members = [0] * len(permutation)
        for place, member in enumerate(state.members):
            members[permutation[place]] = automaton.renamed(member, permutation)
        key = state.past, permutation
        past = self._renamed_pasts.get(key)
        if past is None:
            past = self._renamed_pasts[key] = self._past(self._pasts[state.past].renamed(permutation))
        flying = sorted([automaton.renamed_message(message, permutation) for message in state.flying])
        return State(tuple(members), past, tuple(flying))

    def named(self, move: Move, permutation: Permutation) -> Move:
        """The move with everybody in another's place."""
        automaton = self.automaton

        def message(number: int) -> int:
            return automaton.renamed_message(number, permutation)

        name, *given = move.event
        if name == "receive":
            given[0] = message(given[0])
        elif name == "stand":
            given[0] = tuple((message(one), impatient) for one, impatient in given[0])
        elif name in {"transfer", "change"}:
            given[-1] = automaton.ids[permutation[automaton.ids.index(given[-1])]]
        return Move(
            permutation[move.place],
            (name, *given),
            None if move.message is None else message(move.message),
            move.repeated,
            tuple(message(one) for one in move.lost),
        )

    def _past(self, past: Past) -> int:
        found = self._past_numbers.get(past)
        if found is None:
            found = self._past_numbers[past] = len(self._pasts)
            self._pasts.append(past)
        return found


def inverse(permutation: Permutation) -> Permutation:
    """What gives everybody's own place back."""
    found = [0] * len(permutation)
    for place, to in enumerate(permutation):
        found[to] = place
    return tuple(found)
