"""PyG's faces: `from gids.pyg import NeighborLoader` in the place of PyG's own."""

from gids.adapters.pyg_loader import NeighborLoader
from gids.adapters.pyg_sampler import Sampler
from gids.adapters.pyg_stores import StoreFeatures, StoreGraph, Stores, open_stores

__all__ = ["NeighborLoader", "Sampler", "StoreFeatures", "StoreGraph", "Stores", "open_stores"]
