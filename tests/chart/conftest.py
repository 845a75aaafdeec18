"""Renders the chart with helm; without helm the tests that need it are skipped with what to do."""

from __future__ import annotations

import functools

import pytest

from tests.chart.rendering import PEER_KEY, VALUES, Render, Rendered, find_helm, render_file, template


@pytest.fixture(scope="session")
def helm() -> str:
    found = find_helm()
    if found is None:
        pytest.skip("helm is neither on PATH nor in .tools/bin; deploy/install-helm.sh builds it with Go")
    return found


@pytest.fixture(scope="session")
def render(helm: str) -> Render:
    """`render("controller.replicas=5")`: the chart as release `pidkeeper` in namespace `ids`, with --set values.

    Beside them only what has no default: the members' key.
    """

    @functools.cache
    def run(*values: str, release: str = "pidkeeper", options: tuple[str, ...] = ()) -> Rendered:
        sets = [word for value in (PEER_KEY, *values) for word in ("--set", value)]
        return template(helm, *sets, *options, release=release)

    return run


@pytest.fixture(scope="session")
def render_case(helm: str) -> Render:
    """`render_case("production")`: the chart with values of `ci/`, on a cluster that knows all custom resources."""

    @functools.cache
    def run(name: str) -> Rendered:
        return render_file(helm, VALUES[name])

    return run
