"""What one relation says to its destination nodes.

Each convolution takes vectors of the sources, vectors of the destinations (the same nodes' own vectors), and
edges grouped by destination, and gives one vector for each destination. All destinations have an edge.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from gids.errors import PackageMissing
from gids.models.edges import CompactEdges


class MeanConvolution(nn.Module):
    """Linear map of the mean of the sources; R-GCN's (Schlichtkrull et al., ESWC 2018, eq. 2).

    Parameters
    ----------
    dim_in, dim_out : int
    own : bool
        Add a linear map of the destination itself: GraphSAGE's (Hamilton et al., NeurIPS 2017, mean
        aggregator).
    """

    def __init__(self, dim_in: int, dim_out: int, own: bool = False) -> None:
        super().__init__()
        self.neighbour = nn.Linear(dim_in, dim_out, bias=False)
        self.own = nn.Linear(dim_in, dim_out, bias=False) if own else None

    @property
    def uses_destinations(self) -> bool:
        """Whether `forward` needs the destinations' vectors."""
        return self.own is not None

    def forward(self, sources: Tensor, destinations: Tensor | None, edges: CompactEdges) -> Tensor:
        """One vector for each destination."""
        said: Tensor = self.neighbour(mean_of_sources(sources, edges))
        return said if self.own is None else said + self.own(destinations)


class AttentionConvolution(nn.Module):
    """PyG's GATConv (Velickovic et al., ICLR 2018) from sources to destinations; heads are concatenated.

    Parameters
    ----------
    dim_in, dim_out, heads : int
        Each head gives ``dim_out / heads`` elements.
    dropout : float
        Share of attention weights that are dropped.

    Raises
    ------
    PackageMissing
    """

    def __init__(self, dim_in: int, dim_out: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.attention = gat_conv()(
            dim_in, dim_out // heads, heads=heads, dropout=dropout, add_self_loops=False, bias=False
        )

    @property
    def uses_destinations(self) -> bool:
        """Whether `forward` needs the destinations' vectors."""
        return True

    def forward(self, sources: Tensor, destinations: Tensor, edges: CompactEdges) -> Tensor:
        """One vector for each destination."""
        said: Tensor = self.attention((sources, destinations), edges.edge_index())
        return said


def gat_conv() -> Any:
    """PyG's GATConv.

    Raises
    ------
    PackageMissing
    """
    try:
        from torch_geometric.nn import GATConv
    except ImportError as error:
        remedy = "pip install 'gids-bam[pyg]', or take the model 'rgcn' or 'sage'"
        raise PackageMissing("torch_geometric", "the model RGAT", remedy) from error
    return GATConv


def mean_of_sources(sources: Tensor, edges: CompactEdges) -> Tensor:
    """Mean of the source vectors of each destination.

    On a CPU a sparse product is four times as fast as gather and add, and holds no vector per edge. Both add
    in the order of the edges, so the result does not depend on the number of threads.
    """
    n_dst = len(edges.destinations)
    if sources.device.type == "cpu":
        ones = torch.ones(len(edges.indices), dtype=sources.dtype)
        matrix = _sparse_rows(edges, ones, (n_dst, len(sources)))
        mean: Tensor = torch.sparse.mm(matrix, sources, "mean")
        return mean
    source, destination = edges.edge_index()
    sums = sources.new_zeros(n_dst, sources.shape[1]).index_add(0, destination, sources[source])
    return sums / torch.diff(edges.indptr)[:, None]


def _sparse_rows(edges: CompactEdges, values: Tensor, shape: tuple[int, int]) -> Tensor:
    with warnings.catch_warnings():
        # torch calls its sparse rows a beta at first use, in every process.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(edges.indptr, edges.indices, values, shape, check_invariants=False)
