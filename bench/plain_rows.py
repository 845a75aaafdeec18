"""Rows without a floor beside those of `bench.report`."""

from __future__ import annotations

import msgspec

from bench.report import Row, median


def informing(section: str, name: str, unit: str, samples: list[float], remark: str = "") -> Row:
    """A figure without a bar."""
    return Row(section=section, name=name, unit=unit, measured=median(samples), samples=samples, remark=remark)


def not_below(section: str, name: str, unit: str, samples: list[float], bar: float, remark: str = "") -> Row:
    """The median against a bar that it is to reach."""
    row = informing(section, name, unit, samples, remark)
    return msgspec.structs.replace(row, bar=f">= {bar:g}", met=row.measured >= bar)
