"""Amazon Photo (Shchur et al., 2018): products bought together, words of their reviews, eight categories."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from gids.errors import DatasetError
from gids.graph.dataset import Dataset
from gids.graph.real.in_memory import dataset_in_memory, per_class_split, require_ids, task_of, unit_rows
from gids.graph.real.pickles import load_npz, sparse_of_pickle
from gids.graph.real.planetoid import undirected

NODE_TYPE = "product"
MAX_CLASSES = 1000


def load_amazon_photo(folder: str | os.PathLike[str], split_seed: int = 0) -> Dataset:
    """Products with the task ``"category"``, split as its authors do: 20 a class to train, 30 to validate.

    One relation, ``(product, bought_with, product)``, in both directions. Rows of features have length 1.

    Parameters
    ----------
    folder : path
    split_seed : int
        The authors report means over random splits.

    Raises
    ------
    DatasetError
        The file is missing or damaged, or its arrays do not fit together.
    """
    path = Path(folder) / "amazon_photo.npz"
    arrays = load_npz(path)
    missing = [name for name in ("adj_matrix", "node_attr", "node_label") if name not in arrays]
    if missing:
        raise DatasetError(str(path), f"arrays {missing}", f"{sorted(arrays)}")
    adjacency = sparse_of_pickle(path, arrays["adj_matrix"])
    rows = sparse_of_pickle(path, arrays["node_attr"]).dense()
    labels = require_ids(path, arrays["node_label"], MAX_CLASSES)
    n_nodes = len(rows)
    if adjacency.shape != (n_nodes, n_nodes) or len(labels) != n_nodes:
        found = f"{adjacency.shape} and {len(labels)} labels"
        raise DatasetError(str(path), f"edges and labels of {n_nodes} products", found)
    src, dst = undirected(adjacency.row_of_entry(), adjacency.indices.astype(np.int64), n_nodes)
    split = per_class_split(labels, split_seed, train=20, validation=30)
    return dataset_in_memory(
        Path(folder),
        {(NODE_TYPE, "bought_with", NODE_TYPE): (src, dst)},
        {NODE_TYPE: n_nodes},
        {NODE_TYPE: unit_rows(rows)},
        [task_of("category", NODE_TYPE, labels, int(labels.max()) + 1, split)],
    )
