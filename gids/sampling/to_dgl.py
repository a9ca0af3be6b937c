"""Sampled mini-batches as DGL blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from gids.graph.schema import EdgeType
from gids.sampling.block import SampledBatch
from gids.sampling.dgl_import import import_dgl
from gids.sampling.tensor_batch import TensorBatch, TensorBlock, TensorEdges

DglBatch = tuple[Any, Any, list[Any]]
"""`(input_nodes, output_nodes, blocks)`."""


def to_dgl(
    batch: SampledBatch | TensorBatch,
    features: Mapping[str, torch.Tensor] | None = None,
    labels: Mapping[str, torch.Tensor] | None = None,
) -> DglBatch:
    """`(input_nodes, output_nodes, blocks)` as DGL's loader gives: mappings by node type, or a tensor each
    where the graph is homogeneous.

    Tensors share memory with the mini-batch and are where it is; for one on a GPU, DGL must be built with
    CUDA. `blocks[i].srcdata[dgl.NID]` and `dstdata[dgl.NID]` hold node
    ids, `edata[dgl.EID]` edge ids if they were sampled.

    Parameters
    ----------
    batch : SampledBatch or TensorBatch
    features : mapping of str to tensor, optional
        Rows of `batch.input_nodes`; they become `blocks[0].srcdata["feat"]`.
    labels : mapping of str to tensor, optional
        Of the seeds; they become `blocks[-1].dstdata["label"]`.

    Raises
    ------
    PackageMissing
        DGL is not installed.
    """
    dgl = import_dgl()
    tensors = TensorBatch.of(batch)
    blocks = [_block(dgl, tensors, layer, block) for layer, block in enumerate(tensors.blocks)]
    for node_type, rows in (features or {}).items():
        blocks[0].srcnodes[node_type].data["feat"] = rows
    for node_type, values in (labels or {}).items():
        blocks[-1].dstnodes[node_type].data["label"] = values
    ends = dict(tensors.input_nodes), dict(tensors.output_nodes)
    if batch.schema.is_homogeneous:
        return next(iter(ends[0].values())), next(iter(ends[1].values())), blocks
    return *ends, blocks


def _block(dgl: Any, batch: TensorBatch, layer: int, block: TensorBlock) -> Any:
    """One DGL block; sides and edges carry their ids.

    Put together as `dgl.create_block` does it, without its checks and the graph it makes for each relation,
    which take longer than sampling does.
    """
    convert, types = dgl.convert, list(batch.schema.node_types)
    relations = [_relation(dgl, block, edge_type, edges) for edge_type, edges in block.edges.items()]
    ends = [(types.index(each.src), len(types) + types.index(each.dst)) for each in block.edges]
    src, dst = [end[0] for end in ends], [end[1] for end in ends]
    metagraph = convert.graph_index.from_coo(2 * len(types), src, dst, True)
    counts = convert.utils.toindex([*block.num_src.values(), *block.num_dst.values()], "int64")
    whole = convert.heterograph_index.create_heterograph_from_relations(metagraph, relations, counts)
    converted = convert.DGLBlock(whole, (types, types), [each.rel for each in block.edges])
    for node_type, ids in batch.src_nodes(layer).items():
        converted.srcnodes[node_type].data[dgl.NID] = ids
    for node_type, ids in batch.dst_nodes(layer).items():
        converted.dstnodes[node_type].data[dgl.NID] = ids
    for edge_type, edges in block.edges.items():
        if edges.edge_ids is not None:
            converted.edges[tuple(edge_type)].data[dgl.EID] = edges.edge_ids
    return converted


def _relation(dgl: Any, block: TensorBlock, edge_type: EdgeType, edges: TensorEdges) -> Any:
    # Without edge ids of their own, aggregation over a block made from CSC fails on a CPU.
    positions = torch.arange(edges.num_edges, device=edges.indices.device)
    return dgl.convert.heterograph_index.create_unitgraph_from_csr(
        2,
        block.num_src[edge_type.src],
        block.num_dst[edge_type.dst],
        *(edges.indptr, edges.indices, positions),
        ["coo", "csr", "csc"],
        True,
    )
