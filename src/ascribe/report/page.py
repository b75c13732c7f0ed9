"""One HTML file that needs nothing else: no server, no network, no other file.

What the table says goes into the page as data and is put on the screen as text, never as HTML. A
content security policy lets nothing run but the two scripts that the page was written with, and
lets nothing be fetched.
"""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import Any

from ascribe.report.text import embedded

SCRIPTS = ("base.js", "browser.js", "main.js")


def html(data: Any) -> str:
    """The page that shows ``data``, which the scripts of the page read.

    Raises:
        ImportError: without the extra ``report``.
    """
    style = _asset("style.css")
    script = '(() => {\n"use strict";\n' + "".join(map(_asset, SCRIPTS)) + "})();\n"
    library = _library()
    policy = (
        f"default-src 'none'; script-src {_hash(library)} {_hash(script)}; "
        f"style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": policy,
        "style": style,
        "data": embedded(data),
        "library": library,
        "script": script,
    }
    # One pass: what is put in is never looked at again.
    return re.sub(r"@@(\w+)@@", lambda found: parts[found[1]], _asset("page.html"))


def write(data: Any, path: str | Path) -> int:
    """Write the page; returns its size in bytes."""
    written = html(data).encode("utf-8", "replace")
    Path(path).write_bytes(written)
    return len(written)


def charts() -> Any:
    """The package that draws, or an error that names the extra that brings it."""
    try:
        return import_module("vl_convert")
    except ImportError as error:
        raise ImportError("a report needs Vega-Lite: pip install 'ascribe[report]'") from error


@cache
def _library() -> str:
    """Vega-Lite as one script. Its names stay inside, but for the one that the page calls."""
    bundle: str = charts().javascript_bundle("window.vegaEmbed = vegaEmbed;")
    script = "(() => {\n" + bundle.replace("\r\n", "\n") + "\n})();\n"
    if "</script" in script.lower() or "<!--" in script:
        raise RuntimeError("the script of the charts cannot stand inside a page")
    return script


def _asset(name: str) -> str:
    return (files("ascribe.report") / "assets" / name).read_text(encoding="utf-8")


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
