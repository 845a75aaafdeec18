"""How findings name blocks, IDs and places: macros of the driver's connection."""

from __future__ import annotations

from typing import Any, Final

from pidkeeper.pipeline.quorum.evidence import POSITIONS
from pidkeeper.protocol.ids import OWN

MACROS: Final = f"""
create macro file_of(place) as place // {POSITIONS};
create macro position_of(place) as place % {POSITIONS};
create macro path_of(file) as (select path from files where file_id = file);
create macro owner_of_file(file) as (select member from files where file_id = file);
create macro name_of(id) as (select member from members where member_id = id);
create macro span_text(word, one, other) as
    case when one = other then format('{{}} {{}}', word, one) else format('{{}}s {{}} to {{}}', word, one, other) end;
create macro id_text(one, other) as span_text('ID', one, other);
create macro place_text(place) as
    format('member {{}}, {{}}, byte {{}}', owner_of_file(file_of(place)), path_of(file_of(place)), position_of(place));
create macro copy_text(copy) as
    format('member {{}}, {{}}, byte {{}}', name_of(copy.member_id), path_of(copy.file_id), copy."position");
create macro block_text(block) as format('{{}} of {{}} at offset {{}} ({{}})', id_text(block.first_id, block.last_id),
    case when block.broker_id = {OWN} then 'the quorum''s own' else format('broker {{}}', block.broker_id) end,
    coalesce(block."offset"::varchar, 'unknown'), place_text(block.place));
"""


def add_macros(con: Any) -> None:
    """They look into the tables `files` and `members`."""
    con.execute(MACROS)
