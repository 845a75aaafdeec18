"""The part of plotly.js that draws bars and scatters, packed for a page.

The package plotly brings plotly.js whole: 4.8 MB, most of it maps and three dimensions. It is a bundle of esbuild's:
one statement `var NAME=WRAP((exports,module)=>{...});` for each module, and `NAME()` where another module requires it.
What core and bars do not reach is left out, as in plotly's own basic bundle: 1.1 MB stay, and 0.5 MB when packed.
"""

from __future__ import annotations

import base64
import functools
import re
import string
import zlib
from typing import Final

from plotly.offline import get_plotlyjs

_WRAP: Final = re.compile(r"[ ;](\w+)=\(e,t\)=>\(\)=>\{try\{return t\|\|e\(\(t=\{exports")
_NAME_CHARACTERS: Final = string.ascii_letters + string.digits + "_$"
_REGISTERED: Final = re.compile(r"=([\w$]+)\(\);[\w$]+\.register\(\[([\w$(),]+)\]\)")
_BARS: Final = 'moduleType:"trace",name:"bar"'


@functools.cache
def script() -> str:
    """What the browser runs."""
    return cut(get_plotlyjs())


@functools.cache
def packed() -> str:
    """The script as base64 of zlib's, which browsers unpack as `deflate`."""
    return base64.b64encode(zlib.compress(script().encode())).decode()


def cut(script: str) -> str:
    """Core and bars of plotly.js. A bundle of another make comes back as it is: whole, and that much larger."""
    wrap = _WRAP.search(script)
    starts = list(re.finditer(rf";var ([\w$]+)={wrap[1]}\(", script)) if wrap else []
    ends = [start.start() for start in starts[1:]] + [len(script)]
    modules = {start[1]: script[start.start() : end] for start, end in zip(starts, ends, strict=False)}
    # The last module is the whole: the core, and what is registered with it.
    entry = starts[-1][1] if starts else ""
    registered = _REGISTERED.search(modules.get(entry, ""))
    if registered is None:
        return script
    core, traces = registered.groups()
    bars = [name for name in _required(traces) if any(_BARS in modules[one] for one in _near(modules, {name}))]
    modules[entry] = modules[entry].replace(traces, ",".join(f"{name}()" for name in bars))
    kept, found = set[str](), {entry, core}
    while found:
        kept |= found
        found = _near(modules, found) - kept
    return script[: starts[0].start()] + "".join(text for name, text in modules.items() if name in kept)


def _near(modules: dict[str, str], names: set[str]) -> set[str]:
    """These modules and those that they require."""
    return names | {one for name in names for one in _required(modules[name]) if one in modules}


def _required(text: str) -> list[str]:
    """Every name that is called without anything, in order."""
    calls = text.split("()")[:-1]
    return [call[len(call.rstrip(_NAME_CHARACTERS)) :] for call in calls]
