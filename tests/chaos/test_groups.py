"""What is a broken promise to a group, and what is not."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.chaos.groups import Facts, GroupsCheck
from tests.chaos.load.journal import Entry, Outcome
from tests.chaos.load.kinds import COMMIT, FINAL_COPIES, FINAL_READ, FOUND
from tests.chaos.load.records_process import COMMITTED, UNCOMMITTED


class Told:
    """What members and readers told, in order: each operation begins and ends before the next one, unless said."""

    def __init__(self) -> None:
        self._clock = itertools.count(1)
        self.entries: list[Entry] = []

    def read(self, kind: str, *values: str, partition: int = 0, isolation: str = COMMITTED) -> None:
        """These are there in the end."""
        records = [[offset, value] for offset, value in enumerate(values)]
        self._tell(kind, {"isolation": isolation, "partition": partition}, {"records": records})

    def unread(self, kind: str, partition: int = 0) -> None:
        """It could not be read."""
        self._tell(kind, {"isolation": COMMITTED, "partition": partition}, outcome=Outcome.UNKNOWN)

    def found(self, offset: int, generation: int = 1, invoked: int | None = None, group: str = "g") -> None:
        """A member is told that this is committed."""
        self._tell(FOUND, {"group": group, "generation": generation}, {"offsets": [[0, offset]]}, invoked=invoked)

    def commit(
        self, offset: int, generation: int = 1, outcome: Outcome = Outcome.OK, invoked: int | None = None
    ) -> None:
        """A member commits it."""
        arguments = {"group": "g", "generation": generation, "offsets": [[0, offset]]}
        self._tell(COMMIT, arguments, outcome=outcome, invoked=invoked)

    def _tell(
        self,
        kind: str,
        arguments: dict[str, Any],
        result: dict[str, Any] | None = None,
        outcome: Outcome = Outcome.OK,
        invoked: int | None = None,
    ) -> None:
        begun = next(self._clock)
        code = "ILLEGAL_GENERATION" if outcome is Outcome.REFUSED else ""
        entry = Entry(
            "member", len(self.entries), kind, arguments, begun, next(self._clock), outcome, result or {}, code
        )
        self.entries.append(entry if invoked is None else entry._replace(invoked=invoked))

    def facts(self) -> Facts:
        return GroupsCheck(self.entries).facts()

    def rules(self) -> set[str]:
        """The rules that are broken."""
        return {text.partition(":")[0] for text in self.facts().violations}


@pytest.fixture
def told() -> Told:
    """Two records and their copies, and a group that has committed one offset."""
    told = Told()
    told.read(FINAL_READ, "a.0", "a.1")
    told.read(FINAL_COPIES, "a.0", "a.1")
    told.commit(5)
    return told


def test_what_goes_together_passes(told: Told) -> None:
    told.read(FINAL_READ, "a.0", "aborted.0", "a.1", isolation=UNCOMMITTED)
    told.found(5, generation=2)
    assert told.facts() == Facts(copies_checked=2, commits_checked=1)


def test_without_groups_there_is_nothing_to_check() -> None:
    told = Told()
    told.read(FINAL_READ, "a.0")
    assert told.facts() == Facts()


@pytest.mark.parametrize(
    ("copies", "rule", "count"),
    [
        (("a.0",), "copy-lost", "copies_lost"),
        (("a.0", "a.1", "a.0"), "copy-doubled", "copies_doubled"),
        (("a.1", "a.0"), "copy-reordered", "copies_reordered"),
        (("a.0", "a.1", "b.0"), "copy-foreign", None),
    ],
)
def test_copies_are_those_of_what_was_read_once_and_in_order(
    copies: tuple[str, ...], rule: str, count: str | None
) -> None:
    told = Told()
    told.read(FINAL_READ, "a.0", "a.1")
    told.read(FINAL_COPIES, *copies)
    assert rule in told.rules()
    assert count is None or getattr(told.facts(), count) == 1


def test_a_copy_belongs_into_the_partition_of_its_record(told: Told) -> None:
    told.read(FINAL_READ, "c.0", partition=1)
    told.read(FINAL_COPIES, "c.0", partition=2)
    assert told.rules() == {"copy-lost", "copy-foreign"}


def test_copies_that_could_not_be_read_are_told_and_excuse_their_partition_alone(told: Told) -> None:
    told.read(FINAL_READ, "c.0", partition=1)
    told.unread(FINAL_COPIES, partition=1)
    assert told.rules() == {"copies-unread"}


def test_records_that_could_not_be_read_excuse_their_copies(told: Told) -> None:
    told.unread(FINAL_READ, partition=1)
    told.read(FINAL_COPIES, "c.0", partition=1)
    assert told.rules() == set()


def test_a_group_whose_copies_nobody_read_is_told() -> None:
    told = Told()
    told.commit(5)
    assert told.rules() == {"copies-unread"}


def test_what_was_committed_is_found(told: Told) -> None:
    told.found(0, generation=2)
    assert told.rules() == {"commit-lost"}
    assert told.facts().commits_lost == 1


def test_who_asked_before_it_was_committed_need_not_find_it(told: Told) -> None:
    told.found(0, generation=2, invoked=0)
    assert told.rules() == set()


def test_groups_have_offsets_of_their_own(told: Told) -> None:
    told.found(0, group="another")
    assert told.rules() == set()


@pytest.mark.parametrize(("outcome", "rules"), [(Outcome.UNKNOWN, set()), (Outcome.REFUSED, {"offset-foreign"})])
def test_what_is_found_may_be_of_a_commit_that_nobody_heard_of_but_of_no_refused_one(
    told: Told, outcome: Outcome, rules: set[str]
) -> None:
    told.commit(9, outcome=outcome)
    told.found(9, generation=2)
    assert told.rules() == rules


@pytest.mark.parametrize(
    ("generation", "outcome", "invoked", "rules"),
    [
        (1, Outcome.OK, None, {"zombie-commit"}),
        (1, Outcome.OK, 0, set()),
        (1, Outcome.REFUSED, None, set()),
        (1, Outcome.UNKNOWN, None, set()),
        (2, Outcome.OK, None, set()),
    ],
    ids=["behind it", "begun before", "refused", "unheard of", "of the later one itself"],
)
def test_no_commit_is_taken_of_a_generation_when_a_later_one_has_begun(
    told: Told, generation: int, outcome: Outcome, invoked: int | None, rules: set[str]
) -> None:
    told.found(5, generation=2)
    told.commit(6, generation=generation, outcome=outcome, invoked=invoked)
    assert told.rules() == rules
    assert told.facts().commits_refused == (outcome is Outcome.REFUSED)
