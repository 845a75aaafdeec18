"""Evidence of any number of batches, whatever their columns, is in the tables whole."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest

from pidkeeper.pipeline.engine.duck import connect
from pidkeeper.pipeline.quorum import loading

SCHEMA = pa.schema([("number", pa.int64()), ("word", pa.string())])
NARROW = pa.schema([("word", pa.string())])


@pytest.mark.parametrize("at_once", [1, 100, 1 << 20], ids=["one by one", "a few", "all"])
def test_every_row_arrives_once(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(loading, "AT_ONCE_BYTES", at_once)
    found = [
        batch
        for number in range(20)
        for batch in (
            ("many", pa.RecordBatch.from_pylist([{"number": number, "word": "wide"}], SCHEMA)),
            ("many", pa.RecordBatch.from_pylist([{"word": "narrow"}], NARROW)),
            ("many", pa.RecordBatch.from_pylist([], SCHEMA)),
            ("others", pa.RecordBatch.from_pylist([{"number": -1, "word": ""}], SCHEMA)),
            ("nobody asked for", pa.RecordBatch.from_pylist([{"number": 0, "word": ""}], SCHEMA)),
        )
    ]
    with connect() as con:
        loading.load(con, found, {"many": SCHEMA, "others": SCHEMA, "empty": SCHEMA})
        many, others = (Counter(con.execute(f"from {name}").fetchall()) for name in ("many", "others"))
        assert con.execute("from empty").fetchall() == []
    assert many == Counter({(number, "wide"): 1 for number in range(20)}) + Counter({(None, "narrow"): 20})
    assert others == {(-1, ""): 20}
