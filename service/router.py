"""Which route serves a path: fixed paths by one look-up, paths with parameters by the fixed part before the first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

Target = TypeVar("Target")

_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_NO_TEXTS: Final[Mapping[str, str]] = {}


class Router(Generic[Target]):
    """Targets by path and method. A parameter, written `{name}`, is one segment that is not empty."""

    def __init__(self) -> None:
        self._fixed: dict[str, dict[str, Target]] = {}
        self._templates: dict[str, list[tuple[re.Pattern[str], dict[str, Target]]]] = {}
        self._methods: dict[str, dict[str, Target]] = {}

    def add(self, method: str, path: str, target: Target) -> None:
        """Serve `method` on `path`. Raises ValueError if something does already."""
        methods = self._methods.get(path)
        if methods is None:
            methods = self._methods[path] = {}
            self._add_path(path, methods)
        if method in methods:
            raise ValueError(f"two routes serve {method} {path}")
        methods[method] = target

    def find(self, path: str) -> tuple[Mapping[str, Target], Mapping[str, str]] | None:
        """The targets of a path by method, and the texts of its parameters; None if nothing is served there.

        `path` is decoded but for `%2F` and `%25`, so that a slash in it separates segments.
        """
        methods = self._fixed.get(path)
        if methods is not None:
            return methods, _NO_TEXTS
        for pattern, methods in self._candidates(path):
            if found := pattern.fullmatch(path):
                return methods, {name: _decoded(text) for name, text in found.groupdict().items()}
        return None

    def paths(self) -> Iterator[tuple[str, str]]:
        """Method and path of everything that is served."""
        return ((method, path) for path, methods in self._methods.items() for method in methods)

    def _add_path(self, path: str, methods: dict[str, Target]) -> None:
        fixed, brace, _ = path.partition("{")
        if not brace:
            self._fixed[path] = methods
            return
        pattern = re.compile(_PARAMETER.sub(r"(?P<\1>[^{}/]+)", path))
        self._templates.setdefault(fixed.rstrip("/"), []).append((pattern, methods))

    def _candidates(self, path: str) -> Iterator[tuple[re.Pattern[str], dict[str, Target]]]:
        while path:
            path = path.rpartition("/")[0]
            yield from self._templates.get(path, ())


def _decoded(text: str) -> str:
    return text.replace("%2F", "/").replace("%25", "%") if "%" in text else text
