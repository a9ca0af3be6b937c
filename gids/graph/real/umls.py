"""UMLS semantic network as PyKEEN ships it: 135 concepts, 46 kinds of relation, triples in three text files.

The set was made for predicting links and carries no labels. What `isa` says about a concept, followed
upwards, is used as one: a physical object, a conceptual entity, an activity, or a phenomenon or process. Then
`isa` is left out of the graph, or it would hold the answer.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from gids.errors import DatasetError
from gids.graph.dataset import Dataset
from gids.graph.real.in_memory import Int64Array, dataset_in_memory, stratified_split, task_of, with_reverse

FILES = ("train.txt", "valid.txt", "test.txt")
KINDS = ("physical_object", "conceptual_entity", "activity", "phenomenon_or_process")
HIERARCHY = "isa"
NODE_TYPE = "concept"

Triple = tuple[str, str, str]


def load_umls(folder: str | os.PathLike[str], split_seed: int = 0) -> Dataset:
    """The network with the task ``"kind"``: 60 % of the concepts of each kind train, 10 % validate.

    One relation for each name but `isa`, and its reverse; a concept's feature is its one-hot number. The two
    concepts above all kinds have no label.

    Raises
    ------
    DatasetError
        A file is missing, or a line is not three words separated by tabs.
    """
    path = Path(folder)
    triples = [triple for name in FILES for triple in _read(path / name)]
    names = sorted({end for head, _, tail in triples for end in (head, tail)})
    number = {name: at for at, name in enumerate(names)}
    pairs: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for head, relation, tail in triples:
        pairs[relation].append((number[head], number[tail]))
    kinds = _kinds(pairs.pop(HIERARCHY, []), names)
    if set(kinds[kinds >= 0]) != set(range(len(KINDS))):
        raise DatasetError(str(path), f"concepts of the kinds {KINDS}", "none of some kind")
    edges = {}
    for relation, ends in pairs.items():
        src, dst = np.array(ends, np.int64).T
        edges[NODE_TYPE, relation, NODE_TYPE] = (src, dst)
    split = stratified_split(kinds, split_seed)
    return dataset_in_memory(
        path,
        with_reverse(edges),
        {NODE_TYPE: len(names)},
        {NODE_TYPE: np.eye(len(names), dtype=np.float32)},
        [task_of("kind", NODE_TYPE, kinds, len(KINDS), split)],
    )


def _read(path: Path) -> Iterable[Triple]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DatasetError(str(path), "a text file of triples", str(error)) from error
    if not lines:
        raise DatasetError(str(path), "a text file of triples", "no lines")
    for at, line in enumerate(lines):
        words = line.split("\t")
        if len(words) != 3 or not all(words):
            raise DatasetError(
                str(path), "head, relation, tail separated by tabs", f"line {at + 1}: {line!r}"
            )
        yield words[0], words[1], words[2]


def _kinds(hierarchy: Iterable[tuple[int, int]], names: list[str]) -> Int64Array:
    """Number in KINDS of every concept, -1 for none."""
    above: dict[int, set[int]] = defaultdict(set)
    for below, upper in hierarchy:
        above[below].add(upper)
    kind_of_name = {name: kind for kind, name in enumerate(KINDS)}
    kinds = np.full(len(names), -1, np.int64)
    for concept in range(len(names)):
        seen, waiting = {concept}, [concept]
        while waiting:
            found = above[waiting.pop()] - seen
            seen |= found
            waiting.extend(found)
        kinds[concept] = max((kind_of_name.get(names[each], -1) for each in seen), default=-1)
    return kinds
