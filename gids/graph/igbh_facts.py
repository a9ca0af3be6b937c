"""Facts published about the IGB heterogeneous data sets (IGBH): counts, names, labelled papers.

Sources: the IGB paper (Khatua et al., KDD 2023, doi 10.1145/3580305.3599843), the IGB-Datasets repository's
loaders and issues 56 and 57 (labelled papers), and the MLPerf training reference
(graph_neural_network/split_seeds.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gids.graph.schema import EdgeType

#: The node type that is classified.
LABELLED_TYPE = "paper"
#: Label files, by number of classes.
LABEL_FILES = {19: "node_label_19.npy", 2983: "node_label_2K.npy"}
#: Features of every published node type.
PUBLISHED_DIM = 1024

#: The folder with one folder per node type and per relation, and the files in those.
PROCESSED = "processed"
FEATURE_FILE = "node_feat.npy"
EDGE_FILE = "edge_index.npy"

#: The edge folders that every size has.
REQUIRED_RELATIONS = (
    EdgeType("paper", "cites", "paper"),
    EdgeType("paper", "written_by", "author"),
    EdgeType("author", "affiliated_to", "institute"),
    EdgeType("paper", "topic", "fos"),
)
#: Folders that only some sizes have.
OPTIONAL_RELATIONS = (
    EdgeType("paper", "published", "journal"),
    EdgeType("paper", "venue", "conference"),
)


class IgbhSize(Enum):
    """The published sizes."""

    TINY = "tiny"
    SMALL = "small"
    MEDIUM = "medium"
    LARGE = "large"
    FULL = "full"


@dataclass(frozen=True)
class SizeFacts:
    """What is published about one size.

    Attributes
    ----------
    nodes : dict of str to int
        Node counts by type.
    edges : dict of str to int
        Edge counts by relation; those of ``published`` and ``venue`` are not published.
    headerless_types : frozenset of str
        Types whose ``node_feat.npy`` is raw float32 without an npy header. (The reader looks at the content.)
    """

    nodes: dict[str, int]
    edges: dict[str, int]
    headerless_types: frozenset[str] = frozenset()


_FULL_PAPERS = 269_346_174
_FULL_LABELLED = {19: 227_130_858, 2983: 153_383_374}
# MLPerf's reference takes 157,675,969 papers as labelled; those from 153,383,374 on are padding zeros.
_FULL_MLPERF = {19: 227_130_858, 2983: 157_675_969}
_RAW_TYPES = frozenset({"paper", "author"})


def _nodes(
    paper: int, author: int, fos: int, institute: int, journal: int, conference: int
) -> dict[str, int]:
    return {
        "paper": paper,
        "author": author,
        "institute": institute,
        "fos": fos,
        "journal": journal,
        "conference": conference,
    }


def _edges(cites: int, written_by: int, affiliated_to: int, topic: int) -> dict[str, int]:
    return {"cites": cites, "written_by": written_by, "affiliated_to": affiliated_to, "topic": topic}


PUBLISHED: dict[IgbhSize, SizeFacts] = {
    IgbhSize.TINY: SizeFacts(
        _nodes(100_000, 357_041, 84_220, 8_738, 8_101, 398), _edges(447_416, 471_443, 325_410, 718_445)
    ),
    IgbhSize.SMALL: SizeFacts(
        _nodes(1_000_000, 1_926_066, 190_449, 14_751, 15_277, 1_215),
        _edges(12_070_502, 4_553_516, 1_630_476, 7_234_122),
    ),
    IgbhSize.MEDIUM: SizeFacts(
        _nodes(10_000_000, 15_544_654, 415_054, 23_256, 37_565, 4_189),
        _edges(120_077_694, 39_854_592, 11_049_412, 68_510_495),
    ),
    IgbhSize.LARGE: SizeFacts(
        _nodes(100_000_000, 116_959_896, 649_707, 26_524, 48_820, 4_490),
        _edges(1_223_571_364, 289_502_107, 34_099_660, 457_577_294),
        _RAW_TYPES,
    ),
    IgbhSize.FULL: SizeFacts(
        _nodes(_FULL_PAPERS, 277_220_883, 712_960, 26_918, 49_052, 4_547),
        _edges(3_996_442_004, 716_761_549, 48_521_486, 1_050_280_600),
        _RAW_TYPES,
    ),
}


def labelled_papers(n_papers: int, n_classes: int) -> int:
    """Papers 0 … n-1 have labels; in the full set the rest of a label file is padding."""
    return _FULL_LABELLED[n_classes] if n_papers == _FULL_PAPERS else n_papers


def mlperf_papers(n_papers: int, n_classes: int) -> int:
    """Papers 0 … n-1 are what MLPerf's split permutes."""
    return _FULL_MLPERF[n_classes] if n_papers == _FULL_PAPERS else n_papers
