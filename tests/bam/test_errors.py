"""Errors cross processes with their fields."""

from __future__ import annotations

import copy
import errno
import pickle

import pytest

import bam
from bam import errors

EXAMPLES: list[errors.BamError] = [
    errors.ConfigError("page_bytes", 7, "a power of two"),
    errors.SourceError("/a", "rows", "nothing", errno.EMFILE),
    errors.StorageError("/a", 4096, 512, errno.EIO, page_id=8, note="check the disk"),
    errors.TruncatedFileError("/a", 4096, 512, errno.ENODATA),
    errors.FileChangedError("/a", 4096, 512, errno.ESTALE),
    errors.NvmeStatusError("/a", 4096, 512, errno.EIO, 0x281, "Unrecovered Read Error", "reset"),
    errors.DriveUnavailable("0000:01:00.0", "the IOMMU is off", "Switch it on"),
    errors.RowOutOfRange(2**70, 10, 3),
    errors.EngineUnavailable("uring", "refused", "Allow it"),
    errors.NativeLibraryMissing("uring"),
    errors.NativeFailure("bam_store_gather: surprise"),
    errors.ClosedError("array"),
    errors.WaitTimeout("bytes", 1.5, "Wait", file="/a", offset=4096, length=512, page_id=8),
    errors.ForkedError("engine"),
    errors.RowIndexTypeError("float64"),
]


def test_every_kind_has_an_example() -> None:
    kinds = {
        kind for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == "bam.errors"
    }
    assert {type(example) for example in EXAMPLES} == kinds - {bam.BamError}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_pickled_and_copied(example: errors.BamError) -> None:
    for found in (pickle.loads(pickle.dumps(example)), copy.copy(example)):
        assert type(found) is type(example)
        assert str(found) == str(example)
        assert vars(found) == vars(example)
        if isinstance(example, OSError):
            assert (found.errno, found.strerror, found.filename) == (example.errno, example.strerror, "/a")
