"""Settings of a conversion."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from bam.config import parse_kind
from bam.errors import ConfigError
from gids.graph.feature_build import NonFinite
from gids.graph.feature_types import FeatureDtype
from gids.graph.relations import GraphOptions


class Reorder(Enum):
    """In which order feature rows are stored: the hottest first, or as they are."""

    HOT = "hot"
    NONE = "none"


@dataclass(frozen=True)
class ConvertOptions:
    """How a data set is converted.

    Attributes
    ----------
    dtype : FeatureDtype
        Of stored features.
    reorder : Reorder
    graph : GraphOptions
    non_finite : NonFinite
        What to do with NaN and infinite features.
    features_in_place : bool
        Build the graph only, and let features stay where they are; then dtype and reorder do not apply.

    Raises
    ------
    ConfigError
        Settings that contradict each other.
    """

    dtype: FeatureDtype = FeatureDtype.FLOAT32
    reorder: Reorder = Reorder.HOT
    graph: GraphOptions = field(default_factory=GraphOptions)
    non_finite: NonFinite = NonFinite.ERROR
    features_in_place: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", parse_kind("dtype", self.dtype, FeatureDtype))
        object.__setattr__(self, "reorder", parse_kind("reorder", self.reorder, Reorder))
        object.__setattr__(self, "non_finite", parse_kind("non_finite", self.non_finite, NonFinite))
        if self.dtype is FeatureDtype.INT8 and self.non_finite is NonFinite.KEEP:
            raise ConfigError("non_finite", "keep", "'error' with dtype int8, which has no NaN")

    def table(self) -> dict[str, Any]:
        """As plain values."""
        return {
            "dtype": self.dtype.value,
            "reorder": self.reorder.value,
            "non_finite": self.non_finite.value,
            "features_in_place": self.features_in_place,
            **vars(self.graph),
        }
