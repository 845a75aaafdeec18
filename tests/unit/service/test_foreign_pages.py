"""Whose page may have a browser give orders."""

from __future__ import annotations

import pytest

from pidkeeper.service.foreign_pages import refuse_foreign_page
from pidkeeper.service.problems import HttpError

HOST = {"Host": "controller:8080"}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://controller:8080"},
        {"Origin": "https://controller:8080", "Sec-Fetch-Site": "same-origin"},
        # A proxy in front has another name than the member behind it.
        {"Origin": "https://console.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_its_own_page_and_whoever_is_no_browser_may(headers: dict[str, str]) -> None:
    refuse_foreign_page({**HOST, **headers})


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://controller:8081", "Sec-Fetch-Site": "same-site"},
        {"Origin": "http://controller:8080.evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
    ],
)
def test_any_other_page_may_not(headers: dict[str, str]) -> None:
    with pytest.raises(HttpError) as refused:
        refuse_foreign_page({**HOST, **headers})
    assert refused.value.status == 403
    assert "may give no orders here" in refused.value.detail
