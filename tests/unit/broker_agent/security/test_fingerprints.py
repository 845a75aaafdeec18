"""Fingerprints of users and rules: the same for the same entries, and of no use to whoever wants to know these."""

from __future__ import annotations

from pathlib import Path

import pytest

from pidkeeper.broker_agent.security.acls import AclList
from pidkeeper.broker_agent.security.fingerprints import DIGITS, NO_FILE, Fingerprints
from pidkeeper.broker_agent.security.user_list import MIN_ITERATIONS, User, make_verifier
from tests.support.sasl_users import write_users

RULES = "allow alice transactional-id shop-*\ndeny bob transactional-id bank\n"


def of(path: Path, text: str) -> str:
    path.write_text(text)
    return AclList(str(path)).fingerprint


@pytest.mark.parametrize(
    "text",
    [
        RULES,
        "# of the shop\n\ndeny  bob transactional-id 'bank'\nallow alice transactional-id shop-*",
        RULES + "deny bob transactional-id bank\n",
    ],
)
def test_how_the_same_rules_are_written_does_not_matter(tmp_path: Path, text: str) -> None:
    assert of(tmp_path / "acls", text) == of(tmp_path / "others", RULES)


def test_other_rules_and_none_have_other_fingerprints(tmp_path: Path) -> None:
    texts = (RULES, "", RULES.replace("shop-*", "shop-"), RULES.replace("deny", "allow"))
    found = {of(tmp_path / "acls", text) for text in texts} | {Fingerprints().acls, Fingerprints().users}
    assert len(found) == len(texts) + 1
    assert NO_FILE in found
    assert all(len(one) == DIGITS and int(one, 16) < 2**53 for one in found)


def test_it_is_of_what_is_in_force(tmp_path: Path) -> None:
    path = tmp_path / "acls"
    before = of(path, RULES)
    acls = AclList(str(path))
    path.write_text("allow everything\n")
    acls.refresh()
    assert acls.fingerprint == before, "a file of no use changes nothing"
    path.write_text("")
    acls.refresh()
    assert acls.fingerprint != before


def test_another_password_is_another_file_of_users(tmp_path: Path) -> None:
    def fingerprint(password: str, salt: bytes) -> str:
        verifier = make_verifier(password, "SCRAM-SHA-256", MIN_ITERATIONS, salt)
        return write_users(tmp_path / "users", User("alice", verifier)).fingerprint

    salt, other = b"a" * 16, b"b" * 16
    found = [fingerprint("one", salt), fingerprint("two", salt), fingerprint("one", other), fingerprint("one", salt)]
    assert len(set(found)) == 3
    assert found[0] == found[3]
