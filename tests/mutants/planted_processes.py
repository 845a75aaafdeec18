"""Bugs in how processes start, in whom they let in, and in what they tell their operator; those of `dev` too."""

from __future__ import annotations

from typing import Final

from tests.mutants.edits import delete, replace
from tests.mutants.planted import Planted

CLI: Final = "cli"
CONFIG: Final = "controller/config.py"
KIT: Final = "service"
MIGRATION: Final = "controller/migration"
NODE: Final = "controller/node"
STATE: Final = "controller/state"
STORAGE: Final = "controller/storage"
TRANSPORT: Final = "controller/transport"

_NO_PROCESSES: Final = "its members are no processes"
_NO_KEYS: Final = "the simulated links know no keys"

_FILES: Final = "storage and peers have the files that they need"
_PROCESS: Final = ("tests/unit/service/test_process.py",)

FILE_BUGS: Final = (
    Planted(
        "file-limit-left-as-it-is",
        _FILES,
        "the soft limit of 1,024 that most systems begin with, for 8,192 connections",
        (delete(KIT, "_raise_file_limit", "resource.setrlimit(_, _)"),),
        _PROCESS,
        unseen=_NO_PROCESSES,
    ),
    Planted(
        "connections-take-every-file",
        _FILES,
        "a crowd of callers, and the log cannot open its next segment (etcd: too many open files)",
        (replace(KIT, "fitting_connections", "max(soft - _, _)", "soft"),),
        ("tests/unit/service/test_server.py",),
        unseen=_NO_PROCESSES,
    ),
    Planted(
        "no-files-reserved-for-storage-and-peers",
        _FILES,
        "a reserve that nobody asks for",
        (replace("controller/server.py", "_running", "fitting_connections(*_1, _2, reserved=_)", "[*_1, _2]"),),
        ("tests/unit/controller/test_server.py",),
        unseen=_NO_PROCESSES,
    ),
    Planted(
        "parents-of-a-new-directory-not-synced",
        "a directory that was formatted is there after a power cut",
        "fsync(2): the entry in the directory above needs a sync of its own",
        (replace(STORAGE, "format_directory", "missing or [_1]", "[_1]"),),
        ("tests/unit/controller/storage/test_directory.py",),
        unseen="its directories are made in one that is there",
    ),
)

_PROVEN: Final = "members with peers prove to each other who they are"
_ROLLED: Final = "a key is changed one member at a time"
_CONFIG: Final = ("tests/unit/controller/test_config.py",)
_LINKS: Final = ("tests/unit/controller/transport/test_links.py",)

KEY_BUGS: Final = (
    Planted(
        "started-without-a-key",
        _PROVEN,
        "a setting that was forgotten, and nobody asks for it",
        (replace(CONFIG, "_peer_keys", "len(self.voters) > 1 and _", "False"),),
        _CONFIG,
        unseen=_NO_KEYS,
    ),
    Planted(
        "only-the-first-key-read",
        _ROLLED,
        "a file with one secret is what it was written for",
        (replace(CONFIG, "_peer_keys", "(_ for _ in secrets)", "(secret.encode() for secret in secrets[:1])"),),
        _CONFIG,
        unseen=_NO_KEYS,
    ),
    Planted(
        "only-the-first-key-believed",
        _ROLLED,
        "the new key is known, and whoever shows it is a stranger",
        (replace(TRANSPORT, "OutboundConnection._key_of", "_.member.identity.keys", "_.member.identity.keys[:1]"),),
        _LINKS,
        unseen=_NO_KEYS,
    ),
    Planted(
        "only-the-first-key-shown",
        _ROLLED,
        "the old key is known, and whoever knows only that one never hears it",
        (replace(TRANSPORT, "PeerLinks.offer", "_1[self._offers % _]", "_1[0]"),),
        _LINKS,
        unseen=_NO_KEYS,
    ),
    Planted(
        "garbage-told-of-every-time",
        "no stranger fills the log",
        "a line for each connection, and a scanner that comes a thousand times a second",
        (replace(KIT, "Complaints.about", "_ is not None and _ < QUIET_SECONDS", "False"),),
        ("tests/unit/service/test_complaints.py", *_LINKS),
        unseen="nobody in it sends garbage",
    ),
    Planted(
        "broken-off-body-is-our-fault",
        "a caller that hangs up rings no alarm",
        "a truncated body is answered and counted as UNKNOWN_SERVER_ERROR, with a traceback",
        (
            replace(
                KIT, "read_body", "web.RequestPayloadError, HttpProcessingError, ConnectionError", "NotImplementedError"
            ),
        ),
        ("tests/unit/service/test_server.py",),
        unseen="its bodies arrive whole",
    ),
)

_FOUNDED: Final = "the settings of the founding hold"
_SAME_FILES: Final = "all files in it say the same block size and mode"
_GATE: Final = ("tests/unit/controller/node/test_founding_gate.py",)
_TOLD: Final = "an operator is told what to mend"
_WARNINGS: Final = ("tests/unit/controller/node/test_operator_warnings.py",)

SETTING_BUGS: Final = (
    Planted(
        "block-size-by-the-file-at-every-start",
        _FOUNDED,
        "members that do not decide alike, once one file was edited",
        (replace(STATE, "StateMachine.block_size", "_1 if founding is None else _", "_1"),),
        ("tests/unit/controller/state/test_foundings.py", *_GATE),
        unseen=_SAME_FILES,
    ),
    Planted(
        "mode-by-the-file-at-every-start",
        _FOUNDED,
        "a quorum that goes to ZooKeeper after it has handed out its own IDs",
        (replace(MIGRATION, "Migration._is_to_begin", "_1 if founding is None else _", "_1"),),
        ("tests/unit/controller/migration/test_member_side.py", *_GATE),
        unseen=_SAME_FILES,
    ),
    Planted(
        "files-that-differ-in-their-settings-not-told-of",
        _TOLD,
        "a setting that is silently not obeyed",
        (replace(NODE, "warnings_by_kind", "_of_the_settings(_, _, _)", "[]"),),
        (*_WARNINGS, *_GATE),
        unseen=_SAME_FILES,
    ),
    Planted(
        "files-that-differ-in-their-voters-not-told-of",
        _TOLD,
        "a file that waits for the day on which its disk is replaced",
        (replace(NODE, "warnings_by_kind", "_of_the_file(_, _)", "[]"),),
        _WARNINGS,
        unseen="nobody in it reads warnings",
    ),
    Planted(
        "warnings-nowhere-in-the-description",
        _TOLD,
        "a line in the log of a start a year ago",
        (replace(NODE, "status.describe", "warnings(_, _, _, _)", "[]"),),
        _GATE,
        unseen="nobody in it reads warnings",
    ),
)

_DEV: Final = "tests/unit/cli/test_dev.py"
_LAYOUT: Final = "tests/unit/cli/test_local_cluster.py"

DEV_BUGS: Final = (
    Planted(
        "cluster-json-written-in-place",
        "who reads cluster.json meets it whole",
        "a reader comes between truncation and write",
        (replace(CLI, "LocalCluster._save", "write_durably(_, self._path, _1)", "self._path.write_bytes(_1)"),),
        (_LAYOUT,),
        unseen=_NO_PROCESSES,
    ),
    Planted(
        "pause-doubled-for-ever",
        "a member that lived for long is soon back",
        "a count of failures that no success takes back",
        (replace(CLI, "Supervisor.attend", "_ >= STEADY_SECONDS", "False"),),
        (_DEV,),
        unseen=_NO_PROCESSES,
    ),
)

PROCESS_BUGS: Final = (*FILE_BUGS, *KEY_BUGS, *SETTING_BUGS, *DEV_BUGS)
