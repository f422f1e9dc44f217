"""What the site adds to mkdocs: links out of docs/ reach files of the repository, which are copied beside the pages."""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"\[([^\]]*)\]\(((?:\.\./)+[\w./-]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add every repository file that a page links to, under its own path."""
    for page in files.documentation_pages():
        for _, link in LINK.findall(page.content_string):
            path = _outside(page.src_uri, link)
            if path and (ROOT / path).is_file() and files.get_file_from_path(path) is None:
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Point such links at the copies; a file that is not there becomes plain text."""

    def linked(found: re.Match[str]) -> str:
        text, link = found.groups()
        path = _outside(page.file.src_uri, link)
        if path is None:
            return found[0]
        here = posixpath.dirname(page.file.src_uri) or "."
        return f"[{text}]({posixpath.relpath(path, here)})" if (ROOT / path).is_file() else text

    return LINK.sub(linked, markdown)


def _outside(page: str, link: str) -> str | None:
    """The path in the repository of a link that leaves docs/; None of a link that stays there."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    return None if path.startswith(("docs/", "../")) or path.endswith(".md") else path
