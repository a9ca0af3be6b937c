"""The Debian package graph: packages, names without a package, sources, hosts, maintainers, tags.

Made from the text that `apt-cache dumpavail` prints (Debian policy, chapters 5 and 7). An edge stands for a
package naming another in a field; alternatives (``a | b``) are an edge each, versions and architectures are
dropped, and a name that a field repeats counts once.
"""

from __future__ import annotations

import lzma
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from gids.errors import DatasetError
from gids.graph.dataset import Dataset
from gids.graph.real.debian_facts import (
    BUILT_FROM,
    BUILT_USING,
    HOST,
    HOSTED_AT,
    MAINTAINED_BY,
    MAINTAINER,
    PACKAGE,
    PACKAGE_FIELDS,
    PACKAGES_FILE,
    SOURCE,
    TAG,
    TAGGED,
    VIRTUAL,
)
from gids.graph.real.in_memory import dataset_in_memory, stratified_split, task_of, with_reverse
from gids.graph.real.text import hashed_text

_REQUIRED = ("Package", "Section", "Description", "Maintainer")
_NAME_END = re.compile(r"[\s(:\[<]")
_HOST = re.compile(r"https?://([^/:]+)")

Stanza = dict[str, str]
EdgeTypeName = tuple[str, str, str]


def load_debian(
    folder: str | os.PathLike[str],
    *,
    tags: bool = False,
    reverse: bool = True,
    split_seed: int = 0,
    text_dim: int = 1024,
) -> Dataset:
    """The graph with the task ``"section"``: which of 58 sections of the archive a package belongs to.

    Packages have their short description as hashed text (float16); other nodes have no features.

    Parameters
    ----------
    folder : path
        Holds `packages.txt.xz`.
    tags : bool
        Have tags as nodes. They name languages and roles, and so give sections away: leave them out when
        sections are predicted.
    reverse : bool
        Have a reverse of every relation, so that packages receive messages from everything.
    split_seed : int
        60 % of each section's packages train, 10 % validate, 30 % test, at random.
    text_dim : int
        Elements of a feature row.

    Raises
    ------
    DatasetError
        The file is missing or damaged, or a package lacks a field.
    """
    path = Path(folder) / PACKAGES_FILE
    packages = list(_stanzas(path))
    nodes, edges = _edges(path, packages, tags)
    sections = [package["Section"].rpartition("/")[2] for package in packages]
    names, labels = np.unique(sections, return_inverse=True)
    labels = labels.astype(np.int64)
    texts = [package["Description"] for package in packages]
    arrays = {edge_type: (pairs[:, 0], pairs[:, 1]) for edge_type, pairs in edges.items()}
    return dataset_in_memory(
        Path(folder),
        with_reverse(arrays) if reverse else arrays,
        {name: len(numbers) for name, numbers in nodes.items()},
        {PACKAGE: hashed_text(texts, text_dim)},
        [task_of("section", PACKAGE, labels, len(names), stratified_split(labels, split_seed))],
    )


def _stanzas(path: Path) -> Iterator[Stanza]:
    """Fields of each package; of a field that goes on over several lines, `Description` keeps the first."""
    try:
        with lzma.open(path, "rt", encoding="utf-8") as stream:
            text = stream.read()
    except (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
        raise DatasetError(str(path), "an xz file of package stanzas", str(error)) from error
    for at, paragraph in enumerate(part for part in text.split("\n\n") if part.strip()):
        stanza: Stanza = {}
        field = ""
        for line in paragraph.strip("\n").split("\n"):
            if line[:1].isspace():
                if field != "Description":
                    stanza[field] = f"{stanza.get(field, '')} {line.strip()}"
                continue
            field, colon, value = line.partition(":")
            if not colon:
                raise DatasetError(str(path), "`Field: value`", f"{line[:60]!r} in stanza {at + 1}")
            stanza[field] = value.strip()
        missing = [field for field in _REQUIRED if not stanza.get(field)]
        if missing:
            raise DatasetError(str(path), f"fields {_REQUIRED}", f"none of {missing} in stanza {at + 1}")
        yield stanza


class _Numbers:
    """Numbers of names, in order of first appearance."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._of = {name: at for at, name in enumerate(names)}

    def __len__(self) -> int:
        return len(self._of)

    def __contains__(self, name: str) -> bool:
        return name in self._of

    def of(self, name: str) -> int:
        return self._of.setdefault(name, len(self._of))


def _edges(
    path: Path, packages: list[Stanza], tags: bool
) -> tuple[dict[str, _Numbers], dict[EdgeTypeName, np.ndarray[tuple[int, int], np.dtype[np.int64]]]]:
    nodes = {name: _Numbers() for name in (VIRTUAL, HOST, MAINTAINER, *((TAG,) if tags else ()))}
    nodes[PACKAGE] = _Numbers(package["Package"] for package in packages)
    nodes[SOURCE] = _Numbers(dict.fromkeys(map(_source, packages)))
    if len(nodes[PACKAGE]) != len(packages):
        raise DatasetError(
            str(path), "one stanza for each package", f"{len(packages)} of {len(nodes[PACKAGE])}"
        )
    pairs: dict[EdgeTypeName, list[tuple[int, int]]] = {}
    for src, package in enumerate(packages):
        for edge_type, name in _named(package, nodes):
            pairs.setdefault(edge_type, []).append((src, nodes[edge_type[2]].of(name)))
    return nodes, {edge_type: np.array(ends, np.int64) for edge_type, ends in pairs.items()}


def _named(package: Stanza, nodes: dict[str, _Numbers]) -> Iterator[tuple[EdgeTypeName, str]]:
    """Edge type and name of everything that a package names."""
    for field in package.keys() & PACKAGE_FIELDS.keys():
        relation = PACKAGE_FIELDS[field]
        for name in _names(package[field]):
            yield (PACKAGE, relation, PACKAGE if name in nodes[PACKAGE] else VIRTUAL), name
    yield BUILT_FROM, _source(package)
    yield MAINTAINED_BY, package["Maintainer"]
    for name in _names(package.get("Built-Using", "")):
        if name in nodes[SOURCE]:  # a few sources have no binary package of their own in the list
            yield BUILT_USING, name
    host = _HOST.match(package.get("Homepage", ""))
    if host:
        yield HOSTED_AT, host.group(1).lower()
    if TAG in nodes:
        for tag in dict.fromkeys(each.strip() for each in package.get("Tag", "").split(",")):
            if tag:
                yield TAGGED, tag


def _source(package: Stanza) -> str:
    """Name of the source package; `Source` is left out where it is the package's own name."""
    return package.get("Source", package["Package"]).partition(" ")[0]


def _names(field: str) -> list[str]:
    """Names in a relation field, each once, in order."""
    alternatives = (alternative.strip() for group in field.split(",") for alternative in group.split("|"))
    return list(dict.fromkeys(_NAME_END.split(each, maxsplit=1)[0] for each in alternatives if each))
