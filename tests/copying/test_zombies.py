"""A zombie's commit is refused; where the quorum asks nobody for a generation, the course finds that it was not."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.copying.zombies import OFFSETS, Zombie, ours, zombie
from tests.support.kafka_broker import why_unavailable

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[bool, Zombie]]:
    """Without the bug and with it. Most of both is waiting for the end of a session."""
    if (reason := why_unavailable()) is not None:
        pytest.skip(reason)
    directory = tmp_path_factory.mktemp("zombies")
    with ThreadPoolExecutor() as pool:
        courses = {
            planted: pool.submit(zombie, ours, OFFSETS, directory / str(planted), planted=planted)
            for planted in (False, True)
        }
        yield {planted: course.result() for planted, course in courses.items()}


def test_it_is_fenced_by_its_group(both: dict[bool, Zombie]) -> None:
    copied = both[False].copied
    assert copied.wrong == []
    assert copied.transactions.refused == {"CommitFailedException": 1}
    assert both[False].as_expected


def test_one_that_is_not_fenced_is_found(both: dict[bool, Zombie]) -> None:
    copied = both[True].copied
    assert any("20 messages were copied more than once" in one for one in copied.wrong), copied
    assert both[True].as_expected
