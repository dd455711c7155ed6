"""Links from the site to files of the repository that are not pages."""

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
