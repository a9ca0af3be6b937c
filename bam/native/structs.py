"""ctypes mirrors of the C structs that describe layouts (extent.h)."""

from __future__ import annotations

import ctypes

from bam.layout import Layout


class CExtent(ctypes.Structure):
    """`bam::Extent`."""

    _fields_ = [
        ("logical_offset", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("file_offset", ctypes.c_uint64),
        ("file", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    ]


class CLayout(ctypes.Structure):
    """`bam::Layout`.

    The extents belong to this object: keep it as long as C++ uses the layout, or have C++ copy them.
    """

    _fields_ = [
        ("extents", ctypes.POINTER(CExtent)),
        ("n_extents", ctypes.c_uint64),
        ("logical_bytes", ctypes.c_uint64),
        ("stripe_bytes", ctypes.c_uint64),
        ("n_files", ctypes.c_uint32),
    ]

    @classmethod
    def from_layout(cls, layout: Layout) -> CLayout:
        """The same layout for C++. `extents` is null exactly when it is striped."""
        found = cls()
        if not layout.stripe_bytes:
            # At least one element, so that an array without bytes has a table too.
            table = (CExtent * max(1, len(layout.extents)))()
            for entry, extent in zip(table, layout.extents, strict=False):
                entry.logical_offset, entry.length = extent.logical_offset, extent.length
                entry.file, entry.file_offset = extent.file, extent.file_offset
            # The field keeps the array alive: ctypes stores what a pointer field was set from.
            found.extents = table
        found.n_extents = len(layout.extents)
        found.logical_bytes = layout.logical_bytes
        found.stripe_bytes = layout.stripe_bytes
        found.n_files = len(layout.files)
        return found
