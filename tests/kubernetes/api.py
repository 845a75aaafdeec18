"""The API of Kubernetes, as JSON over HTTPS: objects are what manifests are, dictionaries."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import requests

Manifest = dict[str, Any]

ANSWER_SECONDS: Final = 30.0
WATCH_SECONDS: Final = 120.0
"""Without a word, bookmarks included, which come every minute; then the watch is begun again where it was."""
AGAIN_SECONDS: Final = 0.2
CHUNK_BYTES: Final = 1 << 16
_PLURALS: Final = {"NetworkPolicy": "networkpolicies", "StorageClass": "storageclasses"}


class ApiError(Exception):
    """The API server refused: `status` is that of HTTP, the message its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


def collection(version: str, kind: str, namespace: str | None = None) -> str:
    """The path of the objects of a kind; `version` is their `apiVersion`."""
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    within = "" if namespace is None else f"/namespaces/{namespace}"
    return f"{root}{within}/{_PLURALS.get(kind, kind.lower() + 's')}"


PODS: Final = collection("v1", "Pod")
NODES: Final = collection("v1", "Node")


def in_namespace(kind: str, namespace: str, name: str = "", version: str = "v1") -> str:
    """The path of one object of a namespace, or of all of its kind there."""
    return collection(version, kind, namespace) + (f"/{name}" if name else "")


class Api:
    """One API server. Every call raises ApiError with its refusal, and RequestException where it does not answer."""

    def __init__(self, url: str, token: str, ca: str) -> None:
        self._url = url
        self._token = token
        self._ca = ca
        # A session of `requests` is not to be shared by threads.
        self._own = threading.local()

    def get(self, path: str, **query: str) -> Manifest:
        return self._call("GET", path, None, query)

    def list(self, path: str, **query: str) -> list[Manifest]:
        items: list[Manifest] = self.get(path, **query)["items"]
        return items

    def create(self, path: str, body: Manifest, **query: str) -> Manifest:
        return self._call("POST", path, body, query)

    def merge(self, path: str, body: Manifest) -> Manifest:
        """Patch by the rules of its kind: lists with keys are merged by these."""
        return self._call("PATCH", path, body, {}, "application/strategic-merge-patch+json")

    def delete(self, path: str, body: Manifest | None = None) -> Manifest:
        return self._call("DELETE", path, body, {})

    def watch(self, path: str, end: threading.Event) -> Iterator[tuple[str, Manifest]]:
        """All objects there as ADDED, and then what changes, until `end` is set.

        Raises ApiError where it lost its place.
        """
        found = self.get(path)
        version: str = found["metadata"]["resourceVersion"]
        for item in found["items"]:
            yield "ADDED", item
        while not end.is_set():
            for event in self._events(path, version):
                if end.is_set():
                    return
                one: Manifest = event["object"]
                if event["type"] == "ERROR":
                    raise ApiError(int(one.get("code", 0)), str(one.get("message", one)))
                version = one["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    yield event["type"], one

    def _events(self, path: str, version: str) -> Iterator[Manifest]:
        """The lines of one answer, which the server ends after a while; none where it does not answer."""
        query = {"watch": "true", "resourceVersion": version, "allowWatchBookmarks": "true"}
        try:
            with self._session().get(self._url + path, params=query, stream=True, timeout=WATCH_SECONDS) as answer:
                yield from map(json.loads, answer.iter_lines(chunk_size=CHUNK_BYTES))
        except requests.RequestException:
            time.sleep(AGAIN_SECONDS)

    def _call(
        self, method: str, path: str, body: Manifest | None, query: dict[str, str], kind: str = "application/json"
    ) -> Manifest:
        answer = self._session().request(
            method,
            self._url + path,
            params=query,
            data=None if body is None else json.dumps(body),
            headers={"Content-Type": kind},
            timeout=ANSWER_SECONDS,
        )
        said: Manifest = answer.json()
        if not answer.ok:
            raise ApiError(answer.status_code, str(said.get("message", said)))
        return said

    def _session(self) -> requests.Session:
        session = getattr(self._own, "session", None)
        if session is None:
            session = self._own.session = requests.Session()
            session.headers["Authorization"] = f"Bearer {self._token}"
            session.verify = self._ca
            # Else the environment's CAs and proxies take precedence.
            session.trust_env = False
        assert isinstance(session, requests.Session)
        return session
