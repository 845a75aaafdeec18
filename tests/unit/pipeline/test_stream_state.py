"""Whose a stream's state is."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.pipeline.store import open_store
from pidkeeper.pipeline.stream_state import claim
from pidkeeper.pipeline.watermark import StateError


def test_a_state_stays_with_its_paths_and_takes_further_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state = tmp_path / "state"
    claim(open_store(state), ["one", "s3://bucket/two"])
    claim(open_store(state), ["s3://bucket/two", str(tmp_path / "one")])
    claim(open_store(state), ["one", "s3://bucket/two", "three"])
    with pytest.raises(StateError, match=r"of other paths, as .*/three: name another --state"):
        claim(open_store(state), ["one", "s3://bucket/two"])
    claim(open_store(state), ["one", "s3://bucket/two", "three"])


def test_what_is_no_state_of_a_stream_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "blocks" / "day=2023-11-14").mkdir(parents=True)
    with pytest.raises(StateError, match=r"has blocks and no stream\.json"):
        claim(open_store(tmp_path), ["one"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["blocks"]


def test_blocks_without_their_checkpoint_are_not_gone_on_with(tmp_path: Path) -> None:
    claim(open_store(tmp_path), ["one"])
    (tmp_path / "blocks" / "000000000").mkdir(parents=True)
    with pytest.raises(StateError, match="its checkpoint is gone"):
        claim(open_store(tmp_path), ["one"])
    (tmp_path / "checkpoint").mkdir()
    claim(open_store(tmp_path), ["one"])


def test_a_state_that_cannot_be_read_says_so(tmp_path: Path) -> None:
    for text, reason in (("{", "cannot be read"), ('{"data":[],"version":2}', "version 2, this build knows 1")):
        (tmp_path / "stream.json").write_text(text)
        with pytest.raises(StateError, match=reason):
            claim(open_store(tmp_path), ["one"])
