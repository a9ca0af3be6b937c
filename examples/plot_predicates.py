"""What a condition on an Arrow table reads: bytes, and record batches that their min/max statistics exclude.

    python examples/plot_predicates.py [--rows N] [--out predicates.svg]

The same rows are written twice, in order of time and shuffled: statistics help as far as near rows are alike.
Needs pyarrow (`gids-bam[arrow]`).
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

import gids
from gids.figures.svg import Line, lines
from gids.figures.svg_file import Panel, svg_file
from gids.table.write import write_arrow

FIRST_YEAR, N_YEARS, N_BATCHES, DIM = 2000, 20, 40, 8
X_NAME = "rows that match `year >= …`, %"


def write_papers(file, years):
    """A feature and a year for each paper, in `N_BATCHES` record batches with statistics of the year."""
    random = np.random.default_rng(0)
    schema = pa.schema([("feat", pa.list_(pa.float32(), DIM)), ("year", pa.int64())])

    def batch(part):
        rows = random.standard_normal(len(part) * DIM, dtype=np.float32)
        return pa.record_batch([pa.FixedSizeListArray.from_arrays(rows, DIM), pa.array(part)], schema=schema)

    write_arrow(file, schema, (batch(part) for part in np.array_split(years, N_BATCHES)), stats=["year"])


def draw(n_rows=400_000, out="predicates.svg"):
    """What each condition read of each file, in order of the conditions; drawn into `out`."""
    random = np.random.default_rng(1)
    in_order = np.sort(random.integers(FIRST_YEAR, FIRST_YEAR + N_YEARS, n_rows))
    orders = {"rows in order of the year": in_order, "shuffled rows": random.permutation(in_order)}
    firsts = range(FIRST_YEAR, FIRST_YEAR + N_YEARS + 1, 2)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, years in orders.items():
            file = Path(folder) / "papers.arrow"
            write_papers(file, years)
            with gids.open_table(file) as table:
                found[name] = [table.where(f"year >= {first}") for first in firsts]
            for first, selection in zip(firsts, found[name], strict=True):
                assert len(selection.rows) == (years >= first).sum()
            print(f"{name}: {found[name][len(firsts) // 2]}")

    def curves(value):
        return [
            Line(name, [100 * len(each.rows) / n_rows for each in chosen], [value(each) for each in chosen])
            for name, chosen in found.items()
        ]

    read = lines(curves(lambda each: each.bytes_read), X_NAME, "bytes", "Bytes read")
    skipped = lines(curves(lambda each: each.batches_skipped), X_NAME, "record batches", "Batches skipped")
    panels = [
        Panel("Bytes read to find the rows", list(found), read),
        Panel(f"Record batches skipped, of {N_BATCHES}", list(found), skipped),
    ]
    Path(out).write_text(svg_file(panels))
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000)
    parser.add_argument("--out", default="predicates.svg")
    options = parser.parse_args()
    draw(options.rows, options.out)
    print(f"figures: {options.out}")
