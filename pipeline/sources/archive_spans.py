"""The blocks of a span of archive files: what a task of the source and a task of the stream read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql.types import StructType

from pidkeeper.pipeline.formats.archive import MAX_FILE_BYTES, FileName, Piece, read_span
from pidkeeper.pipeline.formats.problems import Problem
from pidkeeper.pipeline.sources.listing import Listing
from pidkeeper.pipeline.sources.tables import Rows, raise_if


class SpanPart(NamedTuple):
    """The offsets of one span of files in a folder."""

    listing: Listing
    span: FileName


def read_blocks(fail: bool, schema: StructType, part: SpanPart) -> Rows:
    """The rows of one span as Arrow record batches."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from pidkeeper.pipeline.formats.archive_rows import row_problems
    from pidkeeper.pipeline.sources.arrow_blocks import record_batches

    folder = part.listing.folder
    arrow = to_arrow_schema(schema, timezone="UTC")
    for item in read_pieces(part):
        for problem in row_problems(item.file) if isinstance(item, Piece) else (item,):
            raise_if(fail, folder, problem)
        if isinstance(item, Piece):
            yield from record_batches(item, part.listing.member, folder.join(item.file.name), arrow)


def read_pieces(part: SpanPart) -> Iterator[Piece | Problem]:
    """What `read_span` finds of a part."""
    listing = part.listing
    listings = iter([listing.names])

    def names() -> list[str]:
        return next(listings, None) or listing.names_now()

    return read_span(part.span, names, lambda name: listing.folder.read(name, MAX_FILE_BYTES + 1), listing.cluster_id)
