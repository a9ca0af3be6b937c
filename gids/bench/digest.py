"""Fingerprints of mini-batches and of their features, equal exactly when every element is."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
import torch

from gids.sampling.block import SampledBatch


def batch_sha256(batch: SampledBatch) -> str:
    """Of its nodes and edges; not of the numbers it was keyed with."""
    digest = hashlib.sha256()
    for name in sorted(batch.nodes):
        digest.update(f"{name}:{len(batch.nodes[name])}:".encode())
        digest.update(_int64(batch.nodes[name]))
    for block in batch.blocks:
        for edge_type in sorted(block.edges):
            edges = block.edges[edge_type]
            counts = f"{block.num_src[edge_type.src]}:{block.num_dst[edge_type.dst]}:{edges.num_edges}:"
            digest.update(f"{edge_type}:{counts}".encode())
            digest.update(_int64(edges.indptr))
            digest.update(_int64(edges.indices))
    return digest.hexdigest()


def features_sha256(features: Mapping[str, torch.Tensor]) -> str:
    """Of the bytes, shapes and dtypes of all node types; a type without rows counts as one left out."""
    digest = hashlib.sha256()
    for name in sorted(features):
        rows = features[name].detach().cpu().contiguous()
        if len(rows):
            digest.update(f"{name}:{rows.dtype}:{tuple(rows.shape)}:".encode())
            digest.update(rows.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def joined_sha256(digests: Iterable[str]) -> str:
    """Of a sequence of fingerprints."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()


def _int64(values: np.ndarray[tuple[int], np.dtype[np.int64]]) -> memoryview:
    return np.ascontiguousarray(values, np.int64).data
