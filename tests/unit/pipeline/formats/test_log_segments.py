from __future__ import annotations

import io

import pytest

from pidkeeper.pipeline.formats import log_segments
from pidkeeper.pipeline.formats.log_segments import BadBatch, Window, file_bytes, later_write, read_batch, read_header
from tests.support.log_builder import WAL, entries, hard_state, new_disk, open_log, segments


def test_a_window_gives_the_bytes_of_the_file_wherever_it_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_segments, "WINDOW_BYTES", 16)
    data = bytes(range(100))
    window = Window(io.BytesIO(data))
    for position in (0, 3, 90, 40, 15, 16, 99, 100, 200):
        for size in (0, 1, 16, 17, 60):
            assert window.read(position, size) == data[position : position + size]
    assert b"".join(chunk for _, chunk in window.chunks(5)) == data[5:]
    assert file_bytes(window, 7) == 100


@pytest.mark.parametrize("size", [25, 31, 32, 64, 1 << 20])
def test_a_later_batch_head_is_found_wherever_the_window_cuts_it(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    files = new_disk()
    log, _ = open_log(files)
    log.append(entries(1, 1, size=50), hard_state())
    log.append(entries(2, 2), None)
    (name,) = segments(files)
    content = bytearray(files.read_bytes(WAL / name))
    first = content.index(b"PIDBATCH", 144)
    second = content.index(b"PIDBATCH", first + 8)
    content[first] = 0
    monkeypatch.setattr(log_segments, "WINDOW_BYTES", size)
    window = Window(io.BytesIO(bytes(content)))
    header = read_header(name, window)
    with pytest.raises(BadBatch) as caught:
        read_batch(name, window, first, 2, header.seed, 0)
    assert later_write(window, first, caught.value, header.seed) == second
    assert later_write(window, second, caught.value, header.seed) is None
