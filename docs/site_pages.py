"""What `make docs` adds to the pages of this folder: README and its kin, and the reference of public names.

A hook of MkDocs. The reference has one page for each public module, with the names of its `__all__`.
Docstrings are read from the source, so neither DGL nor PyG is needed.
"""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

REPOSITORY = Path(__file__).resolve().parents[1]
MODULES = ("bam", "gids", "gids.pyg", "gids.dgl", "gids.graphbolt")
#: Pages that lie outside docs/, and their place in the site.
OUTSIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}

_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
_ROLE = re.compile(r":(?:attr|class|data|func|meth|mod):<code>([^<]*)</code>")


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in this folder."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(REPOSITORY / source).read_text()))
    for module in MODULES:
        files.append(File.generated(config, reference_page(module), content=reference(module)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links as they are in the repository become links of the site."""
    at = page.file.src_uri
    origin = next((source for source, place in OUTSIDE.items() if place == at), f"docs/{at}")
    return _LINK.sub(lambda link: _site_link(link, origin, at), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Names that docstrings mark become links where the reference has them."""
    return _ROLE.sub(r'<autoref identifier="\1" optional><code>\1</code></autoref>', html)


def _site_link(link: re.Match[str], origin: str, at: str) -> str:
    text, target, anchor = link[1], link[2], link[3] or ""
    if not target or "://" in target:
        return link[0]
    path = os.path.normpath(os.path.join(os.path.dirname(origin), target))
    place = OUTSIDE.get(path) or (path.removeprefix("docs/") if path.startswith("docs/") else None)
    if place is None and (REPOSITORY / path).exists():
        return f"{text} (`{path}`)"  # not a page: a result file, a script, the licence
    return f"[{text}]({os.path.relpath(place or path, os.path.dirname(at) or '.')}{anchor})"


def reference_page(module: str) -> str:
    """Where a module's reference lies in the site."""
    return f"reference/{module}.md"


def reference(module: str) -> str:
    """The page of one public module: its docstring, and each name of its `__all__`."""
    source = REPOSITORY / module.replace(".", "/")
    source = source / "__init__.py" if source.is_dir() else source.with_suffix(".py")
    tree = ast.parse(source.read_text())
    names = [name for name in public_names(tree) if not name.startswith("__")]
    return "\n\n".join(
        [f"# {module}", ast.get_docstring(tree) or "", *(f"::: {module}.{name}" for name in names)]
    )


def public_names(tree: ast.Module) -> list[str]:
    """`__all__` of a module that writes it as a list, which may end in the keys of a dictionary beside it."""
    values = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    names: list[str] = []
    everything = values["__all__"]
    assert isinstance(everything, ast.List)
    for item in everything.elts:
        if isinstance(item, ast.Starred) and isinstance(item.value, ast.Name):
            names += ast.literal_eval(values[item.value.id])
        else:
            names.append(ast.literal_eval(item))
    return names
