"""`python -m pidkeeper.controller [CONFIG]` runs one controller; `pidkeeper controller run` is the same."""

import sys

from pidkeeper.controller.config import load_config
from pidkeeper.controller.server import run
from pidkeeper.service.process import run_module

sys.exit(run_module(load_config, run))
