"""A bucket of Google's, on loopback, by the reference of its XML API: no emulator was found that knows its conditions.

A put may have a condition on the object's generation ("Request preconditions"), listings are of version 2 and in the
order of names ("List objects"), and errors have their codes ("HTTP status and error codes for XML").
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit
from xml.sax.saxutils import escape

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

HOST: Final = "127.0.0.1"
BUCKET: Final = "records"
PAGE: Final = 5
"""Objects in an answer to a listing; Google's have a thousand."""
_RANGE: Final = re.compile(r"bytes=(\d+)-(\d+)")
_DATE: Final = "Mon, 02 Jan 2006 15:04:05 GMT"


class GcsBucket:
    """A server with one bucket for whoever has a service account's key, as in `options`; a context manager."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer((HOST, 0), _Requests)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._numbers = itertools.count()
        self.options = {"service_account_key": self._service_account(), "allow_http": "true"}

    def new_url(self) -> str:
        """Of a prefix that nothing is below."""
        return f"gs://{BUCKET}/store-{next(self._numbers)}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _service_account(self) -> str:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        url = f"http://{HOST}:{self._server.server_address[1]}"
        named = {"client_email": "agent@records.example", "private_key_id": "1", "private_key": pem.decode()}
        return json.dumps(named | {"gcs_base_url": url})


class _Requests(BaseHTTPRequestHandler):
    """Of one connection. What is stored lasts for the process."""

    protocol_version = "HTTP/1.1"
    stored: Final[dict[str, bytes]] = {}
    lock: Final = threading.Lock()

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        name = self._name()
        if name is None:
            return
        with self.lock:
            free = name not in self.stored or self.headers["x-goog-if-generation-match"] != "0"
            if free:
                self.stored[name] = data
        if free:
            self._answer(HTTPStatus.OK)
        else:
            self._refuse(HTTPStatus.PRECONDITION_FAILED, "PreconditionFailed")

    def do_GET(self) -> None:
        if urlsplit(self.path).query:
            self._list()
            return
        name = self._name()
        if name is None:
            return
        data = self.stored.get(name)
        if data is None:
            self._refuse(HTTPStatus.NOT_FOUND, "NoSuchKey")
            return
        asked = _RANGE.fullmatch(self.headers["Range"] or "")
        if asked is None:
            self._answer(HTTPStatus.OK, data)
            return
        start, last = int(asked[1]), min(int(asked[2]), len(data) - 1)
        if start > last:
            self._refuse(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, "InvalidRange")
        else:
            told = f"bytes {start}-{last}/{len(data)}"
            self._answer(HTTPStatus.PARTIAL_CONTENT, data[start : last + 1], told)

    def do_DELETE(self) -> None:
        name = self._name()
        if name is None:
            return
        if self.stored.pop(name, None) is None:
            self._refuse(HTTPStatus.NOT_FOUND, "NoSuchKey")
        else:
            self._answer(HTTPStatus.NO_CONTENT)

    def log_message(self, *_: object) -> None:
        """Nobody reads them."""

    def _name(self) -> str | None:
        """Of the object, or of the bucket; None once the request is refused."""
        bucket, _, name = urlsplit(self.path).path[1:].partition("/")
        if not (self.headers["Authorization"] or "").startswith("Bearer ey"):
            self._refuse(HTTPStatus.UNAUTHORIZED, "AuthenticationRequired")
        elif bucket != BUCKET:
            self._refuse(HTTPStatus.NOT_FOUND, "NoSuchBucket")
        else:
            return unquote(name)
        return None

    def _list(self) -> None:
        if self._name() is None:
            return
        asked = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        after = asked.get("continuation-token", asked.get("start-after", ""))
        names = sorted(name for name in list(self.stored) if name.startswith(asked.get("prefix", "")) and name > after)
        page, more = names[:PAGE], len(names) > PAGE
        listed = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2006-01-02T15:04:05.000Z</LastModified>"
            f'<ETag>"{quote(name)}"</ETag><Size>{len(self.stored[name])}</Size></Contents>'
            for name in page
        )
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        told = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{listed}"
        self._answer(HTTPStatus.OK, f"<ListBucketResult>{told}</ListBucketResult>".encode())

    def _refuse(self, status: HTTPStatus, code: str) -> None:
        self._answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode())

    def _answer(self, status: HTTPStatus, body: bytes = b"", content_range: str = "") -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", '"1"')
        self.send_header("Last-Modified", _DATE)
        self.send_header("x-goog-generation", "1")
        if content_range:
            self.send_header("Content-Range", content_range)
        self.end_headers()
        self.wfile.write(body)
