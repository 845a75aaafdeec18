"""`pytest tests/scenarios --rewrite` writes the traces anew. Commit the diff only when you understand it."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite",
        action="store_true",
        help="replace the traces in tests/scenarios; commit the diff only when you understand it",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether the traces are to be replaced. Without the option's folder on the command line there is no option."""
    return bool(request.config.getoption("--rewrite", default=False))
