"""The sets that can be trained on, by the names that configurations use."""

from __future__ import annotations

import os
from collections.abc import Callable

from bam.errors import ConfigError
from gids.errors import did_you_mean
from gids.graph.dataset import Dataset
from gids.graph.real.acm import load_acm
from gids.graph.real.amazon_photo import load_amazon_photo
from gids.graph.real.debian import load_debian
from gids.graph.real.planetoid import load_planetoid
from gids.graph.real.umls import load_umls

#: Sets that were published with a split.
FIXED_SPLITS: dict[str, Callable[[str | os.PathLike[str]], Dataset]] = {
    "acm": load_acm,
    "cora": load_planetoid,
}
#: Sets that are split at random.
RANDOM_SPLITS: dict[str, Callable[..., Dataset]] = {
    "amazon_photo": load_amazon_photo,
    "debian": load_debian,
    "umls": load_umls,
}


def load_real(name: str, folder: str | os.PathLike[str], split_seed: int = 0) -> Dataset:
    """A real data set by name; `split_seed` matters to those that are split at random.

    Raises
    ------
    ConfigError
        There is no such set.
    DatasetError
        See the readers.
    """
    if name in RANDOM_SPLITS:
        return RANDOM_SPLITS[name](folder, split_seed=split_seed)
    if name not in FIXED_SPLITS:
        names = [*FIXED_SPLITS, *RANDOM_SPLITS]
        raise ConfigError("data.name", name, f"a data set; {did_you_mean(name, names)}")
    return FIXED_SPLITS[name](folder)
