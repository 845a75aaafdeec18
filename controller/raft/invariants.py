"""What the core checks on every step, in production too. A violation stops the member: halting is always safe.

R1   The term never falls, nor do the terms along the log, none of which is above it; it stays below 2^63 - 1.
R2   The vote is set at most once per term.
R3   The log is never truncated at or below the commit index.
R4   The commit index never passes the end of the log, never falls, and counts no entry but the leader's; no gaps.
R5   Applied never passes commit, and entries are applied one after another without a gap.
R6   A leader never overwrites or truncates its own log.
R7   A leader commits by counting only entries of its own term (Raft paper, section 5.4.2).
R8   For every peer, match < next.
R9   An acknowledgement counts only if its term is ours and its sender is a member; it cannot pass our log's end.
R10  A vote is counted once per voter per term.
R11  No reply leaves before the write that it rests on is durable.
R12  A snapshot never covers more than what was applied.
R13  Writes are acknowledged in the order in which they were issued.
R14  A term has at most one leader (election safety, Raft paper, figure 3).
R15  A leader's log holds at most one configuration that is not known to be committed.
R16  The voters of one configuration and of the next differ in one member at most, so that their majorities overlap.
R17  A voter was a learner in the configuration before.
R18  A leader that is not a voter leads only until the configuration without it is committed.
R19  A member campaigns only as a voter, or while the entry that removed it is not known to be committed.
R20  Votes and acknowledgements are counted by the configuration in force, and only for entries that are not before it.
"""

from __future__ import annotations


class InvariantViolation(AssertionError):  # noqa: N818 - the field's term
    """The member's state, or what a peer sent, contradicts a rule that always holds. Names the rule (R1..R20)."""

    def __init__(self, rule: str, facts: str) -> None:
        super().__init__(f"{rule}: {facts}")
        self.rule = rule
