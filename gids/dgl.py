"""DGL's faces: `from gids.dgl import DataLoader` in the place of DGL's own."""

from gids.adapters.dgl_graph import dgl_graph_of, graph_of
from gids.adapters.dgl_loader import DataLoader
from gids.adapters.dgl_sampler import MultiLayerFullNeighborSampler, NeighborSampler

__all__ = ["DataLoader", "MultiLayerFullNeighborSampler", "NeighborSampler", "dgl_graph_of", "graph_of"]
