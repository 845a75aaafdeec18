"""What a process with the library preloaded is told, and what it counts: a file that both map.

| bytes | field | |
| --- | --- | --- |
| 0 | `magic` | u32, MAGIC; a file with another one, or of another size, has no effect |
| 8 | `fdatasync` | a SyncFault, 48 bytes: what calls of it come to, and writes with RWF_DSYNC |
| 56 | `fsync` | likewise; directories are synced by it |
| 104 | `unlink` | likewise, of every name that is removed |
| 152 | `routes` | u16 by port: the port of 127.0.0.1 that a connect goes to instead; 0: none |
| 131224 | `connects` | u32 by port: how many connects went elsewhere |

All numbers are in the order of the machine. The runner alone writes, but for `left`, `calls`, `hit` and `connects`.
"""

from __future__ import annotations

import ctypes
import enum
import errno
import mmap
import os
from pathlib import Path
from typing import Final

MAGIC: Final = 0x31534850
PORTS: Final = 65_536
ALL: Final = -1
"""As a number of calls: every one, until it is healed."""


class Effect(enum.IntEnum):
    """What a sync comes to. A hang is over when it is healed, for calls that wait already as well."""

    HEALTHY = 0
    FAILS = 1
    STALLS = 2
    HANGS = 3


class SyncFault(ctypes.Structure):
    """`struct sync_fault` of shim.c, which says what each field is."""

    kind: int
    turn: int
    error: int
    left: int
    stall_ns: int
    calls: int
    hit: int
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("turn", ctypes.c_uint32),
        ("error", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("left", ctypes.c_int64),
        ("stall_ns", ctypes.c_uint64),
        ("calls", ctypes.c_uint64),
        ("hit", ctypes.c_uint64),
    )

    def set(self, effect: Effect, *, calls: int = ALL, error: int = errno.EIO, seconds: float = 0.0) -> None:
        """From now on, the next `calls` syncs fail with `error`, or each wait `seconds`, or until they are released.

        Whoever waits because of what was set before goes on.
        """
        self.kind = Effect.HEALTHY
        self.turn = (self.turn + 1) % 2**32
        self.error, self.left, self.stall_ns = error, calls, int(seconds * 1e9)
        self.kind = effect

    def heal(self) -> None:
        """Syncs are what the disk makes of them, those that wait included."""
        self.set(Effect.HEALTHY)


class _Fields(ctypes.Structure):
    """`struct control` of shim.c."""

    _fields_ = (
        ("magic", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
        ("fdatasync", SyncFault),
        ("fsync", SyncFault),
        ("unlink", SyncFault),
        ("routes", ctypes.c_uint16 * PORTS),
        ("connects", ctypes.c_uint32 * PORTS),
    )


class Control:
    """The control file of one process, made if it is not there yet. It outlives the process, which may come again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            _create(path)
        with path.open("r+b") as file:
            self._fields = _Fields.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(_Fields)))
        assert self._fields.magic == MAGIC, f"{path} is no control file"
        self.fdatasync: Final[SyncFault] = self._fields.fdatasync
        self.fsync: Final[SyncFault] = self._fields.fsync
        self.unlink: Final[SyncFault] = self._fields.unlink

    def route(self, port: int, to: int) -> None:
        """From now on a connect to `port` of this machine goes to the port `to`."""
        self._fields.routes[port] = to

    def connects(self, port: int) -> int:
        """How often the process has asked for a connection to `port` and was routed elsewhere."""
        return int(self._fields.connects[port])


def _create(path: Path) -> None:
    made = path.with_suffix(f".{os.getpid()}")
    with made.open("wb") as file:
        file.write(bytes(ctypes.c_uint32(MAGIC)))
        # Most of it stays a hole: one page for each port that is used.
        file.truncate(ctypes.sizeof(_Fields))
    made.replace(path)
