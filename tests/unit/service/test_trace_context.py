"""Which trace a request belongs to, by a header that anybody may send."""

from __future__ import annotations

import pytest
from multidict import CIMultiDict

from pidkeeper.service.trace_context import sampled_trace

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


@pytest.mark.parametrize("flags", ["01", "03", "ff"])
def test_a_trace_that_is_recorded_is_named(flags: str) -> None:
    assert sampled_trace(CIMultiDict({"TraceParent": f"00-{TRACE}-{PARENT}-{flags}"})) == TRACE


def test_without_a_header_there_is_none() -> None:
    assert sampled_trace({}) is None


@pytest.mark.parametrize("flags", ["00", "02"])
def test_a_trace_that_nobody_records_is_not_named(flags: str) -> None:
    assert sampled_trace({"traceparent": f"00-{TRACE}-{PARENT}-{flags}"}) is None


@pytest.mark.parametrize(
    "header",
    [
        "",
        TRACE,
        f"00-{'0' * 32}-{PARENT}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{PARENT}-01",
        f"00-{TRACE[1:]}-{PARENT}-01",
        f"00-{TRACE}a-{PARENT}-01",
        f"00-{TRACE[:-1]}g-{PARENT}-01",
        f"00-{TRACE[:-1]}\u0664-{PARENT}-01",
        f"01-{TRACE}-{PARENT}-01",
        f"ff-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-01-more",
        f"00-{TRACE}-{PARENT}-01\n",
        f" 00-{TRACE}-{PARENT}-01",
        f"00-{TRACE}-{PARENT}-1",
        f'00-{TRACE}"}} 1 {PARENT}-01',
        "0" * 100_000,
    ],
)
def test_what_is_not_exactly_the_header_names_no_trace(header: str) -> None:
    assert sampled_trace({"traceparent": header}) is None
