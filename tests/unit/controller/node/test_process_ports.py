"""What a process gives its member."""

from __future__ import annotations

import re

from pidkeeper.controller.node.process_ports import random_name
from pidkeeper.protocol.migration import MAX_CLAIMED_BY_LENGTH


def test_a_name_that_nobody_ever_had() -> None:
    names = {random_name("c" * 64) for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(f"pidkeeper/{'c' * 64}/[0-9a-f]{{32}}", name) for name in names)
    assert max(map(len, names)) <= MAX_CLAIMED_BY_LENGTH
