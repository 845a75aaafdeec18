"""Who a member's quorum is by what is durable on its disk, and what its configuration file may say about that.

The file names the voters of a blank directory, and supplies addresses to any other (docs/decisions/0021).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from pathlib import PurePath

from pidkeeper.controller.node.settings import MemberSettings, Voter
from pidkeeper.controller.raft.messages import Entry
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.controller.storage.directory import DirectoryMeta
from pidkeeper.controller.storage.errors import DirectoryError
from pidkeeper.controller.storage.founding import (
    FOUNDING_NAME,
    Founding,
    FoundingVoter,
    read_founding,
    write_founding,
)
from pidkeeper.controller.storage.recovery import RecoveredLog
from pidkeeper.disk.files import Files
from pidkeeper.protocol.founding import FoundingRecord, Succession
from pidkeeper.protocol.records import QuorumMember, RecordError, VotersRecord, decode_batch, read_leader, read_voters


class VotersRefused(Exception):  # noqa: N818 - the file, which is what the operator reads about
    """The configuration file cannot found this directory, or is of another quorum; the member must not start."""


def is_blank(machine: StateMachine, log: RecoveredLog) -> bool:
    """Whether neither log nor snapshot holds anything that somebody could rest on. Arguments as of `founding_of`."""
    return machine.next_offset == 0 and log.hard_state.term == 0 and not log.entries


def founding_of(
    files: Files, directory: PurePath, settings: MemberSettings, machine: StateMachine, log: RecoveredLog
) -> Founding | None:
    """The founding of `directory`; None if an operator has to order one: nothing of this member counts until then.

    `machine`: as of the newest snapshot; `log`: what goes on from there. A directory that an early build began gets
    a founding without an id, by the settings, unless they name this member alone. Raises DirectoryError; VotersRefused
    if the log knows of voters that the settings lack; OSError.
    """
    founding = read_founding(files, directory)
    if founding is not None or is_blank(machine, log):
        return founding
    if (recorded := _recorded_founding(machine, log)) is not None:
        raise DirectoryError(
            f"{directory / FOUNDING_NAME} is missing, but the log here is of founding {recorded}: restore it from a "
            "copy, or move the directory away and format it anew"
        )
    # A directory of an earlier build kept no founding, and its file may have been cut down since.
    if machine.voters is None and not any(read_voters(entry.data) is not None for entry in log.entries):
        _check_known(settings, log)
        if named_voters(settings).keys() == {settings.node_id}:
            # Of a member that lagged or led before others did, the disk may tell of nobody else; alone it would elect
            # itself, and hand out what they have handed out. With others it needs some of them (decision 0021).
            return None
    founding = founding_by(settings)
    write_founding(files, directory, founding)
    return founding


def founding_by(
    settings: MemberSettings,
    founding_id: uuid.UUID | None = None,
    succession: Succession | None = None,
    told: Iterable[QuorumMember] = (),
) -> Founding:
    """A founding by the voters that a founded peer has `told`, if it has, else by those of the settings.

    Raises VotersRefused.
    """
    voters = [FoundingVoter(one.id, one.peer, one.http) for one in told]
    voters = voters or [FoundingVoter(one.id, str(one.peer), one.http) for one in settings.voters]
    try:
        return Founding.of(voters, founding_id, succession)
    except ValueError as error:
        raise VotersRefused(f"voters: {error}") from error


def founding_record(founding: Founding, settings: MemberSettings) -> VotersRecord:
    """The quorum as long as neither log nor snapshot holds another, at the addresses of the settings where they say."""
    configured = {one.id: one for one in settings.voters}
    return VotersRecord(tuple(_member(configured.get(voter.id), voter) for voter in founding.voters))


def durable_record(founding: VotersRecord, snapshot: VotersRecord | None, entries: Iterable[Entry]) -> VotersRecord:
    """The newest quorum on the disk: that of the last entry that holds one, of the snapshot, or of the founding."""
    found = [record for entry in entries if (record := read_voters(entry.data)) is not None]
    return found[-1] if found else snapshot or founding


def joins_as_learner(settings: MemberSettings, meta: DirectoryMeta, founding: Founding, durable: VotersRecord) -> bool:
    """Whether this member's id may be one that is used again: by its file, or as nothing on its disk makes it a voter.

    `HardStateKeeper.id_may_be_reused` says what follows. A file that calls a learner a voter too early changes nothing.
    """
    own = settings.node_id
    if settings.learner is not None:
        return True
    if any(voter.id == own for voter in founding.voters):
        return False
    # The log may know an earlier owner of the id as a voter. Whoever joined stands there with its directory (KIP-853).
    directory = str(meta.directory_id)
    return not any(one.id == own and one.voting and one.directory_id == directory for one in durable.members)


def named_voters(settings: MemberSettings) -> dict[int, Voter]:
    """Everybody whom the configuration file names, the learner too, by id."""
    learner = () if settings.learner is None else (settings.learner,)
    return {one.id: one for one in (*settings.voters, *learner)}


def check_file(settings: MemberSettings, durable: VotersRecord) -> None:
    """Raises VotersRefused if nobody whom the file names is a member of the durable quorum, or if that has others and
    the file says nothing of how they prove themselves."""
    named, members = named_voters(settings), sorted(member.id for member in durable.members)
    if len(members) > 1 and not settings.peer_keys and not settings.certified:
        # A file that names one voter alone needs no key, but the quorum is the disk's.
        raise VotersRefused(
            f"peer_key_file: the quorum on this disk is {members}, and its members prove to each other who they are: "
            "name the file of their key, or say insecure = true where nobody else can reach the peer ports"
        )
    if not named.keys() & set(members):
        raise VotersRefused(
            f"controller.toml names the voters {sorted(named)}, but the quorum on this disk is {members}, and has none "
            f"of them: put the addresses of {members} there. Voters are changed by `pidkeeper quorum add-voter` and "
            "`remove-voter`, never by a file"
        )


def _recorded_founding(machine: StateMachine, log: RecoveredLog) -> uuid.UUID | None:
    """The founding that snapshot or log tell of; whichever build wrote it had made a founding.json before."""
    if machine.foundings.founding_id is not None:
        return machine.foundings.founding_id
    return next((found for entry in log.entries if (found := _founding_in(entry.data)) is not None), None)


def _founding_in(payload: bytes) -> uuid.UUID | None:
    try:
        records = decode_batch(payload)
    except RecordError:
        return None  # empty, or the replay says what is wrong with it
    return next((record.founding_id for record in records if isinstance(record, FoundingRecord)), None)


def _check_known(settings: MemberSettings, log: RecoveredLog) -> None:
    # A learner's log may begin with leaders that were removed since.
    if settings.learner is not None:
        return
    state = log.hard_state
    led = {leader for entry in log.entries if (leader := read_leader(entry.data)) is not None}
    known = led if state.vote is None else led | {state.vote}
    if missing := sorted(known - named_voters(settings).keys()):
        raise VotersRefused(
            f"controller.toml names the voters {sorted(named_voters(settings))}, but members {missing} led this quorum "
            "or had this member's vote: name all voters. Voters are changed by `pidkeeper quorum add-voter` and "
            "`remove-voter`, never by a file"
        )


def _member(configured: Voter | None, founding: FoundingVoter) -> QuorumMember:
    if configured is None:
        return QuorumMember(founding.id, None, founding.peer, founding.http, True)
    return QuorumMember(configured.id, None, str(configured.peer), configured.http, True)
