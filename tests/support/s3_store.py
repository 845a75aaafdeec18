"""Buckets for an object store, on loopback: moto's server in this process, which checks signatures and policies."""

from __future__ import annotations

import itertools
import json
import logging
import threading
import uuid
from types import TracebackType
from typing import Any, Final, Protocol, Self

HOST: Final = "127.0.0.1"
REGION: Final = "us-east-1"
_ARN: Final = "arn:aws:s3:::"


NAMED: Final = "PIDKEEPER_TEST_BUCKET"
"""Names a bucket of a server that runs already: its URL and the store's options, as JSON."""


class Bucket(Protocol):
    """`options`: of a store in it."""

    options: dict[str, str]

    def new_url(self) -> str:
        """Of a prefix that nothing is below."""


class NamedBucket:
    """The bucket that the value of NAMED tells of."""

    def __init__(self, named: str) -> None:
        told = json.loads(named)
        self._url: str = told["url"]
        self.options: dict[str, str] = told["options"]

    def new_url(self) -> str:
        """Of a prefix that nothing is below."""
        return f"{self._url}/store-{uuid.uuid4().hex}"


class _OneAtATime:
    """Requests that write on a condition, to a WSGI application, one after another: S3 looks and writes at once, and
    moto first looks and then writes, on a thread for each request."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Any:
        if "HTTP_IF_NONE_MATCH" not in environ or environ["REQUEST_METHOD"] != "PUT":
            return self._application(environ, start_response)
        with self._lock:
            return self._application(environ, start_response)


class S3Bucket:
    """A server with one bucket for a user whose key is in `options`; a context manager.

    `locked` is a bucket that this user may not touch. Names are new ones each time: moto keeps them for the process.
    """

    def __init__(self) -> None:
        from moto.server import ThreadedMotoServer

        self.name = f"bucket-{uuid.uuid4().hex}"
        self.locked = f"locked-{uuid.uuid4().hex}"
        self.options: dict[str, str] = {}
        self._server: Any = ThreadedMotoServer(HOST, 0, verbose=False)
        self._numbers = itertools.count()

    def new_url(self) -> str:
        """Of a prefix that nothing is below."""
        return f"s3://{self.name}/store-{next(self._numbers)}"

    def __enter__(self) -> Self:
        from moto import settings

        # A line for each of hundreds of requests.
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server.start()
        self._server._server.app = _OneAtATime(self._server._server.app)
        key, secret = self._user()
        settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
        self.options = {
            "endpoint": f"http://{HOST}:{self._server.get_host_and_port()[1]}",
            "allow_http": "true",
            "region": REGION,
            "access_key_id": key,
            "secret_access_key": secret,
        }
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()

    def _user(self) -> tuple[str, str]:
        """Make the buckets and the user; its key and its secret."""
        from moto.core.models import DEFAULT_ACCOUNT_ID
        from moto.iam.models import iam_backends
        from moto.s3.models import s3_backends

        for bucket in (self.name, self.locked):
            s3_backends[DEFAULT_ACCOUNT_ID]["aws"].create_bucket(bucket, REGION)
        users = iam_backends[DEFAULT_ACCOUNT_ID]["aws"]
        users.create_user(REGION, self.name)
        locked = [f"{_ARN}{self.locked}", f"{_ARN}{self.locked}/*"]
        statements = [
            {"Effect": "Allow", "Action": "s3:*", "Resource": "*"},
            {"Effect": "Deny", "Action": "s3:*", "Resource": locked},
        ]
        users.put_user_policy(self.name, "s3", json.dumps({"Version": "2012-10-17", "Statement": statements}))
        access = users.create_access_key(self.name)
        return access.access_key_id, access.secret_access_key
