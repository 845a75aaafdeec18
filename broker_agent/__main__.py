"""`python -m pidkeeper.broker_agent [CONFIG]` runs one agent; `pidkeeper agent run` is the same."""

import sys

from pidkeeper.broker_agent.config import load_config
from pidkeeper.broker_agent.server import run
from pidkeeper.service.process import run_module

sys.exit(run_module(load_config, run))
