"""Real power cuts: an ext4 file system in a file, which the kernel is told to forget without flushing anything."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePath
from types import TracebackType
from typing import Final, Self, TypeVar

from pidkeeper.disk.files import OsFiles

# EXT4_IOC_SHUTDOWN, _IOR('X', 125, __u32), and its flag that leaves the journal as it is on disk.
_SHUTDOWN: Final = 0x8004587D
_NO_LOG_FLUSH: Final = (2).to_bytes(4, "little")
PROBE_MEGABYTES: Final = 8
_DETACH: Final = 2
_NEW_MOUNTS: Final = 0x00020000
_PRIVATE: Final = 0x4000 | 0x40000
"""CLONE_NEWNS, and MS_REC with MS_PRIVATE."""
_TOOLS: Final = ("mkfs.ext4", "losetup")
_TOOL_SECONDS: Final = 30
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_Result = TypeVar("_Result")


def why_not(directory: Path) -> str | None:
    """Why no power can be cut here; None if it can, which is tried in `directory`."""
    if os.geteuid() != 0:
        return "mounting a file system takes root"
    if not Path("/dev/loop-control").exists():
        return "there is no /dev/loop-control to mount a file system from a file"
    if absent := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"{absent[0]} is not installed"
    try:
        with LoopDisk(directory, "probe", PROBE_MEGABYTES) as disk:
            disk.cut()
            disk.unmount()
            disk.mount()
    except subprocess.CalledProcessError as error:
        return f"{error.cmd[0]} failed: {error.stderr.strip()}"
    except OSError as error:
        return f"an ext4 file system in a file cannot be mounted and shut down: {error}"
    return None


def fast_directory() -> str | None:
    """Memory where there is some: the cut is the kernel's, and the device below it plays no part in that."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def in_own_mounts(work: Callable[[], _Result]) -> _Result:
    """What `work` returns, done on a thread that has mounts of its own.

    Whoever makes namespaces meanwhile, as for a container, takes a copy of all mounts that it sees, and so keeps a file
    system alive that is taken off here: mounted again, it would still be the one whose power is gone.
    """

    def apart() -> _Result:
        leave_mounts()
        return work()

    with ThreadPoolExecutor(1, "mounts") as thread:
        return thread.submit(apart).result()


def leave_mounts() -> None:
    """Give the calling thread mounts of its own, and so those that it starts from now on. Raises OSError."""
    _system(_LIBC.unshare, _NEW_MOUNTS)
    _system(_LIBC.mount, None, b"/", None, _PRIVATE, None)


class LoopDisk:
    """An ext4 file system of `megabytes` at `mount_point`, in a file below `directory`; a context manager.

    Raises OSError or CalledProcessError where the system refuses. Whatever was mounted and attached is given back by
    `close`, which the end of the process calls at the latest.
    """

    def __init__(self, directory: Path, name: str, megabytes: int) -> None:
        self.mount_point = directory / name
        self._image = directory / f"{name}.img"
        self._device: str | None = None
        self._mounted = False
        atexit.register(self.close)
        try:
            self.mount_point.mkdir()
            with self._image.open("wb") as file:
                file.truncate(megabytes << 20)
            _tool("mkfs.ext4", "-q", "-F", "-b", "1024", "-J", "size=1", str(self._image))
            self._device = _tool("losetup", "--find", "--show", str(self._image)).strip()
            self.mount()
        except BaseException:
            self.close()
            raise

    def mount(self) -> None:
        """Mount it; the kernel replays its journal."""
        assert self._device is not None, f"{self._image} is not attached"
        _system(_LIBC.mount, self._device.encode(), os.fsencode(self.mount_point), b"ext4", 0, b"")
        self._mounted = True

    def unmount(self) -> None:
        """Take it off. Raises OSError (EBUSY) while a file of it is open."""
        _system(_LIBC.umount2, os.fsencode(self.mount_point), 0)
        self._mounted = False

    def cut(self) -> None:
        """The power goes: nothing reaches the disk from now on, every call fails."""
        handle = os.open(self.mount_point, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(handle, _SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(handle)

    def close(self) -> None:
        """Give everything back. A second call does nothing."""
        atexit.unregister(self.close)
        if self._mounted:
            _system(_LIBC.umount2, os.fsencode(self.mount_point), _DETACH)
            self._mounted = False
        if self._device is not None:
            _tool("losetup", "--detach", self._device)
            self._device = None
        self._image.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            self.mount_point.rmdir()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class KernelFiles(OsFiles):
    """The files of a LoopDisk. `boundary` is called before every changing call; without `syncs` no data is synced."""

    def __init__(self, disk: LoopDisk, *, syncs: bool = True) -> None:
        super().__init__()
        self.boundary: Callable[[str, PurePath], None] | None = None
        self.cuts = 0
        self._disk = disk
        self._syncs = syncs
        self._paths: dict[int, PurePath] = {}

    def forget_processes(self) -> None:
        """The process was killed."""
        for handle in list(self._paths):
            self.close(handle)

    def preview(self) -> None:
        """A real disk has no copy to look at."""

    def cut(self, rng: random.Random) -> Self:
        """Cut the power and mount again."""
        self._disk.cut()
        self.cuts += 1
        self.forget_processes()
        self._disk.unmount()
        self._disk.mount()
        return self

    def open(self, path: PurePath, *, create: bool = False) -> int:
        if create:
            self._change("create", path)
        handle = super().open(path, create=create)
        self._paths[handle] = path
        return handle

    def lock(self, path: PurePath) -> int:
        handle = super().lock(path)
        self._paths[handle] = path
        return handle

    def close(self, handle: int) -> None:
        del self._paths[handle]  # first, for once it is closed another thread may be given the same number
        super().close(handle)

    def pwrite(self, handle: int, data: bytes, offset: int) -> None:
        self._change("pwrite", self._paths[handle])
        super().pwrite(handle, data, offset)

    def write_synced(self, handle: int, pieces: Sequence[bytes]) -> None:
        self._change("pwrite", self._paths[handle])
        if self._syncs:
            super().write_synced(handle, pieces)
        else:
            os.pwritev(handle, pieces, 0)

    def fdatasync(self, handle: int) -> None:
        self._change("fdatasync", self._paths[handle])
        if self._syncs:
            super().fdatasync(handle)

    def fsync_directory(self, path: PurePath) -> None:
        self._change("fsync_directory", path)
        super().fsync_directory(path)

    def rename(self, source: PurePath, target: PurePath) -> None:
        self._change("rename", target)
        super().rename(source, target)

    def link(self, source: PurePath, target: PurePath) -> None:
        self._change("link", target)
        super().link(source, target)

    def unlink(self, path: PurePath) -> None:
        self._change("unlink", path)
        super().unlink(path)

    def _change(self, kind: str, path: PurePath) -> None:
        if self.boundary is not None:
            self.boundary(kind, path)


def _tool(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=_TOOL_SECONDS, check=True).stdout


def _system(call: Callable[..., int], *args: object) -> None:
    if call(*args) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call.__name__}: {os.strerror(number)}")
