"""PyG's loader over memory maps, given mini-batches that were sampled already.

`torch_geometric.loader.NeighborLoader` is PyG's `NodeLoader` with a sampler of pyg-lib or torch-sparse, which
have no wheels on the usual index. So the `NodeLoader` runs here with a sampler that repeats mini-batches: how
rows are looked up is PyG's own code, and its sampling is left out as it is for the others.
"""

from __future__ import annotations

from typing import Any

import torch

from bam.errors import ConfigError
from gids.bench.loaders.base import LoaderData
from gids.bench.loaders.mapped import Rows, as_tensor, open_mapped
from gids.bench.loaders.plain import PlainLoader
from gids.config.sections import RunConfig
from gids.errors import PackageMissing
from gids.sampling.block import SampledBatch


class PygMmapLoader(PlainLoader):
    """`pyg-mmap`: `NodeLoader` over `HeteroData` whose ``x`` are `np.load(mmap_mode="r")`.

    Raises
    ------
    PackageMissing
        There is no PyG.
    """

    samples_with_dgl = False

    def __init__(self, data: LoaderData, config: RunConfig) -> None:
        super().__init__(data, config)
        pyg = _pyg()
        features = data.mapped_features
        self._tensors = {name: as_tensor(open_mapped(each), each.dtype) for name, each in features.items()}
        stored = pyg.data.HeteroData()
        for name, tensor in self._tensors.items():
            stored[name].x = tensor
        seeds = (data.task.node_type, torch.zeros(1, dtype=torch.int64))
        self._output = pyg.sampler.HeteroSamplerOutput
        self._loader = pyg.loader.NodeLoader(stored, _no_sampler(pyg), input_nodes=seeds)

    def rows(self, name: str, rows: Rows) -> torch.Tensor:
        return self._filtered({name: torch.from_numpy(rows)})[name]

    def gather(self, batch: SampledBatch) -> dict[str, torch.Tensor]:
        features = self.data.mapped_features
        return self._filtered(
            {name: torch.from_numpy(each.rows_of(batch.nodes[name])) for name, each in features.items()}
        )

    def _filtered(self, nodes: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the loader makes of a sampler's answer."""
        answer = self._output(
            node=dict(nodes), row={}, col={}, edge={}, metadata=(torch.zeros(1, dtype=torch.int64), None)
        )
        found = self._loader.filter_fn(answer)
        return {name: found[name].x for name in nodes}

    def describe(self) -> dict[str, Any]:
        loader = "torch_geometric.loader.NodeLoader over np.load(mmap_mode='r'), mini-batches given"
        return {"loader": loader, "copy": self.way.describe()}


def _no_sampler(pyg: Any) -> Any:
    """The loader wants a sampler; it is never asked, since mini-batches are given."""

    class Given(pyg.sampler.BaseSampler):  # type: ignore[misc]  # PyG has no types
        def sample_from_nodes(self, *_: Any, **__: Any) -> Any:
            raise ConfigError("sampler", "mini-batches that are given", "calls of `gather`")

        def sample_from_edges(self, *_: Any, **__: Any) -> Any:
            return self.sample_from_nodes()

    return Given()


def _pyg() -> Any:
    try:
        import torch_geometric
        import torch_geometric.loader
    except ImportError as error:
        raise PackageMissing("torch_geometric", "PyG's loader", "pip install 'gids-bam[pyg]'") from error
    return torch_geometric
