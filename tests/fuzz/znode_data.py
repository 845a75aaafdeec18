"""The data of ZooKeeper's znode, which every broker and every tool may have written."""

from __future__ import annotations

from typing import Final

import msgspec

from pidkeeper.controller.migration.orders import describe
from pidkeeper.controller.migration.znode import ZnodeBlock, ZnodeError, claim, encode, next_free, parse, seal
from pidkeeper.controller.migration.zookeeper import LiveBrokers, Znode
from pidkeeper.controller.state.machine import StateMachine
from pidkeeper.protocol.ids import MAX_PRODUCER_ID
from tests.fuzz.mutator import Parts
from tests.fuzz.target import Target, Violation

NAME: Final = "pidkeeper/cluster-a/0123456789abcdef0123456789abcdef"
QUORUM_NEXT: Final = 1500
KEYS: Final = (b'"version"', b'"broker"', b'"block_start"', b'"block_end"', b'"claimed_by"')

BLOCKS: Final = (
    ZnodeBlock(7, 0, 999),
    ZnodeBlock(-1, 1000, 1999),
    ZnodeBlock(2**31 - 1, MAX_PRODUCER_ID, MAX_PRODUCER_ID),
    claim(1000, 1999, NAME),
    claim(0, 2**40, "another"),
    seal(NAME),
)


class ZnodeTarget(Target):
    """`parse`, what is free after the block that it found, and what an operator is shown of it."""

    name = "znode"
    refusals = (ZnodeError,)
    steps = 400
    steps_per_byte = 4

    def __init__(self) -> None:
        self._machine = StateMachine("cluster-a")
        self.corpus: list[Parts] = [self._values(block) for block in BLOCKS]
        self.corpus += [
            (*parts[:4], value)
            for parts in self.corpus[:2]
            for value in (b'"\\ud83d\\udd11"', b'"\\ud83d"', b'"' + b"x" * 129 + b'"', b"[[[]]]", b"1e999", b"NaN")
        ]

    def assemble(self, parts: Parts) -> bytes:
        """An object of the keys in Kafka's order with the parts for values; more parts stand as they are."""
        pairs = [key + b":" + value for key, value in zip(KEYS, parts, strict=False)]
        return b"{" + b",".join((*pairs, *parts[len(KEYS) :])) + b"}"

    def feed(self, data: bytes) -> None:
        """What is shown can be encoded even where the block is refused."""
        msgspec.json.encode(describe(self._machine, Znode(data, 1), LiveBrokers(()), None))
        block = parse(data)
        if block is None or parse(encode(block)) != block:
            raise Violation(f"{block} changed when encoded again")
        if not 0 <= block.first <= block.last <= MAX_PRODUCER_ID:
            raise Violation(f"{block} is no block of producer IDs")
        free = next_free(block, NAME, QUORUM_NEXT)
        if free < QUORUM_NEXT or (block.claimed_by != NAME and free <= block.last):
            raise Violation(f"{free} counts as free after {block}")

    def _values(self, block: ZnodeBlock) -> Parts:
        found = msgspec.json.decode(encode(block))
        return tuple(msgspec.json.encode(found[key.decode().strip('"')]) for key in KEYS[: len(found)])
