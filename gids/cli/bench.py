"""`gids bench e2e`, `gids bench paper`, `gids bench ablation` and `gids bench sample`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gids.cli import bench_paper
from gids.cli.bars import count_bar
from gids.cli.options import add_config_arguments, write_json
from gids.cli.signals import terminated_as_interrupted
from gids.cli.text import table_text

NAME = "bench"
HELP = "compare loaders (e2e, paper), techniques (ablation) or samplers (sample) on the same work"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    kinds = parser.add_subparsers(metavar="KIND", required=True)
    e2e = kinds.add_parser("e2e", help="loaders: sampling, features, training", description=_E2E)
    add_config_arguments(e2e)
    e2e.add_argument("--loaders", metavar="NAMES", help="separated by commas (default: as configured)")
    e2e.add_argument("--steps", type=int, help="mini-batches of each loader")
    e2e.add_argument("--device", help="cpu, cuda or cuda:N (default: as configured)")
    e2e.add_argument("--memory-limit", metavar="SIZE", help="of each loader's process, page cache included")
    e2e.add_argument("--cold", action="store_true", default=None, help="begin with nothing in the page cache")
    e2e.add_argument(
        "--warm", action="store_true", default=None, help="deliver everything once before the clock starts"
    )
    e2e.add_argument("--no-train", action="store_false", dest="train", default=None, help="only load")
    e2e.add_argument(
        "--same-batches",
        action="store_true",
        default=None,
        help="record mini-batches and give every loader the same ones",
    )
    e2e.add_argument("--json", metavar="F", help="write the result file")
    e2e.set_defaults(kind=_run_e2e)
    ablation = kinds.add_parser(
        "ablation", help="each technique of the loader alone, and all", description=_E2E
    )
    add_config_arguments(ablation)
    ablation.add_argument("--steps", type=int, help="mini-batches of each variant")
    ablation.add_argument("--device", help="cpu, cuda or cuda:N (default: as configured)")
    ablation.add_argument("--memory-limit", metavar="SIZE", help="of each variant's process")
    ablation.add_argument(
        "--cold", action="store_true", default=None, help="nothing in the page cache at first"
    )
    ablation.add_argument("--no-train", action="store_false", dest="train", default=None, help="only load")
    ablation.add_argument("--json", metavar="F", help="write the result file")
    ablation.add_argument("--plot", metavar="F", help="write the figure (SVG)")
    ablation.set_defaults(kind=_run_ablation, loaders=None, warm=None, same_batches=None)
    bench_paper.add_parser(kinds)
    sample = kinds.add_parser("sample", help="sampled edges a second, beside DGL's sampler")
    sample.add_argument("dir", metavar="DIR", help="store or IGBH folder")
    sample.add_argument("--threads", type=int, default=0, help="of each sampler (default: one per CPU)")
    sample.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="cuda: the GPU's sampler, checked against the CPU's",
    )
    sample.add_argument(
        "--batch-sizes", type=int, nargs="+", metavar="N", help="seeds (default: 512; with cuda 512 4096)"
    )
    sample.add_argument("--steps", type=int, default=20, help="mini-batches of a round (default 20)")
    sample.add_argument("--rounds", type=int, default=5, help="the median one counts (default 5)")
    sample.add_argument("--json", metavar="F", help="write the result file")
    sample.set_defaults(kind=_run_sample)


_E2E = "Each loader runs in a process of its own, with the same model, seeds and settings."


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status: 1 when a loader failed."""
    status: int = arguments.kind(arguments)
    return status


def _run_e2e(arguments: argparse.Namespace) -> int:
    from gids.bench.data import data_root
    from gids.bench.e2e import run_e2e
    from gids.bench.report.tables import loaders_table
    from gids.config import load_config

    config = load_config(arguments.config, [*arguments.set, *_overrides(arguments)])
    # The disk's read-ahead and control groups are put back in any case.
    with terminated_as_interrupted():
        result = run_e2e(config, data_root(arguments.data), report=print, progress=count_bar)
    write_json(arguments.json, result)
    table = loaders_table(result)
    print(f"\n{table_text(table.heads, table.rows)}\n{table.note}")
    return 1 if any("failed" in each for each in result["loaders"].values()) else 0


def _run_ablation(arguments: argparse.Namespace) -> int:
    from gids.bench.ablation import ablation_plot, ablation_table, run_ablation
    from gids.bench.data import data_root
    from gids.config import load_config

    config = load_config(arguments.config, [*arguments.set, *_overrides(arguments)])
    with terminated_as_interrupted():
        result = run_ablation(config, data_root(arguments.data), report=print, progress=count_bar)
    write_json(arguments.json, result)
    if arguments.plot is not None:
        Path(arguments.plot).write_text(ablation_plot(result), encoding="utf-8")
    table = ablation_table(result)
    print(f"\n{table_text(table.heads, table.rows)}\n{table.note}")
    return 1 if any("failed" in each for each in result["loaders"].values()) else 0


def _overrides(arguments: argparse.Namespace) -> Iterator[str]:
    """Options of this command as values of the configuration."""
    if arguments.loaders is not None:
        names = ", ".join(f'"{name.strip()}"' for name in arguments.loaders.split(","))
        yield f"bench.loaders=[{names}]"
    if arguments.device is not None:
        yield f'loader.device="{arguments.device}"'
    if arguments.memory_limit is not None:
        yield f'bench.memory_limit="{arguments.memory_limit}"'
    for name in ("steps", "cold", "warm", "train", "same_batches"):
        value: Any = getattr(arguments, name)
        if value is not None:
            yield f"bench.{name}={str(value).lower()}"


def _run_sample(arguments: argparse.Namespace) -> int:
    from gids.bench.sample import CPU_SAMPLERS, CUDA_SAMPLERS, SampleBench, run_sample

    is_cuda = arguments.device == "cuda"
    bench = SampleBench(
        batch_sizes=tuple(arguments.batch_sizes or ((512, 4096) if is_cuda else (512,))),
        steps=arguments.steps,
        rounds=arguments.rounds,
        threads=arguments.threads,
        times_compilation=not is_cuda,
        samplers=CUDA_SAMPLERS if is_cuda else CPU_SAMPLERS,
    )
    result = run_sample(arguments.dir, bench)
    write_json(arguments.json, result)
    rows = [
        (
            str(measured["fanouts"]),
            str(measured["batch_size"]),
            name,
            f"{sampler['edges_per_s'] / 1e6:.1f}",
            f"{measured['ratios'].get(name, 1):.2f}",
        )
        for measured in result["fanouts"]
        for name, sampler in measured["samplers"].items()
    ]
    print(table_text(("fanouts", "seeds", "sampler", "M edges/s", "to DGL's"), rows))
    compiled = result["compile"]
    if compiled is None:
        return 0
    print(f"compiled in {compiled['first_s']:.1f} s, loaded again in {compiled['cached_s']:.2f} s")
    return 0
