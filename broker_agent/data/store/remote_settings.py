"""What of a remote store's settings can never work, however long one waits: told before the first request is sent.

obstore finds it out with a request, and then says that the store failed; of an endpoint that is no URL it dies.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

PREFIXES: Final = {"s3": "aws_", "gs": "google_", "az": "azure_"}
"""Of each kind's variables in the environment, in lower case; its options may have them or not."""
_ENDPOINTS: Final = ("endpoint", "endpoint_url", "endpoint_url_s3", "base_url")
_OF_THE_CLIENT: Final = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "http1_only",
        "http2_only",
        "proxy_ca_certificate",
        "proxy_excludes",
        "proxy_url",
        "user_agent",
    }
)
"""What the HTTP client is told. Its timeouts are ours: a call is bounded by them."""
_TRUE: Final = ("1", "true", "on", "yes", "y")
_KEYS: Final = frozenset(("access_key_id", "access_key", "account_key"))
"""With one of these no token is read from a file."""
_TOKEN_FILE: Final = "token_file"  # noqa: S105 - how the name of a setting ends


def settings_of(scheme: str, options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """All settings of a store, in lower case and without the prefix of its kind; options win."""
    prefix = PREFIXES[scheme]
    given = {name.lower(): value for name, value in environment.items() if name.lower().startswith(prefix)}
    given |= {name.lower(): value for name, value in options.items()}
    return {name.removeprefix(prefix): value for name, value in given.items()}


def client_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Those of the HTTP client, which has to be given them: of a store's own options Google's passes none on to it, and
    of the environment's no store does.
    """
    return {name: value for name, value in settings.items() if name in _OF_THE_CLIENT}


def check_remote_settings(settings: Mapping[str, str]) -> None:
    """Raise ValueError for an endpoint that cannot be asked, and for credentials in a file that is not there."""
    for name in _ENDPOINTS:
        if name in settings:
            _check_endpoint(name, settings[name], may_be_plain=settings.get("allow_http", "").lower() in _TRUE)
    if not settings.keys() & _KEYS:
        for name, path in settings.items():
            if name.endswith(_TOKEN_FILE) and not Path(path).is_file():
                raise ValueError(f"{name}: there is no file {path}, so nobody gives the store's credentials")


def _check_endpoint(name: str, url: str, *, may_be_plain: bool) -> None:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and url.isascii()
    except ValueError:
        sound = False
    if not sound or any(character <= " " for character in url):
        raise ValueError(f"{name}: {url!r} is no URL like https://HOST:PORT")
    if parts.scheme == "http" and not may_be_plain:
        raise ValueError(f'{name}: {url} is without TLS, which takes allow_http = "true" beside it')
