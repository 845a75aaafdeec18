"""Tokens of many callers in one file: whose each is, what it is good for, and what a bad file does."""

from __future__ import annotations

from pathlib import Path

import pytest
from yarl import URL

from pidkeeper.service.access import EVERY_ROLE, WITHOUT_OPERATOR, Access, Principal
from pidkeeper.service.authentication import Authenticator
from pidkeeper.service.exchange import HttpRequest
from pidkeeper.service.problems import HttpError
from pidkeeper.service.refreshing import Refreshed
from pidkeeper.service.settings import SettingsError, read_secret
from pidkeeper.service.token_hashes import digest_of
from pidkeeper.service.token_list import ListedToken, TokenList, read_tokens
from tests.support.sharing import sharing


def line(name: str, roles: str, token: str) -> str:
    return ListedToken(name, tuple(roles.split(",")), digest_of(token.encode())).line + "\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(
        "# those of the shop\n\n"
        + line("agent-7", "broker:7,viewer", "seven")
        + line("any", "broker", "all")
        + line("alice", "operator", "ops")
        + line("grafana", "viewer", "watch")
        + line("app", "producer", "write")
    )
    return path


def principal(tokens: TokenList, header: str | None, **options: str) -> Principal:
    headers = {} if header is None else {"Authorization": header}
    authenticator = Authenticator(sharing(options.get("token")), listed=tokens.find)
    return authenticator.authenticate(HttpRequest("GET", URL("/"), headers))


def test_whose_a_token_is_and_what_it_is_good_for(path: Path) -> None:
    tokens = TokenList(str(path))
    viewer = frozenset({Access.VIEWER})
    seven = Principal("agent-7", viewer | {Access.BROKER}, frozenset({7}))
    assert principal(tokens, "Bearer seven") == seven
    assert [seven.may_act_for(broker) for broker in (7, 8)] == [True, False]
    assert principal(tokens, "bearer all").may_act_for(8)
    assert principal(tokens, "Bearer ops") == Principal("alice", EVERY_ROLE | {Access.OVERRIDE}, None)
    assert principal(tokens, "Bearer watch") == Principal("grafana", viewer, frozenset())
    assert principal(tokens, "Bearer write").roles == {Access.PRODUCER}
    assert "seven" not in path.read_text()


@pytest.mark.parametrize("header", [None, "Bearer", "Bearer Seven", "Basic seven", "seven", "Bearer \u00e9"])
def test_without_a_token_of_the_list_nobody_is_let_in(path: Path, header: str | None) -> None:
    with pytest.raises(HttpError) as refused:
        principal(TokenList(str(path)), header)
    assert refused.value.status == 401


def test_the_common_token_stays_good_but_makes_no_operator(path: Path) -> None:
    assert principal(TokenList(str(path)), "Bearer common", token="common").roles == WITHOUT_OPERATOR


def test_a_file_that_changes_is_read_again_and_a_bad_one_is_not(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokens = TokenList(str(path))
    path.write_text(line("agent-7", "broker:7", "new"))
    assert tokens.find(b"seven") is not None, "nobody has looked again"
    assert tokens.find(b"new") is not None, "at once, for it was unknown"
    assert tokens.find(b"seven") is None
    path.write_text(line("agent-7", "broker:7", "new") + line("eight", "broker:8", "eight"))
    tokens.refresh()
    assert len(tokens._read.value) == 2
    path.write_text("agent-7 broker:7 new\n")
    tokens.refresh()
    assert tokens.find(b"wrong") is None
    assert tokens.find(b"new") is not None
    assert [record.levelname for record in caplog.records] == ["WARNING"], "told once"
    path.unlink()
    tokens.refresh()
    assert tokens.find(b"new") is not None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("x viewer\n", "line 1: it must be NAME ROLES sha256:HASH"),
        ("\n# a\nx viewer y z\n", "line 3: it must be"),
        (line("x", "viewer", "t").replace("x ", "x/y "), "a name has letters"),
        (line("x", "viewer", "t").replace("x ", "x" * 65 + " "), "a name has letters"),
        (line("x", "root", "t"), "'root' is no role"),
        (line("x", "controller", "t"), "'controller' is no role"),
        (line("x", "broker:07", "t"), "'broker:07' is no role"),
        (line("x", "viewer:1", "t"), "'viewer:1' is no role"),
        (line("x", "viewer,", "t"), "'' is no role"),
        ("x viewer sha256:abc\n", "64 hexadecimal digits"),
        ("x viewer secret\n", "64 hexadecimal digits"),
        (line("x", "viewer", "t") + line("y", "operator", "t"), "has a token twice"),
        ("\xff", "cannot read"),
        ("#" * (1024 * 1024 + 1), "is larger than"),
    ],
)
def test_a_bad_file_is_refused_with_its_line(tmp_path: Path, content: str, reason: str) -> None:
    path = tmp_path / "bad"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(SettingsError, match=reason) as refused:
        read_tokens(str(path))
    assert str(path) in str(refused.value)


def test_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        TokenList(str(tmp_path / "none"))


def test_a_token_that_is_sent_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "token"
    path.write_text("one\n")
    sent = Refreshed("token_file", [str(path)], lambda: read_secret(str(path), "token_file"))
    path.write_text("another\n")
    sent.refresh()
    assert sent.value == "another"
    path.write_text("two\nlines\n")
    sent.refresh()
    sent.refresh()
    assert sent.value == "another"
    assert len(caplog.records) == 1
    assert "lines" not in caplog.text
