"""The models: which module with which bounds, and what TLC is to find in every state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

FOLDER: Final = Path(__file__).parent


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """One run of TLC.

    module: of this folder. constants: as TLC's configuration writes them. defined: constants that are functions, by
    their definition. invariants: that hold in every state.
    """

    name: str
    module: str
    constants: Mapping[str, str]
    defined: Mapping[str, str] = {}
    invariants: tuple[str, ...]

    def configuration(self) -> str:
        """The file that TLC reads."""
        lines = ["SPECIFICATION Spec", "CONSTANTS"]
        lines += [f"    {name} = {value}" for name, value in self.constants.items()]
        lines += [f"    {name} <- Model{name}" for name in self.defined]
        lines += [f"INVARIANT {name}" for name in self.invariants]
        return "\n".join(lines) + "\n"

    def root(self) -> str:
        """The module that TLC starts with: the one that is checked, and the constants that are functions."""
        definitions = "".join(f"Model{name} == {value}\n" for name, value in self.defined.items())
        return f"---- MODULE Root ----\nEXTENDS {self.module}\n{definitions}====\n"


def _allocation(name: str, *, records: int, terms: int) -> Model:
    return Model(
        name=name,
        module="Allocation",
        constants={
            "Controllers": "{c, d}",
            "MaxTerm": str(terms),
            "Brokers": "{1}",
            "Agents": "{p, q}",
            "BlockSize": "1",
            "MaxRecords": str(records),
        },
        defined={"BrokerOf": "[agent \\in Agents |-> 1]"},
        invariants=("NoIdTwice", "S1", "S5", "AnswersAreCommitted", "A3"),
    )


def _succession(name: str, *, quorums: int, highest: int, answers: int, knows: bool) -> Model:
    return Model(
        name=name,
        module="Succession",
        constants={
            "Agents": "{p, q}",
            "MaxQuorums": str(quorums),
            "MaxId": str(highest),
            "MaxAnswers": str(answers),
            "OperatorKnows": "TRUE" if knows else "FALSE",
        },
        invariants=("NoIdTwice", "Disjoint", "F6", "A3"),
    )


MODELS: Final = (
    _allocation("allocation, short", records=4, terms=2),
    _allocation("allocation", records=5, terms=2),
    _succession("succession, short", quorums=2, highest=1, answers=2, knows=True),
    _succession("succession, operators who know", quorums=3, highest=1, answers=1, knows=True),
)
