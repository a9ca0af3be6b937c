"""Faces of other libraries over our stores, sampler and read-ahead: PyG, DGL, GraphBolt."""
