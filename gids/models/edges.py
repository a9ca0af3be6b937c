"""A block's edges as tensors, with the nodes that have no edge of the relation left out.

A relation touches few of a block's nodes, and a convolution's cost grows with all nodes it is given. So each
convolution sees the touched ones only, numbered anew: with 44 relations that is most of the work saved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from gids.sampling.block import BlockEdges


@dataclass(frozen=True, eq=False)
class CompactEdges:
    """Edges of one relation between the nodes that have any, grouped by destination.

    Attributes
    ----------
    sources, destinations : int64 tensors
        Local ids, in the block, of the nodes that have edges; rising.
    indptr : int64 tensor, shape (len(destinations) + 1,)
    indices : int64 tensor, shape (n_edges,)
        Positions in `sources`.
    """

    sources: torch.Tensor
    destinations: torch.Tensor
    indptr: torch.Tensor
    indices: torch.Tensor

    def edge_index(self) -> torch.Tensor:
        """Position in `sources` and in `destinations` of the ends of each edge: PyG's form, (2, n_edges)."""
        counts = torch.diff(self.indptr)
        places = torch.arange(len(counts), device=counts.device)
        return torch.stack([self.indices, torch.repeat_interleave(places, counts)])


def compact(edges: BlockEdges, num_src: int, device: torch.device | str = "cpu") -> CompactEdges:
    """Leave out nodes without edges; the edges keep their order.

    Parameters
    ----------
    edges : BlockEdges
    num_src : int
        Source nodes of the block.
    device : device
    """
    degrees = np.diff(edges.indptr)
    destinations = np.flatnonzero(degrees)
    indptr = np.concatenate([edges.indptr[:1], edges.indptr[destinations + 1]])
    touched = np.zeros(num_src, np.bool_)
    touched[edges.indices] = True
    sources = np.flatnonzero(touched)
    place = np.empty(num_src, np.int64)
    place[sources] = np.arange(len(sources))
    arrays: tuple[npt.NDArray[np.int64], ...] = (sources, destinations, indptr, place[edges.indices])
    return CompactEdges(*(torch.from_numpy(array).to(device) for array in arrays))
