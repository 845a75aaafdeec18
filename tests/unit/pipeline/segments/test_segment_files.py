"""Segments are found by file, directory and glob, described by their paths, and shared out among tasks."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pidkeeper.pipeline.files.location import locate
from pidkeeper.pipeline.segments.segment_files import PARTS_PER_TASK, SegmentFile, list_segments, plan, read_part
from tests.support.segment_builder import batch

NAME = "00000000000000000100.log"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for folder in ("a-topic-0", "a-topic-12", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / NAME).write_bytes(b"".join(batch(100 + number) for number in range(20)))
        (tmp_path / folder / NAME).with_suffix(".index").write_bytes(bytes(80))
    (tmp_path / "a-topic-0" / "odd.log").write_bytes(b"")
    return tmp_path


def found(files: list[SegmentFile]) -> list[tuple[str | None, int | None, int | None, int]]:
    return [(file.topic, file.partition, file.base_offset, file.size) for file in files]


def test_a_directory_gives_every_segment_below_it_with_topic_partition_and_offset(logs: Path) -> None:
    size = 20 * len(batch(100))
    assert found(list_segments([str(logs)])) == [
        ("a-topic", 0, 100, size),
        ("a-topic", 0, None, 0),
        ("a-topic", 12, 100, size),
        (None, None, 100, size),
    ]


def test_globs_and_files_give_each_segment_once(logs: Path) -> None:
    paths = [str(logs / "a-*"), str(logs / "a-topic-12" / NAME), str(logs / "*" / "0*.log")]
    names = ["a-topic-0", "a-topic-0", "a-topic-12", "other"]
    assert [Path(file.path).parent.name for file in list_segments(paths)] == names


def test_a_file_named_outright_needs_no_suffix(logs: Path) -> None:
    (logs / "copy").write_bytes(batch(7))
    (file,) = list_segments([str(logs / "copy")])
    assert (file.base_offset, file.topic) == (None, None)
    (chunk,) = read_part(plan([file])[0][0])
    assert [each.base_offset for each in chunk.batches()] == [7] and not chunk.problems


def test_a_path_with_nothing_there_is_refused(logs: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is nothing at .*nowhere: name a file"):
        list_segments([str(logs / "nowhere")])


@pytest.mark.parametrize("line", ["node.id=3", "broker.id=3"])
def test_the_member_is_the_node_of_the_log_directory(logs: Path, line: str) -> None:
    assert {file.member for file in list_segments([str(logs)])} == {str(logs)}
    (logs / "meta.properties").write_text(f"#\nversion=1\n{line}\ncluster.id=x\n")
    assert {file.member for file in list_segments([str(logs)])} == {"3"}


def test_small_segments_share_a_task_and_large_ones_are_split(logs: Path) -> None:
    files = list_segments([str(logs)])
    assert [len(task) for task in plan(files)] == [4]
    size = 20 * len(batch(100))
    tasks = plan(files, range_bytes=size // 2)
    assert len(tasks) == 6 and all(task for task in tasks)
    positions = [
        (part.file.path, at) for task in tasks for part in task for chunk in read_part(part) for at in chunk.positions
    ]
    assert len(positions) == len(set(positions)) == 60
    assert sum(len(task) for task in plan(files, whole=True, range_bytes=10)) == 4


def test_a_task_has_a_bounded_number_of_segments(logs: Path) -> None:
    (file, *_) = list_segments([str(logs / "a-topic-0" / "odd.log")])
    assert [len(task) for task in plan([file] * (PARTS_PER_TASK + 1))] == [PARTS_PER_TASK, 1]


def test_a_segment_that_goes_away_or_shrinks_is_unreadable_and_no_error(logs: Path) -> None:
    path = logs / "other" / NAME
    ((part,),) = plan(list_segments([str(path)]))
    path.write_bytes(batch(100))
    kinds = [each.kind for chunk in read_part(part) for each in chunk.problems]
    path.unlink()
    kinds += [each.kind for chunk in read_part(part) for each in chunk.problems]
    path.mkdir()
    kinds += [each.kind for chunk in read_part(part) for each in chunk.problems]
    assert kinds == ["unreadable"] * 3


def test_a_link_to_nothing_is_no_segment(logs: Path) -> None:
    before = list_segments([str(logs)])
    (logs / "other" / "dead.log").symlink_to(logs / "nowhere")
    assert list_segments([str(logs)]) == before


def test_a_segment_that_was_written_has_another_stamp(logs: Path) -> None:
    path = logs / "other" / NAME
    (before,) = list_segments([str(path)])
    (again,) = list_segments([f"file://{path}"])
    assert (before.stamp, before.size, str(before.location)) == (again.stamp, again.size, str(locate(path)))
    path.write_bytes(path.read_bytes() + batch(120))
    (after,) = list_segments([str(path)])
    assert after.stamp != before.stamp


def test_what_a_task_gets_survives_the_way_to_it(logs: Path) -> None:
    tasks = plan(list_segments([str(logs)]), range_bytes=100)
    assert pickle.loads(pickle.dumps(tasks)) == tasks
