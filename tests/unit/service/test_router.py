"""Which route serves a path."""

from __future__ import annotations

import pytest

from pidkeeper.service.router import Router


@pytest.fixture
def router() -> Router[str]:
    router: Router[str] = Router()
    for method, path in (
        ("GET", "/v1/things"),
        ("POST", "/v1/things"),
        ("GET", "/v1/things/{id}"),
        ("DELETE", "/v1/things/{id}"),
        ("GET", "/v1/things/{id}/parts/{part}"),
        ("GET", "/v1/things/newest"),
    ):
        router.add(method, path, f"{method} {path}")
    return router


@pytest.mark.parametrize(
    ("path", "get", "texts"),
    [
        ("/v1/things", "GET /v1/things", {}),
        ("/v1/things/newest", "GET /v1/things/newest", {}),
        ("/v1/things/7", "GET /v1/things/{id}", {"id": "7"}),
        ("/v1/things/a%2Fb%25", "GET /v1/things/{id}", {"id": "a/b%"}),
        ("/v1/things/%252F", "GET /v1/things/{id}", {"id": "%2F"}),
        ("/v1/things/7/parts/x", "GET /v1/things/{id}/parts/{part}", {"id": "7", "part": "x"}),
    ],
)
def test_a_path_finds_its_targets_and_texts(router: Router[str], path: str, get: str, texts: dict[str, str]) -> None:
    found = router.find(path)
    assert found is not None
    methods, given = found
    assert (methods["GET"], given) == (get, texts)


def test_the_methods_of_one_path_are_together(router: Router[str]) -> None:
    found = router.find("/v1/things/7")
    assert found is not None
    assert list(found[0]) == ["GET", "DELETE"]


@pytest.mark.parametrize(
    "path",
    ["", "/", "*", "/v1", "/v1/", "/v1/things/", "//v1/things", "/v1/things//parts/x", "/v1/things/7/parts", "x"],
)
def test_anything_else_is_not_served(router: Router[str], path: str) -> None:
    assert router.find(path) is None


def test_a_path_is_served_once(router: Router[str]) -> None:
    with pytest.raises(ValueError, match="two routes serve GET /v1/things"):
        router.add("GET", "/v1/things", "again")
