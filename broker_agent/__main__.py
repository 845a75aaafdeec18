"""`python -m pidkeeper.broker_agent [CONFIG]` runs one agent; `pidkeeper agent run` is the same."""

import sys
from pathlib import Path

from pidkeeper.broker_agent.config import load_config
from pidkeeper.broker_agent.server import run
from pidkeeper.service.settings import SettingsError

try:
    sys.exit(run(load_config(Path(sys.argv[1]) if len(sys.argv) > 1 else None)))
except SettingsError as error:
    sys.stderr.write(f"{error}\n")
    sys.exit(2)
