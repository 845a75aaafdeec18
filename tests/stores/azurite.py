"""Azurite, Azure's own emulator of its Blob storage: as one process on loopback, with its files in one directory."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import shutil
import urllib.error
import urllib.request
from email.utils import formatdate
from http import HTTPStatus
from pathlib import Path
from typing import Final

from pidkeeper.cli.local_cluster import HOST, free_ports
from tests.stores.server import CONTAINER, ROOT, StoreServer

FETCHED: Final = ROOT / ".tools" / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
ACCOUNT: Final = "agent"
VERSION: Final = "2023-11-03"
ANSWER_SECONDS: Final = 5.0


def azurite() -> list[str] | None:
    """The program, if it can be had here."""
    node = shutil.which("node")
    return [node, str(FETCHED)] if node is not None and FETCHED.is_file() else None


class Azurite(StoreServer):
    """See `StoreServer`. It writes down where its blobs are every five seconds, so that a kill loses some."""

    name = "Azurite"
    survives = False
    url = f"az://{CONTAINER}"

    def __init__(self, program: list[str], directory: Path) -> None:
        data = directory / "data"
        data.mkdir(parents=True)
        (port,) = free_ports(1)
        self._key = secrets.token_bytes(32)
        key = base64.b64encode(self._key).decode()
        self._endpoint = f"http://{HOST}:{port}/{ACCOUNT}"
        self.options = {
            "endpoint": self._endpoint,
            "allow_http": "true",
            "account_name": ACCOUNT,
            "account_key": key,
        }
        command = [*program, "--blobHost", HOST, "--blobPort", str(port), "--location", str(data)]
        super().__init__(
            [*command, "--silent", "--disableTelemetry", "--skipApiVersionCheck"],
            directory,
            {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{key}"},
        )

    def has_container(self) -> bool:
        """Make it, unless it is there; whether it is."""
        date = formatdate(usegmt=True)
        resource = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
        signed = "PUT" + "\n" * 12 + f"x-ms-date:{date}\nx-ms-version:{VERSION}\n{resource}"
        signature = base64.b64encode(hmac.digest(self._key, signed.encode(), hashlib.sha256)).decode()
        request = urllib.request.Request(
            f"{self._endpoint}/{CONTAINER}?restype=container",
            method="PUT",
            headers={
                "x-ms-date": date,
                "x-ms-version": VERSION,
                "Authorization": f"SharedKey {ACCOUNT}:{signature}",
                "Content-Length": "0",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_SECONDS):
                return True
        except urllib.error.HTTPError as error:
            with error:
                return error.code == HTTPStatus.CONFLICT
        except OSError:
            return False
