"""Users in a file: what is kept of a password, and what a bad file does."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

import pytest

from pidkeeper.broker_agent.security.user_list import User, UserList, make_verifier, read_users
from pidkeeper.service.settings import SettingsError
from tests.support.sasl_users import write_users

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")


def test_the_verifier_is_the_one_of_the_standard() -> None:
    """RFC 7677, section 3: the example's user, by formulas of RFC 5802, section 3."""
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SALT, 4096)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    made = make_verifier("pencil", "SCRAM-SHA-256", 4096, SALT)
    assert made == ("SCRAM-SHA-256", 4096, SALT, stored, hmac.digest(salted, b"Server Key", "sha256"))
    assert (made.matches("pencil"), made.matches("Pencil"), made.matches("")) == (True, False, False)


def test_two_users_with_one_password_have_different_lines() -> None:
    lines = {User("a", make_verifier("pencil", "SCRAM-SHA-512", 4096)).line for _ in range(2)}
    assert len(lines) == 2


def test_a_user_is_found_by_a_mechanism_that_it_has(users: UserList) -> None:
    assert users.find("alice", "SCRAM-SHA-256", "SCRAM-SHA-512") == users.find("alice", "SCRAM-SHA-256")
    assert users.find("bob", "SCRAM-SHA-256") is None
    bob = users.find("bob", "SCRAM-SHA-256", "SCRAM-SHA-512")
    assert bob is not None
    assert bob.verifier.matches("brush")
    assert users.find("mallory", "SCRAM-SHA-512") is None


def test_a_new_password_holds_at_once_and_the_old_one_is_no_more(users: UserList, tmp_path: Path) -> None:
    before = users.find("bob", "SCRAM-SHA-512")
    assert before is not None
    assert users.has(before)
    write_users(tmp_path / "users", User("bob", make_verifier("chalk", "SCRAM-SHA-512", 4096)))
    after = users.find("bob", "SCRAM-SHA-512")
    assert after is not None
    assert (after.verifier.matches("chalk"), after.verifier.matches("brush")) == (True, False)
    assert (users.has(before), users.has(after)) == (False, True)


GOOD = User("al", make_verifier("pencil", "SCRAM-SHA-256", 4096, SALT)).line


def test_comments_and_empty_lines_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "users").write_text(f"# of the shop\n\n  {GOOD}  # newly\n")
    assert [user.line for user in read_users(str(tmp_path / "users"))] == [GOOD]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("al", "must be NAME and a verifier"),
        ("a,l SCRAM-SHA-256$4096:a$b:c", "a name has letters"),
        (GOOD.replace("SHA-256", "SHA-1"), "must be NAME and a verifier"),
        (GOOD.replace("$4096", "$4095"), "4095 iterations, 4096 to 16384"),
        (GOOD.replace("$4096", "$16385"), "16385 iterations"),
        (GOOD.replace("W22Z", "W2 Z"), "must be NAME and a verifier|base64"),
        (GOOD.replace("W22Z", "W2*Z"), "base64"),
        (GOOD.replace("SHA-256", "SHA-512"), "not the length that SCRAM-SHA-512 wants"),
        (GOOD.replace("W22ZaJ0SNY7soEsUEjb6gQ==", "W22Z"), "not the length"),
        (f"{GOOD}\n{GOOD}", "a user twice"),
        ("\udc80", "UnicodeDecodeError"),
        ("#" * (1024 * 1024 + 1), "larger than"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_its_line(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "users"
    path.write_text(text, errors="surrogateescape")
    with pytest.raises(SettingsError, match=reason) as refused:
        UserList(str(path))
    assert str(path) in str(refused.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="FileNotFoundError"):
        UserList(str(tmp_path / "none"))
