"""ACM as HeCo publishes it (Wang et al., KDD 2021): papers, authors, subjects; three classes of papers.

Files: `p_feat.npz` and `a_feat.npz` (bags of words), `pa.txt` and `ps.txt` (who wrote a paper, what it is
about), `labels.npy`, and train / val / test ids for 20, 40 and 60 labelled papers a class.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from gids.errors import DatasetError
from gids.graph.dataset import Dataset
from gids.graph.real.in_memory import (
    dataset_in_memory,
    read_integers,
    require_disjoint,
    require_ids,
    task_of,
    unit_rows,
    with_reverse,
)
from gids.graph.real.pickles import load_npy, sparse_of_npz
from gids.graph.splits import Split

N_CLASSES = 3
LABELS_PER_CLASS = (20, 40, 60)


def load_acm(folder: str | os.PathLike[str]) -> Dataset:
    """ACM, with the tasks ``"20"``, ``"40"`` and ``"60"``, named after the labelled papers of each class.

    Relations: ``(paper, written_by, author)``, ``(paper, about, subject)`` and their reverses. A subject's
    feature is its one-hot number; rows of papers and authors are scaled to length 1.

    Raises
    ------
    DatasetError
        A file is missing or damaged, or the files do not fit together.
    """
    path = Path(folder)
    labels = require_ids(path / "labels.npy", load_npy(path / "labels.npy"), N_CLASSES)
    n_papers = len(labels)
    splits = {size: _split(path, size, n_papers) for size in LABELS_PER_CLASS}
    tasks = [task_of(str(size), "paper", labels, N_CLASSES, split) for size, split in splits.items()]
    written, about = read_integers(path / "pa.txt", 2), read_integers(path / "ps.txt", 2)
    papers, authors = (unit_rows(sparse_of_npz(path / name).dense()) for name in ("p_feat.npz", "a_feat.npz"))
    if len(papers) != n_papers:
        raise DatasetError(
            str(path / "p_feat.npz"), f"{n_papers} rows, as there are labels", f"{len(papers)}"
        )
    n_subjects = int(about[:, 1].max()) + 1
    for name, pairs, n_other in (("pa.txt", written, len(authors)), ("ps.txt", about, n_subjects)):
        for column, n in enumerate((n_papers, n_other)):
            require_ids(path / name, pairs[:, column], n)
    edges = {
        ("paper", "written_by", "author"): (written[:, 0], written[:, 1]),
        ("paper", "about", "subject"): (about[:, 0], about[:, 1]),
    }
    counts = {"paper": n_papers, "author": len(authors), "subject": n_subjects}
    features = {"paper": papers, "author": authors, "subject": np.eye(n_subjects, dtype=np.float32)}
    return dataset_in_memory(path, with_reverse(edges), counts, features, tasks)


def _split(path: Path, size: int, n_papers: int) -> Split:
    files = [path / f"{part}_{size}.npy" for part in ("train", "val", "test")]
    return require_disjoint(files[0], Split(*(require_ids(file, load_npy(file), n_papers) for file in files)))
