"""The library from its source, with the compiler of this machine."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("shim.c")
COMPILERS: Final = ("cc", "gcc", "clang")
OPTIONS: Final = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")


def why_no_shim() -> str | None:
    """Why the library cannot be built here, or None."""
    if _compiler() is None:
        return f"no C compiler is on PATH ({', '.join(COMPILERS)}): nothing can be preloaded into the processes"
    return None


def build(folder: Path) -> Path:
    """The library in `folder`, built unless it is there already. Raises RuntimeError with what the compiler says."""
    compiler = _compiler()
    if compiler is None:
        raise RuntimeError(why_no_shim())
    source = SOURCE.read_bytes()
    library = folder / f"shim-{hashlib.sha256(source + ' '.join(OPTIONS).encode()).hexdigest()[:16]}.so"
    if library.exists():
        return library
    folder.mkdir(parents=True, exist_ok=True)
    # As a whole: another run may build it at the same time.
    made = library.with_suffix(f".{os.getpid()}")
    done = subprocess.run(
        [compiler, *OPTIONS, str(SOURCE), "-o", str(made), "-ldl"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"{compiler} does not build {SOURCE.name}:\n{done.stderr}")
    return made.replace(library)


def _compiler() -> str | None:
    return next((found for name in COMPILERS if (found := shutil.which(name)) is not None), None)
