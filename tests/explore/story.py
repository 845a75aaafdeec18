"""A course as a scenario: commands of `tests/scenarios` that lead real cores there, line by line.

The scenario's world runs along, so that each command can be told what is on its way by then, and how long a clock must
run until a timer fires. Its oracle ends the story where a promise breaks. Once the bug is mended, `--rewrite` writes
the rest of the traces, and the story can stay.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping

import msgspec

from pidkeeper.controller.raft.messages import Message
from tests.explore.automaton import Automaton
from tests.explore.frozen import renamed
from tests.explore.member import FIRST_ID
from tests.explore.moves import Move
from tests.explore.scope import Scope
from tests.explore.search import Finding
from tests.scenarios.runner import Scenario
from tests.scenarios.transcript import COMMAND, INDENT
from tests.scenarios.world import Member

LONGEST = 59
"""Ticks of the election timeouts in a story: as long as they can be, so that nobody times out but who is to."""

MAX_ROUNDS = 100
NOTHING = "has nothing to do"


class _EndedError(Exception):
    """The oracle of the world has seen enough."""


def told(scope: Scope, automaton: Automaton, finding: Finding) -> str:
    """The course in words. Raises ScenarioError where a scenario's world cannot follow."""
    return told_plainly(finding, automaton) if scope.asks else Storyteller(scope, automaton).tell(finding)


class Storyteller:
    """Writes down one course."""

    def __init__(self, scope: Scope, automaton: Automaton) -> None:
        self._scope = scope
        self._automaton = automaton
        self._names = _names(automaton)
        self._world = Scenario()
        self._lines: list[str] = []

    def tell(self, finding: Finding) -> str:
        """The transcript, which begins with what was found. Raises ScenarioError where the world cannot follow."""
        self._lines = [finding.what, ""]
        with contextlib.suppress(_EndedError):
            self._begin()
            for move in finding.course:
                getattr(self, f"_{move.event[0]}")(move, *move.event[1:])
        return "\n".join(self._lines) + "\n"

    def _begin(self) -> None:
        ids = range(1, self._scope.voters + 1)
        voters = " ".join(str(one) for one in ids)
        spares = [str(one) for one in range(len(ids) + 1, self._scope.members + 1)]
        self._do(f"voters {voters} named" + (f" spare={','.join(spares)}" if spares else ""))
        for one in range(1, self._scope.members + 1):
            self._do(f"set-timeout {one} {LONGEST}")
        self._do(f"start {voters}" + (" blank" if self._scope.blank else ""))
        if spares:
            self._do(f"start {' '.join(spares)} blank")

    def _do(self, command: str) -> None:
        self._lines.append(COMMAND + command)
        try:
            trace = self._world.execute(command)
        except AssertionError as error:
            self._lines += [INDENT + line for line in self._world.world.trace] + ["", str(error)]
            raise _EndedError from error
        self._lines += [INDENT + line for line in trace]

    def _member(self, place: int) -> Member:
        return self._world.world.members[place + 1]

    def _work(self, place: int) -> None:
        """The member does all that it has ready, but for what rests on its disk."""
        for _ in range(MAX_ROUNDS):
            member = self._member(place)
            if member.down is not None:
                return
            self._do(f"ready {place + 1}")
            if NOTHING in self._lines[-1]:
                del self._lines[-2:]
                return
            if member.to_apply:
                self._do(f"apply {place + 1}")
        raise AssertionError(f"member {place + 1} does not come to rest")

    # Moves.

    def _receive(self, move: Move, message: int, impatient: bool) -> None:
        if impatient:
            self._wait(move.place)
        self._deliver(self._automaton.messages[message], repeated=move.repeated)
        self._work(move.place)

    def _stand(self, move: Move, answers: Iterable[tuple[int, bool]]) -> None:
        self._time_out(move)
        for question, impatient in answers:
            peer = self._automaton.links[question][1]
            if impatient:
                self._wait(peer)
            self._deliver(self._automaton.messages[question])
            self._work(peer)
            self._do(f"deliver from={peer + 1} to={move.place + 1} kind=PreVoteReply")
            self._work(move.place)

    def _time_out(self, move: Move) -> None:
        self._do(f"campaign {move.place + 1}")
        self._work(move.place)

    def _wait(self, place: int) -> None:
        """Until a minimum election timeout has passed since the member heard of a leader."""
        timer = self._member(place).core._timer
        if timer.below_minimum:
            self._do(f"tick {place + 1} times={timer._minimum - timer._elapsed}")

    def _heartbeat(self, move: Move) -> None:
        leadership = self._member(move.place).core.leadership
        assert leadership is not None
        left = leadership._config.heartbeat_ticks - leadership._heartbeat_elapsed
        self._do(f"tick {move.place + 1} times={left}")
        self._work(move.place)

    def _hear_nobody(self, move: Move) -> None:
        self._do(f"tick {move.place + 1} times={self._member(move.place).config.election_ticks + 1} unheard")
        self._work(move.place)

    def _propose(self, move: Move) -> None:
        self._do(f"propose {move.place + 1} p")
        self._work(move.place)

    def _transfer(self, move: Move, target: int) -> None:
        self._do(f"transfer {move.place + 1} {target - FIRST_ID + 1}")
        self._work(move.place)

    def _change(self, move: Move, kind: str, target: int) -> None:
        command = "add-learner" if kind == "add" else kind
        self._do(f"{command} {move.place + 1} {target - FIRST_ID + 1}")
        self._work(move.place)

    def _sync(self, move: Move) -> None:
        member = self._member(move.place)
        self._do(f"{'durable' if member.disk.pending else 'install'} {move.place + 1}")
        self._work(move.place)

    def _crash(self, move: Move, kept: int) -> None:
        self._do(f"crash {move.place + 1}" + (f" kept={kept}" if kept else ""))
        self._do(f"restart {move.place + 1}")
        self._work(move.place)

    def _tear(self, move: Move) -> None:
        self._do(f"crash {move.place + 1}")
        self._do(f"restart {move.place + 1} torn")
        self._work(move.place)

    def _lose_disk(self, move: Move) -> None:
        self._do(f"wipe {move.place + 1}")
        self._work(move.place)

    def _compact(self, move: Move) -> None:
        self._do(f"compact {move.place + 1}")

    def _deliver(self, message: Message, *, repeated: bool = False) -> None:
        """This very message arrives; those of its kind and way that left before it stay on their way."""
        wanted = _in_the_world(message, self._names)
        kind = type(wanted).__name__
        alike = [
            one
            for one in self._world.world.flying
            if type(one) is type(wanted) and (one.sender, one.to) == (wanted.sender, wanted.to)
        ]
        skip = alike.index(wanted)
        way = f"from={wanted.sender} to={wanted.to} kind={kind} count=1"
        self._do(f"deliver {way}" + (f" skip={skip}" if skip else "") + (" copy" if repeated else ""))


def told_plainly(finding: Finding, automaton: Automaton) -> str:
    """The course move by move, for scopes with agents: scenarios know of members alone. Members count from 1."""
    names = _names(automaton)
    lines = [finding.what, ""]
    for number, move in enumerate(finding.course, 1):
        name, *given = move.event
        if name == "receive":
            given[0] = renamed(automaton.messages[given[0]], names)
        elif name == "stand":
            given = [f"{automaton.links[question][1] + 1} answers" for question, _ in given[0]]
        elif name in {"ask", "transfer", "change"}:
            given[-1] = names[given[-1]]
        lines.append(" ".join(str(one) for one in (f"{number}. {move.place + 1}", name, *given)))
    return "\n".join(lines) + "\n"


def _names(automaton: Automaton) -> dict[int, int]:
    return {one: one - FIRST_ID + 1 for one in automaton.ids}


def _in_the_world(message: Message, names: Mapping[int, int]) -> Message:
    """The message under the names of a scenario, where recoveries count up from ten times the id."""
    there: Message = renamed(message, names)
    recoveries = (("recovery", there.sender), ("recovered", there.to))
    numbers = {field: 10 * whose + number for field, whose in recoveries if (number := getattr(there, field, 0))}
    return msgspec.structs.replace(there, **numbers)
