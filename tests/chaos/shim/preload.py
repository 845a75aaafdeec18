"""The library as it is preloaded: a control file for each process that is started with it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.chaos.shim.build import build
from tests.chaos.shim.control import Control

CONTROL: Final = "PIDKEEPER_CHAOS_CONTROL"


class Shim:
    """A `Preload`. `folder`: for the library and the control files. Raises RuntimeError if it cannot be built."""

    def __init__(self, folder: Path) -> None:
        self.library = build(folder)
        self._folder = folder
        self._controls: dict[str, Control] = {}

    def control(self, process: str) -> Control:
        """What the process of this name is told, whether it runs or not."""
        if process not in self._controls:
            self._controls[process] = Control(self._folder / f"{process}.control")
        return self._controls[process]

    def variables(self, process: str) -> dict[str, str]:
        """Where the process finds what it is told. Its file is there from now on."""
        return {CONTROL: str(self.control(process).path)}
