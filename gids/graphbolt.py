"""GraphBolt's face, where GraphBolt loads: a `Feature` whose rows stay in files."""

from gids.adapters.graphbolt_feature import Feature

__all__ = ["Feature"]
