from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from pidkeeper.controller.storage.directory import format_directory
from pidkeeper.pipeline.formats.problems import MALFORMED, Problem
from pidkeeper.pipeline.sources.listing import Folder, Owner, list_folders, read_owner
from pidkeeper.snapshots.files import OsFiles


def member(path: Path, node_id: int) -> Path:
    format_directory(OsFiles(), path, "cluster-a", node_id)
    (path / "archive" / "a.arc").write_bytes(b"1234")
    return path


def found(path: str) -> dict[str, list[str]]:
    return {one.folder.path: one.names for one in list_folders({"path": path}, ".arc")}


def test_directories_files_and_globs_are_listed_by_folder(tmp_path: Path) -> None:
    one, two = member(tmp_path / "one", 1), member(tmp_path / "two", 2)
    both = {str(path / "archive"): ["a.arc"] for path in (one, two)}
    assert found(str(tmp_path)) == both
    assert found(str(tmp_path / "*" / "archive")) == both
    assert found(str(tmp_path / "*" / "archive" / "*")) == both
    assert found(str(one)) == {str(one / "archive"): ["a.arc"]}
    assert found(str(one / "archive" / "a.arc")) == {str(one / "archive"): ["a.arc"]}
    assert found(str(tmp_path / "none*")) == {}
    listings = list_folders({"paths": json.dumps([str(one), str(two)])}, ".arc")
    assert [(listing.member, listing.cluster_id) for listing in listings] == [("1", "cluster-a"), ("2", "cluster-a")]


def test_other_names_are_left_out_unless_they_were_named(tmp_path: Path) -> None:
    (tmp_path / "notes").write_bytes(b"")
    assert found(str(tmp_path)) == {}
    assert found(str(tmp_path / "*")) == {}
    assert found(str(tmp_path / "notes")) == {str(tmp_path): ["notes"]}


def test_a_name_with_signs_of_a_glob_is_taken_as_it_is_if_it_is_there(tmp_path: Path) -> None:
    odd = tmp_path / "a[1]"
    odd.mkdir()
    (odd / "x.arc").write_bytes(b"")
    assert found(str(odd)) == {str(odd): ["x.arc"]}


def test_a_path_at_which_nothing_is_and_no_path_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is nothing at"):
        found(str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="name what to read"):
        list_folders({}, ".arc")


def test_the_owner_is_that_of_the_data_directory(tmp_path: Path) -> None:
    path = member(tmp_path / "one", 7)
    folder = Folder("", str(path / "archive"))
    owner = read_owner(folder)
    assert isinstance(owner, Owner)
    assert (owner.cluster_id, owner.node_id) == ("cluster-a", 7)
    assert isinstance(owner.directory_id, uuid.UUID)
    assert read_owner(Folder("", str(path))) == owner
    assert read_owner(Folder("", str(tmp_path))) is None
    (path / "meta.json").write_bytes(b"{")
    problem = read_owner(folder)
    assert isinstance(problem, Problem)
    assert (problem.kind, problem.file) == (MALFORMED, str(path / "meta.json"))
    (listing,) = list_folders({"path": str(path)}, ".arc")
    assert (listing.member, listing.owner) == (str(path / "archive"), None)


def test_a_folder_reads_its_files(tmp_path: Path) -> None:
    path = member(tmp_path / "one", 1)
    folder = Folder("", str(path / "archive"))
    assert (folder.names(), folder.size("a.arc"), folder.read("a.arc", 2)) == (["a.arc"], 4, b"12")
    assert folder.beside("snapshots") == Folder("", str(path / "snapshots"))


def test_a_uri_is_listed_and_read_as_a_path_is(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="other file systems are read with pyarrow, which is not installed")
    one, two = member(tmp_path / "one", 1), member(tmp_path / "two", 2)
    both = {f"file://{path}/archive": ["a.arc"] for path in (one, two)}
    assert found(f"file://{tmp_path}") == both
    assert found(f"file://{tmp_path}/*/archive") == both
    assert found(f"file://{tmp_path}/*/archive/*.arc") == both
    assert found(f"file://{one}/archive/a.arc") == {f"file://{one}/archive": ["a.arc"]}
    (listing,) = list_folders({"path": f"file://{one}"}, ".arc")
    assert (listing.member, listing.cluster_id) == ("1", "cluster-a")
    folder = listing.folder
    assert (folder.names(), folder.size("a.arc"), folder.read("a.arc", 2)) == (["a.arc"], 4, b"12")
    with pytest.raises(FileNotFoundError):
        folder.read("absent", 2)
    with pytest.raises(FileNotFoundError):
        found(f"file://{tmp_path}/absent")
