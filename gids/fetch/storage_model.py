"""What is known of the storage under a feature store, and the rules of reading that follow from it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from bam.storage.bulk.settings import BulkSettings, Destination
from gids.fetch.calibration import load_calibration
from gids.fetch.cost_model import CostModel
from gids.fetch.device_model import USUAL_SSD, SsdFacts
from gids.fetch.read_plan import ReadRules

#: Longest read where costs were never measured.
_UNMEASURED_MERGE_BYTES = 65536


@dataclass(frozen=True)
class StorageModel:
    """How features are read, and what their storage can do.

    Attributes
    ----------
    facts : SsdFacts
    rules : ReadRules
    cost : CostModel, optional
        None: reads were never measured, and only pages that follow each other are merged.
    source : str
        Where the facts are from: ``calibration``, ``settings`` or ``default``.
    bulk : mapping of Destination to BulkSettings
        What was measured to be best for bulk reads into that memory.
    """

    facts: SsdFacts = USUAL_SSD
    rules: ReadRules = field(default_factory=ReadRules)
    cost: CostModel | None = None
    source: str = "default"
    bulk: Mapping[Destination, BulkSettings] = field(default_factory=dict)


def storage_model(
    data: str | os.PathLike[str] | None,
    page_bytes: int,
    *,
    contiguous: bool = True,
    ssd: SsdFacts | None = None,
    calibration: str | os.PathLike[str] = "",
) -> StorageModel:
    """The model of the storage under a data set.

    Parameters
    ----------
    data : path, optional
        Folder of the data set, where `gids calibrate` left what it measured.
    page_bytes : int
    contiguous : bool
        Whether pages are merged into longer reads.
    ssd : SsdFacts, optional
        Go over those that were measured.
    calibration : path, optional
        Another folder where it left that.

    Raises
    ------
    DatasetError
        The calibration in the folder is damaged.
    """
    folder = calibration or data
    measured = None if folder is None else load_calibration(folder, data)
    cost = None if measured is None else measured.cost_model()
    if not contiguous:
        rules = ReadRules.page_by_page(page_bytes)
    elif cost is None:
        rules = ReadRules(page_bytes, max(page_bytes, _UNMEASURED_MERGE_BYTES), 0)
    else:
        rules = ReadRules(page_bytes, cost.merge_bytes(page_bytes), cost.bridge_bytes(page_bytes))
    bulk = {} if measured is None else measured.bulk_settings()
    if ssd is not None:
        return StorageModel(ssd, rules, cost, "settings", bulk)
    if measured is not None:
        return StorageModel(measured.facts(page_bytes), rules, cost, "calibration", bulk)
    return StorageModel(USUAL_SSD, rules, None, "default")
