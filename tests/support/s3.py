"""S3 on loopback: moto's server in this process, told to check signatures and policies."""

from __future__ import annotations

import importlib.util
import json
import logging
from pathlib import Path
from typing import Any, Final

HOST: Final = "127.0.0.1"
BUCKET: Final = "audit"
LOCKED: Final = "locked"
"""A bucket that the user of the tests may not touch."""
KEPT: Final = "kept"
"""A folder of BUCKET in which this user can delete nothing."""
REGION: Final = "us-east-1"
_USER: Final = "auditor"
_ARN: Final = "arn:aws:s3:::"


def why_unavailable() -> str | None:
    """None if an S3 can start here, else what is missing."""
    absent = [name for name in ("moto", "flask", "flask_cors", "pyarrow") if importlib.util.find_spec(name) is None]
    return f"no S3: {', '.join(absent)} not installed" if absent else None


class S3:
    """A server with BUCKET and LOCKED. `query` ends a URI for pyarrow."""

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        self._server: Any = ThreadedMotoServer(HOST, 0, verbose=False)
        self._system: Any = None
        self.query = ""

    def start(self, credentials: Path) -> None:
        """Serve, and write the user's key into this file, in the format of AWS_SHARED_CREDENTIALS_FILE."""
        from moto import settings
        from pyarrow import fs

        # A line for each of thousands of requests.
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server.start()
        address = f"{HOST}:{self._server.get_host_and_port()[1]}"
        key, secret = _user()
        settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
        credentials.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n")
        self.query = f"?endpoint_override={address}&scheme=http&region={REGION}"
        self._system = fs.S3FileSystem(
            access_key=key, secret_key=secret, endpoint_override=address, scheme="http", region=REGION
        )

    def put(self, source: Path, target: str) -> None:
        """Copy a file, or a directory with all that is in it, into BUCKET."""
        from pyarrow import fs

        fs.copy_files(str(source), f"{BUCKET}/{target}", destination_filesystem=self._system)

    def names(self, folder: str) -> list[str]:
        """What is in a folder of BUCKET, sorted."""
        from pyarrow import fs

        return sorted(info.base_name for info in self._system.get_file_info(fs.FileSelector(f"{BUCKET}/{folder}")))

    def close(self) -> None:
        self._server.stop()


def _user() -> tuple[str, str]:
    """Make the buckets and a user; its key and its secret."""
    from moto.core.models import DEFAULT_ACCOUNT_ID
    from moto.iam.models import iam_backends
    from moto.s3.models import s3_backends

    for bucket in (BUCKET, LOCKED):
        s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(bucket, REGION)
    users = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
    users.create_user(REGION, _USER)
    locked = [f"{_ARN}{LOCKED}", f"{_ARN}{LOCKED}/*"]
    statements = [
        {"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
        {"Effect": "Deny", "Action": "s3:*", "Resource": locked},
        {"Effect": "Deny", "Action": "s3:DeleteObject", "Resource": f"{_ARN}{BUCKET}/{KEPT}/*"},
    ]
    users.put_user_policy(_USER, "s3", json.dumps({"Version": "2012-10-17", "Statement": statements}))
    access = users.create_access_key(_USER)
    return access.access_key_id, access.secret_access_key
