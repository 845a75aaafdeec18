"""A user of SASL for trying a secure cluster out, and the settings with which a Kafka client is that user."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pidkeeper.cli.users import new_password, put_user
from pidkeeper.disk.files import OsFiles, write_durably

USER: Final = "dev"
CLIENT: Final = "client.properties"
"""In the cluster's directory: what Kafka's own tools take as `--command-config`."""


def make_user(users: Path, client: Path, ca: Path) -> None:
    """Write `users`, for agents, and `client`, unless they are there. Raises CommandError, OSError."""
    if users.exists() and client.exists():
        return
    password = new_password()
    settings = {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(ca),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": (
            f'org.apache.kafka.common.security.scram.ScramLoginModule required username="{USER}" password="{password}";'
        ),
    }
    put_user(users, USER, password)
    mask = os.umask(0o077)
    try:
        write_durably(OsFiles(), client, "".join(f"{key}={value}\n" for key, value in settings.items()).encode())
    finally:
        os.umask(mask)
