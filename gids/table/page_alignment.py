"""Record batches whose values begin at a page of the file, so that rows are read by aligned reads.

A batch's values follow its metadata, whose length is by chance; then every read of a row has to begin
before it and end after it. Metadata may hold text of anybody's own, and here that is as many blanks as it
takes. Of the columns of a batch all fixed-width ones are aligned when the rows fill pages exactly, as
65,536 do.

Source: Arrow columnar format, "IPC File Format": ``custom_metadata`` of a message.
"""

from __future__ import annotations

import io
from typing import Any

from gids.table.arrow_blocks import Block, batch_places
from gids.table.pyarrow_import import import_pyarrow

PAGE_BYTES = 4096
#: Batches with fewer bytes stay as they are: the blanks would be a good part of the file.
MIN_BATCH_BYTES = 16 * PAGE_BYTES
_KEY = "gids:page_alignment"


def padding(batch: Any, position: int | None) -> dict[str, str] | None:
    """Metadata to write a batch with; None: none is needed.

    Parameters
    ----------
    batch : pyarrow.RecordBatch
    position : int or None
        Where its message will begin in the file; None: right after the schema.
    """
    if batch.nbytes < MIN_BATCH_BYTES:
        return None
    # Metadata of any batch with rows is as long as that of one row.
    one = batch.slice(0, 1)
    plain = _place(one, "")
    begin = plain.message if position is None else position
    missing = -(begin + plain.body - plain.message) % PAGE_BYTES
    for n_blanks in range(max(0, missing - 8), missing + 9):
        place = _place(one, " " * n_blanks)
        if (begin + place.body - place.message) % PAGE_BYTES == 0:
            return {_KEY: " " * n_blanks}
    raise AssertionError(f"no metadata fills {missing} bytes")


def _place(batch: Any, text: str) -> Block:
    """Where the first batch of a file, and its values, begin."""
    sink, pa = io.BytesIO(), import_pyarrow()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch, custom_metadata={_KEY: text})
    return batch_places(memoryview(sink.getvalue()))[0]
