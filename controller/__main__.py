"""`python -m pidkeeper.controller [CONFIG]` runs one controller; `pidkeeper controller run` is the same."""

import sys
from pathlib import Path

from pidkeeper.controller.config import load_config
from pidkeeper.controller.server import run
from pidkeeper.service.settings import SettingsError

try:
    sys.exit(run(load_config(Path(sys.argv[1]) if len(sys.argv) > 1 else None)))
except SettingsError as error:
    sys.stderr.write(f"{error}\n")
    sys.exit(2)
