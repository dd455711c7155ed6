"""Check the site's pages, and let their links to other files of the repository lead there."""

from __future__ import annotations

import os.path
import re
from pathlib import Path
from typing import Any

#: The target of `[text](target)` and `[name]: target`.
_LINK = re.compile(r"(?<=\]\()[^)#\s:]+(?=[)#])|(?<=\]: )[^#\s:]+$", re.MULTILINE)


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Let links that leave docs/ point to the repository. Raises ValueError: no such file."""
    root = Path(config.config_file_path).parent
    docs = Path(config.docs_dir).relative_to(root)
    folder = docs / os.path.dirname(page.file.src_uri)

    def resolve(link: re.Match[str]) -> str:
        path = os.path.normpath(folder / link[0])
        if not path.startswith("..") and path.startswith(f"{docs}{os.sep}"):
            return link[0]
        if not (root / path).exists():
            raise ValueError(f"{docs / page.file.src_uri}: {link[0]}: no such file")
        kind = "tree" if (root / path).is_dir() else "blob"
        return f"{config.repo_url}/{kind}/main/{path}"

    return _LINK.sub(resolve, markdown)


#: An element that a browser would load from elsewhere; a link (`<a href>`) is not loaded.
_LOADED = re.compile(
    r"<(?:(?:script|img|iframe|source)\b[^>]*\bsrc"
    r"|link\b(?=[^>]*rel=\"?(?:stylesheet|preload|preconnect))[^>]*\bhref)"
    r"=[\"']?(?:https?:)?//[^>]*>"
)


def on_post_page(output: str, *, page: Any, **_: Any) -> str:
    """Refuse pages that load anything from elsewhere. Raises ValueError naming the element."""
    if found := _LOADED.search(output):
        raise ValueError(f"{page.file.src_uri}: is loaded from elsewhere: {found[0]}")
    return output
