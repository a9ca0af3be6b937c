"""What is known of the storage under a feature store, and the rules of reading that follow from it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from gids.fetch.calibration import Calibration, load_calibration
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
    """

    facts: SsdFacts = USUAL_SSD
    rules: ReadRules = field(default_factory=ReadRules)
    cost: CostModel | None = None
    source: str = "default"


def storage_model(
    folder: str | os.PathLike[str] | None,
    page_bytes: int,
    *,
    contiguous: bool = True,
    ssd: SsdFacts | None = None,
    calibration: Calibration | None = None,
) -> StorageModel:
    """The model of the storage under a data set.

    Parameters
    ----------
    folder : path, optional
        Of the data set, where `gids calibrate` left what it measured.
    page_bytes : int
    contiguous : bool
        Whether pages are merged into longer reads.
    ssd : SsdFacts, optional
        Go over those that were measured.
    calibration : Calibration, optional
        In place of the one in the folder.

    Raises
    ------
    DatasetError
        The calibration in the folder is damaged.
    """
    if calibration is None and folder is not None:
        calibration = load_calibration(folder)
    cost = None if calibration is None else calibration.cost_model()
    if not contiguous:
        rules = ReadRules.page_by_page(page_bytes)
    elif cost is None:
        rules = ReadRules(page_bytes, max(page_bytes, _UNMEASURED_MERGE_BYTES), 0)
    else:
        rules = ReadRules(page_bytes, cost.merge_bytes(page_bytes), cost.bridge_bytes(page_bytes))
    if ssd is not None:
        return StorageModel(ssd, rules, cost, "settings")
    if calibration is not None:
        return StorageModel(calibration.facts(page_bytes), rules, cost, "calibration")
    return StorageModel(USUAL_SSD, rules, None, "default")
