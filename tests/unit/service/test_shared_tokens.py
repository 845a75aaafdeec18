"""Tokens that callers share: changed without a restart, and never kept as they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from yarl import URL

from pidkeeper.service.authentication import Authenticator
from pidkeeper.service.exchange import HttpRequest
from pidkeeper.service.problems import HttpError
from pidkeeper.service.settings import SettingsError
from pidkeeper.service.shared_tokens import shared_tokens


class Files:
    """Of both kinds, and who a caller is by them."""

    def __init__(self, directory: Path) -> None:
        self.common, self.operators = directory / "common", directory / "operators"
        self.common.write_text("one of all")
        self.operators.write_text("one of few")
        self.tokens = shared_tokens(str(self.common), str(self.operators))
        self._authenticator = Authenticator(self.tokens)

    def whose(self, token: str) -> str | None:
        """None if it is refused."""
        try:
            found = self._authenticator.authenticate(HttpRequest("GET", URL("/"), {"Authorization": f"Bearer {token}"}))
        except HttpError:
            return None
        return found.name


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_a_token_is_changed_without_a_restart(files: Files) -> None:
    assert [files.whose(token) for token in ("one of all", "one of few")] == ["token", "operator"]
    files.common.write_text("another of all")
    files.operators.write_text("another of few")
    assert files.whose("one of all") == "token", "until the files are read again"
    assert [files.whose(token) for token in ("another of all", "another of few")] == ["token", "operator"]
    assert [files.whose(token) for token in ("one of all", "one of few", "neither")] == [None, None, None]


def test_the_old_token_and_the_new_one_are_good_while_they_are_changed(files: Files) -> None:
    files.operators.write_text("one of few\nanother of few\n")
    files.tokens.refresh()
    assert [files.whose(token) for token in ("one of few", "another of few")] == ["operator", "operator"]
    files.operators.write_text("another of few\n")
    files.tokens.refresh()
    assert [files.whose(token) for token in ("one of few", "another of few")] == [None, "operator"]


@pytest.mark.parametrize("content", ["", "one of few", "one of few\nof all as well", "a\nb\nc\nd\ne", "\x00"])
def test_what_is_of_no_use_changes_nothing(files: Files, caplog: pytest.LogCaptureFixture, content: str) -> None:
    files.common.write_text(content)
    files.tokens.refresh()
    assert [files.whose(token) for token in ("one of all", "one of few")] == ["token", "operator"]
    assert "cannot be used, what was read before stays in use: " in caplog.text
    assert "one of few" not in caplog.text, "no token is told"
    with pytest.raises(SettingsError, match="token_file"):
        shared_tokens(str(files.common), str(files.operators))


def test_tokens_are_kept_as_hashes_alone(files: Files) -> None:
    assert "one of" not in repr(files.tokens.value)
    assert [len(hashed) for kind in files.tokens.value for hashed in kind or ()] == [32, 32]
