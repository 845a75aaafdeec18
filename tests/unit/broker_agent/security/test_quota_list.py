"""Quotas in a file: whose they are, and what is said of lines that are none."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from pidkeeper.broker_agent.security.fingerprints import Fingerprints
from pidkeeper.broker_agent.security.quota import Quota
from pidkeeper.broker_agent.security.quota_list import MAX_RATE, QuotaList, read_quotas
from pidkeeper.service.settings import SettingsError

QUOTAS = """# of the shop
alice produce_bytes_per_second=1000 fetch_bytes_per_second=2000
"broker 7" requests_per_second=5 # quotes, as for rules
operator unlimited
* requests_per_second=100
"""


def listed(path: Path, text: str) -> QuotaList:
    path.write_text(text)
    return QuotaList(str(path))


def test_a_line_says_all_of_its_principal_and_the_star_is_for_those_without_one(tmp_path: Path) -> None:
    quotas = listed(tmp_path / "quotas", QUOTAS)
    assert quotas.find("alice") == Quota("alice", 1000, 2000, None)
    assert quotas.find("broker 7") == Quota("broker 7", requests_per_second=5)
    assert quotas.find("operator") is None
    assert quotas.find("anonymous") == quotas.find("bob") == Quota("*", requests_per_second=100)


def test_without_a_star_nobody_else_is_limited(tmp_path: Path) -> None:
    assert listed(tmp_path / "quotas", "alice requests_per_second=1\n").find("bob") is None
    assert listed(tmp_path / "quotas", "").find("alice") is None


def test_a_line_is_written_as_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "quotas"
    path.write_text(QUOTAS)
    found = read_quotas(str(path))
    path.write_text("".join(f"{quota.line}\n" for quota in found))
    assert read_quotas(str(path)) == found


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("alice", "must be PRINCIPAL NAME=VALUE"),
        ("'' requests_per_second=1", "must be PRINCIPAL NAME=VALUE"),
        ("'alice requests_per_second=1", "No closing quotation"),
        ("alice producer_byte_rate=1", "'producer_byte_rate' is no quota; there is produce_bytes_per_second"),
        ("alice unlimited requests_per_second=1", "'unlimited' is no quota"),
        ("alice requests_per_second", "requests_per_second must be a whole number from 1 to 1099511627776, not ''"),
        ("alice requests_per_second=0", "not '0'"),
        ("alice requests_per_second=-1", "not '-1'"),
        ("alice requests_per_second=1.5", "not '1.5'"),
        ("alice requests_per_second=1_000", "not '1_000'"),
        ("alice requests_per_second=\u0661", "must be a whole number"),
        (f"alice fetch_bytes_per_second={MAX_RATE + 1}", "fetch_bytes_per_second must be a whole number"),
        ("alice requests_per_second=" + "9" * 5000, "must be a whole number"),
        ("alice requests_per_second=1 requests_per_second=2", "requests_per_second is there twice"),
        ("bob unlimited", "'bob' has a quota already, at quotas_file: "),
    ],
)
def test_what_is_no_quota_is_refused_with_the_line_that_it_is_in(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "quotas"
    with pytest.raises(SettingsError, match=r"quotas_file: .*, line 2: ") as refused:
        listed(path, f"bob fetch_bytes_per_second={MAX_RATE}\n{line}\n")
    assert said in str(refused.value)


def test_it_is_read_again_and_a_file_of_no_use_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "quotas"
    quotas = listed(path, QUOTAS)
    before = quotas.fingerprint
    path.write_text("* requests_per_second=lots\n")
    with caplog.at_level(logging.WARNING):
        quotas.refresh()
    assert "line 1: requests_per_second must be a whole number" in caplog.text
    assert quotas.fingerprint == before
    path.write_text("* requests_per_second=7\n")
    quotas.refresh()
    assert quotas.find("alice") == Quota("*", requests_per_second=7)
    assert quotas.fingerprint == Fingerprints(quotas=quotas).quotas != before
