"""Tables that several checks look at: each a pure function of the inputs, computed once in an audit and then kept.

A check asks for such a table by calling its function, and need not know whether it was kept: where nobody kept it, it
is computed where it is used. So a check can be run alone, and an audit plans and computes what its checks share once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable

from pyspark.sql import DataFrame

from pidkeeper.pipeline.inputs import AuditInputs

Derivation = Callable[[AuditInputs], DataFrame]
Save = Callable[[str, DataFrame], DataFrame]
"""Writes a table under a name, and gives it as it is read from there."""


def derived(derive: Derivation) -> Derivation:
    """Let a table be kept under the name of its function."""

    @functools.wraps(derive)
    def given(inputs: AuditInputs) -> DataFrame:
        kept = inputs.kept.get(derive.__name__)
        return derive(inputs) if kept is None else kept

    return given


def keep(inputs: AuditInputs, tables: Iterable[Derivation], save: Save) -> AuditInputs:
    """`inputs` with these tables kept, one after the other: a later one may rest on those before it."""
    for table in tables:
        name = table.__name__
        inputs = dataclasses.replace(inputs, kept={**inputs.kept, name: save(name, table(inputs))})
    return inputs
