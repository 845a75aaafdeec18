"""Audits again and again, and says what is new: all checks, over what members wrote meanwhile.

What was judged before is not read again (see `ledger`), so that a look costs what is new, and the members' logs. It
counts in the ledger if it found something, if a shard of the history came to its end, if much would be read once more,
and when it is the last: a ledger of months has some hundred entries.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from pidkeeper.pipeline.audit import AuditOptions, keep, look
from pidkeeper.pipeline.engine.engine import Engine
from pidkeeper.pipeline.findings import NOTE
from pidkeeper.pipeline.verdict import Verdict

MAX_LINES: Final = 20
"""Findings of one look that are told one by one; all of them are in the table."""

MOST_AGAIN: Final = 64 << 20
"""Bytes of archives and segments that a look reads again at most, because those before it did not count. What is read
after one that counted is read in any case, as a segment that nobody can read, and is none of these."""

Finding = dict[str, Any]


class StreamOptions(msgspec.Struct, frozen=True):
    """`once`: end after the first look. `every_seconds`: from one look to the next."""

    audit: AuditOptions
    once: bool = False
    every_seconds: float = 5.0


def run_stream(
    engine: Engine, options: StreamOptions, say: Callable[[str], None], wait: Callable[[float], bool]
) -> Verdict:
    """Look until `wait`, which is given seconds, says that it is time to end; the last verdict.

    Raises as `run_audit`.
    """
    known: set[tuple[Any, ...]] = set()
    blocks, shards = 0, 0
    always: int | None = 0
    while True:
        began = time.monotonic()
        outcome = look(engine, options.audit)
        verdict, findings = outcome.verdict, outcome.tables["findings"].to_pylist()
        fresh = [one for one in findings if one["severity"] != NOTE and _key(one) not in known]
        known |= {_key(one) for one in findings}
        for line in _told(verdict, verdict.blocks - blocks, fresh):
            say(line)
        always = outcome.bytes_new if always is None else always
        counts = bool(fresh) or len(outcome.shards) != shards or outcome.bytes_new - always > MOST_AGAIN
        always = None if counts else always
        if counts:
            keep(outcome, options.audit.out)
        ended = options.once or wait(max(0.0, options.every_seconds - (time.monotonic() - began)))
        if not counts:
            # What it wrote is some MiB: in a day of looks that would be all of a disk.
            if ended:
                keep(outcome, options.audit.out)
            else:
                outcome.run.discard()
        if ended:
            return verdict
        blocks, shards = verdict.blocks, len(outcome.shards)


def _key(finding: Finding) -> tuple[Any, ...]:
    """What makes two findings one, whenever they are found."""
    return tuple(finding[name] for name in ("check", "severity", "subject", "first_id", "last_id", "offset", "member"))


def _told(verdict: Verdict, more: int, fresh: list[Finding]) -> Iterator[str]:
    if not more and not fresh:
        return
    yield f"{more:,} more blocks, {verdict.blocks:,} in all, up to ID {verdict.highest_id}; {len(fresh):,} new findings"
    for one in fresh[:MAX_LINES]:
        yield f"  {one['severity']}: {one['check']}: {one['subject']}: {one['detail']}"
    if len(fresh) > MAX_LINES:
        yield f"  and {len(fresh) - MAX_LINES:,} more: all are in the table of findings"
