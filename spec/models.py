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
    their definition. alike: constants whose elements may change their names without any difference; TLC can have none
    where there are properties. invariants: that hold in every state. properties: of whole behaviours. broken: the
    invariant that does not hold, since the model lacks a rule.
    """

    name: str
    module: str
    constants: Mapping[str, str]
    defined: Mapping[str, str] = {}
    alike: tuple[str, ...] = ()
    invariants: tuple[str, ...] = ()
    specification: str = "Spec"
    properties: tuple[str, ...] = ()
    broken: str = ""

    def configuration(self) -> str:
        """The file that TLC reads."""
        lines = [f"SPECIFICATION {self.specification}", "CONSTANTS"]
        lines += [f"    {name} = {value}" for name, value in self.constants.items()]
        lines += [f"    {name} <- Model{name}" for name in self.defined]
        lines += ["SYMMETRY Alike"] if self.alike else []
        lines += [f"INVARIANT {name}" for name in self.invariants]
        lines += [f"PROPERTY {name}" for name in self.properties]
        return "\n".join(lines) + "\n"

    def root(self) -> str:
        """The module that TLC starts with: the one that is checked, and the constants that are functions."""
        definitions = "".join(f"Model{name} == {value}\n" for name, value in self.defined.items())
        if self.alike:
            permuted = " \\cup ".join(f"Permutations({name})" for name in self.alike)
            definitions += f"Alike == {permuted}\n"
        return f"---- MODULE Root ----\nEXTENDS {self.module}, TLC\n{definitions}====\n"


def _allocation(name: str, *, records: int, terms: int, block: int = 1) -> Model:
    return Model(
        name=name,
        module="Allocation",
        constants={
            "Controllers": "{c, d}",
            "MaxTerm": str(terms),
            "Brokers": "{1}",
            "Agents": "{p, q}",
            "BlockSize": str(block),
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


def consensus_model(
    name: str,
    *,
    terms: int,
    log: int,
    proposals: int = 0,
    crashes: int = 0,
    losses: int = 0,
    changes: int = 0,
) -> Model:
    """Three voters, whose disks are founded."""
    members = "{one, two, three}"
    return Model(
        name=name,
        module="Consensus",
        constants={
            **{name: name for name in ("one", "two", "three", "Nobody")},
            "Members": members,
            "FirstVoters": members,
            "Blank": "FALSE",
            "Names": "{TRUE, FALSE}" if changes else "{TRUE}",
            "MaxTerm": str(terms),
            "MaxLog": str(log),
            "MaxProposals": str(proposals),
            "MaxCrashes": str(crashes),
            "MaxLosses": str(losses),
            "MaxChanges": str(changes),
        },
        alike=("Members",),
        invariants=("LeaderCompleteness", "StateMachineSafety", "LogMatching", "R1", "R4", "R15", "R18"),
    )


def _liveness(name: str, *, log: int, blank: bool, up: str) -> Model:
    """Two terms, the second one of the calm; nobody loses anything but memory."""
    safety = consensus_model(name, terms=2, log=log)
    return msgspec.structs.replace(
        safety,
        module="Liveness",
        constants={**safety.constants, "Blank": "TRUE" if blank else "FALSE", "Up": up},
        alike=(),
        invariants=(),
        specification="LivelySpec",
        properties=("Serves", "Recovers"),
    )


def _transactions(
    name: str,
    *,
    records: int,
    requests: int,
    at_once: bool = True,
    each: bool = False,
    alone: bool = False,
    broken: str = "",
) -> Model:
    """each: whether each transaction has an epoch (KIP-890). alone: one leader and one instance. Without an epoch each,
    nobody says that a late EndTxn ends no other transaction."""
    invariants = ("T1", "T4", "OnePairOneInstance", "NobodyHasAFence", "AcknowledgedOutcomes")
    return Model(
        name=name,
        module="Transactions",
        constants={
            **{name: name for name in ("c", "d", "p", "q")},
            "Controllers": "{c}" if alone else "{c, d}",
            "MaxTerm": "1" if alone else "2",
            "Instances": "{p}" if alone else "{p, q}",
            "AtOnce": "TRUE" if at_once else "FALSE",
            "EpochEach": "TRUE" if each else "FALSE",
            "MaxEpoch": "1",
            "MaxRecords": str(records),
            "MaxRequests": str(requests),
        },
        alike=() if alone else ("Controllers", "Instances"),
        invariants=(broken,) if broken else (*invariants, *(("NothingTorn",) if each else ())),
        broken=broken,
    )


def _migration(name: str, *, highest: int, blocks: int, writes: int, orders: int, terms: int = 2) -> Model:
    return Model(
        name=name,
        module="Migration",
        constants={
            **{name: name for name in ("b", "c", "d")},
            "Controllers": "{c, d}",
            "MaxTerm": str(terms),
            "OldBrokers": "{b}",
            "Highest": str(highest),
            "MaxBlocks": str(blocks),
            "MaxWrites": str(writes),
            "MaxOrders": str(orders),
        },
        alike=("Controllers",),
        invariants=("NoIdTwice", "NothingBehindTheSeal", "S1", "M1", "M3"),
    )


MODELS: Final = (
    consensus_model("consensus, short", terms=1, log=2, proposals=1),
    consensus_model("consensus, two terms", terms=2, log=1),
    consensus_model("consensus, a crash", terms=1, log=1, crashes=1),
    consensus_model("consensus, a lost disk", terms=1, log=1, losses=1),
    consensus_model("consensus, a removal", terms=1, log=2, changes=1),
    _liveness("liveness, two of three", log=2, blank=False, up="{one, two}"),
    _liveness("liveness, blank disks", log=4, blank=True, up="{one, two, three}"),
    _allocation("allocation, short", records=4, terms=2),
    _allocation("allocation", records=5, terms=2),
    _allocation("allocation, blocks of two", records=6, terms=2, block=2),
    _succession("succession, short", quorums=2, highest=1, answers=2, knows=True),
    _succession("succession, operators who know", quorums=3, highest=1, answers=1, knows=True),
    _transactions("transactions, short", records=4, requests=3),
    _transactions("transactions, with markers between", records=4, requests=3, at_once=False),
    _transactions("transactions, an epoch each", records=4, requests=3, each=True),
    _transactions("transactions, a late end", records=6, requests=4, each=True, alone=True),
    _transactions("transactions, torn", records=6, requests=4, alone=True, broken="NothingTorn"),
    _migration("migration, short", highest=2, blocks=2, writes=2, orders=1),
    _migration("migration, to the seal", highest=3, blocks=8, writes=3, orders=2, terms=1),
)
