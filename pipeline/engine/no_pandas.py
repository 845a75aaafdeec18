"""pyarrow without pandas, which it imports for the first array that it makes: a quarter of a second for nothing."""

from __future__ import annotations

import sys
from typing import Any, Final

import pyarrow as pa

_NAME: Final = "pandas"


class _Refusing:
    """A finder that finds no pandas."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> None:
        if name == _NAME:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def do_without_pandas() -> None:
    """Let pyarrow look for pandas in vain. Whoever asks for pandas afterwards, pyarrow's `to_pandas` too, gets it."""
    if _NAME in sys.modules:
        return
    sys.meta_path.insert(0, _Refusing)
    try:
        pa.array(())
    finally:
        sys.meta_path.remove(_Refusing)
