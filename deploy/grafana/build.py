"""`python -m deploy.grafana.build`: write the dashboards as JSON beside this file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.grafana import agents, allocation, migration, quorum, records

TARGET: Final = Path(__file__).parent / "dashboards"


def rendered() -> dict[str, str]:
    """The text of each file by its name."""
    boards = {
        "quorum": quorum.board(),
        "allocation": allocation.board(),
        "agents": agents.board(),
        "migration": migration.board(),
        "records": records.board(),
    }
    return {
        f"{name}.json": json.dumps(board, cls=JSONEncoder, indent=2, allow_nan=False) + "\n"
        for name, board in boards.items()
    }


if __name__ == "__main__":
    for file, text in rendered().items():
        (TARGET / file).write_text(text)
