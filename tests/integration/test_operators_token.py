"""A token for operators: what it alone is good for, and that no single call makes a cluster useless."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from pidkeeper.cli.local_cluster import LocalCluster
from pidkeeper.protocol.ids import MAX_FLOOR_JUMP, MAX_PRODUCER_ID
from tests.support.cluster import config_of, pidkeeper, running_cluster, wait_until

OPERATORS = "a token for operators"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One controller that everybody may ask, and operators alone may change; their token is beside its directory."""
    token = tmp_path_factory.mktemp("tokens") / "operators"
    token.write_text(OPERATORS)
    options = {"operator_token_file": str(token)}
    with running_cluster(token.with_name("cluster"), controllers=1, controller_options=options) as running:
        yield running


def token_of(cluster: LocalCluster) -> tuple[str | Path, ...]:
    """The option that makes a caller an operator."""
    return "--token-file", cluster.directory.with_name("operators")


def raise_floor(cluster: LocalCluster, floor: int, *options: str | Path) -> tuple[int, str]:
    """Exit code and last line of `pidkeeper ids raise-floor`."""
    result = pidkeeper("ids", "raise-floor", str(floor), "--yes", "--cluster", cluster.directory, *options)
    return result.returncode, (result.stdout + result.stderr).splitlines()[-1]


def test_who_is_no_operator_raises_no_floor_and_allocates_as_ever(cluster: LocalCluster) -> None:
    code, line = raise_floor(cluster, 5)
    assert code == 4
    assert "it needs the role operator" in line
    assert pidkeeper("ids", "allocate", "--broker", "1", "--cluster", cluster.directory).returncode == 0


def test_the_token_is_changed_without_a_restart(cluster: LocalCluster, tmp_path: Path) -> None:
    _, file = token_of(cluster)
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text(OPERATORS)
    new.write_text("another token for operators")

    def codes() -> list[int]:
        return [raise_floor(cluster, 5, "--token-file", token)[0] for token in (old, new)]

    Path(file).write_text(f"{old.read_text()}\n{new.read_text()}\n")
    assert codes() == [0, 0]
    Path(file).write_text(new.read_text())
    wait_until(lambda: codes() == [4, 0], "the end of the old token")


@pytest.mark.parametrize("floor", [MAX_PRODUCER_ID - 7, MAX_PRODUCER_ID])
@pytest.mark.parametrize("force", [(), ("--force",)], ids=["plain", "force"])
def test_not_even_an_operator_leaves_nothing(cluster: LocalCluster, floor: int, force: tuple[str, ...]) -> None:
    code, line = raise_floor(cluster, floor, *force, *token_of(cluster))
    assert code == 5
    assert "would leave no block" in line


def test_a_floor_far_above_is_forced_and_its_approach_to_the_end_is_told(cluster: LocalCluster) -> None:
    far = 100 * MAX_FLOOR_JUMP
    code, line = raise_floor(cluster, far, *token_of(cluster))
    assert (code, "force it, with the operators' token" in line) == (5, True), line
    assert raise_floor(cluster, far, "--force", *token_of(cluster)) == (0, f"next producer ID: {far}")
    near = MAX_PRODUCER_ID - MAX_PRODUCER_ID // 20
    assert raise_floor(cluster, near, "--force", *token_of(cluster))[0] == 0
    health = pidkeeper("health", "--cluster", cluster.directory)
    assert health.returncode == 10
    assert f"{near} of {MAX_PRODUCER_ID} producer IDs are used" in health.stdout


def test_two_tokens_that_are_one_are_refused(cluster: LocalCluster, tmp_path: Path) -> None:
    settings = msgspec.toml.decode(config_of(cluster, cluster.layout.controllers[0]).read_bytes())
    config = tmp_path / "c.toml"
    config.write_bytes(msgspec.toml.encode(settings | {"token_file": settings["operator_token_file"]}))
    result = pidkeeper("controller", "run", "--config", config)
    assert result.returncode == 2
    assert "give operators one of their own" in result.stderr.splitlines()[-1]
