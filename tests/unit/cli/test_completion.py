"""Completion, as bash asks for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from pidkeeper.cli.main import COMMANDS, cli

ROOT = Path(__file__).resolve().parents[3]
BASH = shutil.which("bash")
HEAVY = ("asyncio", "aiohttp", "rich", "uvloop", "pidkeeper.cli.audit", "pidkeeper.cli.dev", "pidkeeper.cli.quorum")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """`pidkeeper`, as it is installed."""
    path = tmp_path / "pidkeeper"
    path.write_text(f"#!{sys.executable}\nfrom pidkeeper.cli.main import main\nmain()\n")
    path.chmod(0o755)
    return path


def completed(program: Path, *words: str) -> list[str]:
    """What bash offers for the last of these words."""
    script = (
        'eval "$(pidkeeper completion bash)"; complete -p pidkeeper >&2; '
        f"COMP_WORDS=(pidkeeper {' '.join(map(repr, words))}); COMP_CWORD={len(words)}; "
        '_pidkeeper_completion pidkeeper; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert BASH is not None
    environment = {"PATH": f"{program.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    asked = subprocess.run(
        [BASH, "--norc", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert asked.returncode == 0, asked.stderr
    assert "-F _pidkeeper_completion pidkeeper" in asked.stderr, "the script binds itself to the command"
    return asked.stdout.split()


@pytest.mark.skipif(BASH is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["qu"], ["quorum"]),
        (["a"], ["acls", "agent", "agents", "archive", "audit"]),
        (["ids", ""], ["allocate", "list", "owner", "raise-floor"]),
        (["quorum", "describe", "--wa"], ["--watch"]),
        (["health", "--output", ""], ["table", "json", "yaml"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["ids", "zz"], []),
    ],
)
def test_bash_completes(program: Path, words: list[str], offered: list[str]) -> None:
    assert sorted(completed(program, *words)) == sorted(offered)


def test_commands_are_completed_without_their_modules() -> None:
    code = (
        "import sys\n"
        "try:\n    from pidkeeper.cli.main import cli; cli.main([], prog_name='pidkeeper')\n"
        "except SystemExit: pass\n"
        f"sys.stderr.write(','.join(name for name in {HEAVY!r} if name in sys.modules))"
    )
    environment = {
        "PYTHONPATH": str(ROOT),
        "_PIDKEEPER_COMPLETE": "bash_complete",
        "COMP_WORDS": "pidkeeper ",
        "COMP_CWORD": "1",
    }
    asked = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert asked.stderr == ""
    assert [line.removeprefix("plain,") for line in asked.stdout.splitlines()] == list(COMMANDS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_a_script_of_its_own(shell: str) -> None:
    printed = CliRunner().invoke(cli, ["completion", shell])
    assert printed.exit_code == 0
    assert f"_PIDKEEPER_COMPLETE={shell}_complete" in printed.output


def test_what_is_no_shell_is_a_usage_error() -> None:
    assert CliRunner().invoke(cli, ["completion", "cmd"]).exit_code == 2
