"""`python -m broker_agent [--config FILE] [--set KEY=VALUE ...]`: run one agent."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from broker_agent.config import ConfigError, load_config
from broker_agent.server import run


def main() -> int:
    """Returns the exit code: 0 stopped, 1 failed, 2 bad usage or settings."""
    parser = argparse.ArgumentParser(prog="python -m broker_agent", description=__doc__)
    parser.add_argument("--config", type=Path, help="TOML file")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override one setting")
    arguments = parser.parse_args()
    overrides: dict[str, str] = {}
    for text in arguments.set:
        key, equals, value = text.partition("=")
        if not equals:
            parser.error(f"--set {text}: KEY=VALUE is wanted")
        overrides[key] = value
    try:
        config = load_config(arguments.config, overrides=overrides)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return run(config)


if __name__ == "__main__":
    sys.exit(main())
