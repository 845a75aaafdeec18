from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.broker_agent.security.user_list import MECHANISMS, User, UserList, make_verifier
from tests.support.sasl_users import write_users


@pytest.fixture
def users(tmp_path: Path) -> UserList:
    """Alice, with both mechanisms and the password "pencil", and bob with SHA-512 alone."""
    alice = [User("alice", make_verifier("pencil", mechanism, 4096)) for mechanism in MECHANISMS]
    return write_users(tmp_path / "users", *alice, User("bob", make_verifier("brush", "SCRAM-SHA-512", 4096)))
