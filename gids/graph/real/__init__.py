"""Readers of real, published data sets, one module each: folders as published in, a `Dataset` out.

They are small enough to live in memory. Each module names its source; licences are stated with the data.
"""

from __future__ import annotations

from gids.graph.real.acm import load_acm
from gids.graph.real.amazon_photo import load_amazon_photo
from gids.graph.real.arxiv import ArxivParts, load_arxiv_parts
from gids.graph.real.debian import load_debian
from gids.graph.real.planetoid import load_planetoid
from gids.graph.real.reddit_trace import load_reddit_trace
from gids.graph.real.umls import load_umls

__all__ = [
    "ArxivParts",
    "load_acm",
    "load_amazon_photo",
    "load_arxiv_parts",
    "load_debian",
    "load_planetoid",
    "load_reddit_trace",
    "load_umls",
]
