"""``gids convert``: make a store of a data set."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bam.errors import ConfigError
from gids.cli.bars import byte_bar, count_bar
from gids.cli.text import size_text
from gids.formats.convert import convert_dataset
from gids.formats.detect import NAMES, detect_format, format_named
from gids.formats.edge_lists import EdgeListFormat
from gids.formats.format import RelationOptions
from gids.graph.convert import DEFAULT_MEMORY, convert_igbh
from gids.graph.convert_options import ConvertOptions, Reorder
from gids.graph.feature_build import NonFinite
from gids.graph.feature_types import FeatureDtype
from gids.graph.igbh import is_igbh
from gids.graph.manifest import read_manifest
from gids.graph.relations import GraphOptions
from gids.graph.store import store_bytes
from gids.table.write import BATCH_ROWS, convert_table

NAME = "convert"
HELP = "make a store of a data set: CSC graph, page-aligned features, checksums; or an Arrow file of a table"
DTYPES = ("float32", "float16", "bfloat16", "int8")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "kind",
        choices=["auto", "igbh", *NAMES, "table"],
        help="layout of a data set (auto: find out), or a table of Parquet, Arrow or CSV files",
    )
    parser.add_argument(
        "src", metavar="SRC", help="folder or file of the data set (docs/data_sets.md), or of the table"
    )
    parser.add_argument("dst", metavar="DST", help="folder to make; of a table the Arrow file")
    parser.add_argument(
        "--dtype",
        choices=DTYPES,
        help="of stored features (default float32; float16 where all features of a set other than IGBH are)",
    )
    parser.add_argument(
        "--reorder",
        choices=[each.value for each in Reorder],
        default="hot",
        help="order of feature rows (default hot: the most asked for first); node ids stay as they are",
    )
    parser.add_argument(
        "--memory", default=DEFAULT_MEMORY, help=f"bound on top of about 200 MB (default {DEFAULT_MEMORY})"
    )
    parser.add_argument(
        "--non-finite",
        choices=[each.value for each in NonFinite],
        default="error",
        help="refuse NaN and infinite features (default), or keep and count them",
    )
    parser.add_argument(
        "--symmetric-cites", action="store_true", help="citations go both ways, as in MLPerf's reference"
    )
    parser.add_argument(
        "--reverse",
        action=argparse.BooleanOptionalAction,
        help="add rev_<relation> to relations between two node types (default: as the set's own loaders)",
    )
    parser.add_argument(
        "--symmetric", type=names, metavar="REL", help="relations, with commas, that are to go both ways"
    )
    parser.add_argument("--src-column", default="src", help="of a single file of edges (default src)")
    parser.add_argument("--dst-column", default="dst", help="of a single file of edges (default dst)")
    parser.add_argument(
        "--overwrite", action="store_true", help="replace another store at DST, once complete"
    )
    parser.add_argument("--workers", type=int, help="threads (default: two per CPU)")
    parser.add_argument("--columns", type=names, help="of a table: which, with commas (default all)")
    parser.add_argument(
        "--stats", type=names, default=[], help="of a table: columns that get min/max statistics per batch"
    )
    parser.add_argument(
        "--batch-rows", type=int, default=BATCH_ROWS, help=f"rows of a record batch (default {BATCH_ROWS})"
    )


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status."""
    if arguments.kind == "table":
        return _run_table(arguments)
    if arguments.kind == "igbh" or (arguments.kind == "auto" and is_igbh(arguments.src)):
        return _run_igbh(arguments)
    return _run_format(arguments)


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _run_table(arguments: argparse.Namespace) -> int:
    begin = time.monotonic()
    rows = convert_table(
        arguments.src,
        arguments.dst,
        columns=arguments.columns,
        stats=arguments.stats,
        batch_rows=arguments.batch_rows,
        progress=count_bar,
    )
    print(f"{arguments.dst}: {rows:,} rows, {time.monotonic() - begin:.1f} s")
    return 0


def _run_igbh(arguments: argparse.Namespace) -> int:
    if arguments.reverse is not None or arguments.symmetric:
        raise ConfigError("--reverse, --symmetric", arguments.symmetric, "for IGBH --symmetric-cites alone")
    begin = time.monotonic()
    store = convert_igbh(
        arguments.src,
        arguments.dst,
        _options(arguments, GraphOptions(symmetric_cites=arguments.symmetric_cites)),
        memory_bytes=arguments.memory,
        workers=arguments.workers,
        overwrite=arguments.overwrite,
        progress=byte_bar,
    )
    return _report(store, begin)


def _run_format(arguments: argparse.Namespace) -> int:
    path = Path(arguments.src)
    layout = detect_format(path) if arguments.kind == "auto" else format_named(arguments.kind)
    if isinstance(layout, EdgeListFormat):
        layout = EdgeListFormat(arguments.src_column, arguments.dst_column)
    own = layout.relations
    relations = RelationOptions(
        own.reverse if arguments.reverse is None else arguments.reverse,
        own.symmetric if arguments.symmetric is None else tuple(arguments.symmetric),
    )
    begin = time.monotonic()
    store = convert_dataset(
        path,
        arguments.dst,
        layout,
        _options(arguments, GraphOptions()),
        keep_half=arguments.dtype is None,
        relations=relations,
        memory_bytes=arguments.memory,
        workers=arguments.workers,
        overwrite=arguments.overwrite,
        progress=byte_bar,
    )
    return _report(store, begin)


def _options(arguments: argparse.Namespace, graph: GraphOptions) -> ConvertOptions:
    return ConvertOptions(
        dtype=FeatureDtype(arguments.dtype or "float32"),
        reorder=Reorder(arguments.reorder),
        graph=graph,
        non_finite=NonFinite(arguments.non_finite),
    )


def _report(store: Path, begin: float) -> int:
    manifest = read_manifest(store)
    print(f"{store}: {size_text(store_bytes(manifest))}, {time.monotonic() - begin:.1f} s")
    for record in manifest.features:
        if record.n_non_finite:
            print(f"{record.node_type}: {record.n_non_finite:,} NaN or infinite elements were kept")
    return 0
