"""Check every link between files of the built site: its file is there, and so is its heading.

Sphinx checks the links that it resolves itself; these are also those of HTML, scripts and images.
"""

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


class _Page(HTMLParser):
    """The anchors of a page, and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors, self.targets = {"top"}, set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in {"id", "name"} and value:
                self.anchors.add(value)
            elif name in {"href", "src"} and value and tag != "base":
                self.targets.add(value)


def broken_links(site: Path) -> list[str]:
    """Links to nowhere in the pages of a folder, ``PAGE: LINK``."""
    page = cache(lambda path: _Page(path.read_text("utf-8")))
    broken = []
    for path in sorted(site.rglob("*.html")):
        for target in sorted(page(path).targets):
            link = urlsplit(target)
            if link.scheme or link.netloc:
                continue
            file = path.parent / unquote(link.path) if link.path else path
            file = file / "index.html" if file.is_dir() else file
            anchor = unquote(link.fragment) if file.suffix == ".html" else ""
            if not file.is_file() or (anchor and anchor not in page(file).anchors):
                broken.append(f"{path.relative_to(site)}: {target}")
    return broken


def _on_finish(app: Any, exception: Exception | None) -> None:
    if exception is None and app.builder.name == "html":
        broken = broken_links(Path(app.outdir))
        if broken:
            raise ValueError("links to nowhere:\n" + "\n".join(broken))


def setup(app: Any) -> dict[str, bool]:
    """Ask Sphinx to call us after all others."""
    app.connect("build-finished", _on_finish, priority=1000)
    return {"parallel_read_safe": True}
