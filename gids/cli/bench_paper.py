"""`gids bench paper`: the published comparison, made again; calls add up until all of its runs are made."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from gids.cli.bars import byte_bar
from gids.cli.options import write_json
from gids.cli.signals import terminated_as_interrupted

_HELP = "the published comparison of GIDS and memory maps: IGBH-small, and IGBH-full's regime"
_DESCRIPTION = (
    f"Makes {_HELP}. Each run is a file in the folder of runs, and the same command goes on with those that "
    "are missing, also on another machine that the folder was carried to."
)

#: Sizes of `--quick`: everything is made, and nothing of it is a measurement.
_QUICK = (
    *('data.folder="paper_quick"', 'data.store="paper_quick_store"', 'data.synth_scale="0.01"'),
    *("data.synth_dim=32", "model.hidden=8", "model.heads=2", "sampling.fanouts=[4, 3]"),
    *("sampling.batch_size=64", "bench.threads=1", "bench.tuned_threads=2", "bench.steps=3"),
)
_QUICK_REGIMES = ("small-cold", "full")
_QUICK_LOADERS = "gids,dgl-mmap-tuned"
_QUICK_OWN_BYTES = 3 * 2**30


def add_parser(kinds: Any) -> None:
    """Declare the command and its options."""
    parser = kinds.add_parser("paper", help=_HELP, description=_DESCRIPTION)
    parser.add_argument(
        "--config", default="configs/igbh_small.toml", metavar="C", help="(default %(default)s)"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="go over a value of the file"
    )
    parser.add_argument(
        "--data", help="folder that all data sets are below (default: $GIDS_DATA, else ./data)"
    )
    parser.add_argument(
        "--official",
        metavar="DIR",
        help="the official data set (its folder with processed/); a store is made of it",
    )
    parser.add_argument("--runs", default="runs/paper", metavar="DIR", help="folder of runs (runs/paper)")
    parser.add_argument("--out", metavar="DIR", help="write result files, tables, figures and a page there")
    parser.add_argument("--device", help="cpu, cuda or cuda:N (default: as configured)")
    parser.add_argument(
        "--regimes", nargs="+", metavar="R", help="small-cold, small-steady, full (default: all)"
    )
    parser.add_argument("--loaders", metavar="NAMES", help="only these, separated by commas")
    parser.add_argument("--steps", type=int, help="mini-batches of each run (default: as configured)")
    parser.add_argument("--repetitions", type=int, default=3, help="of each loader (default 3)")
    parser.add_argument(
        "--no-techniques", action="store_false", dest="techniques", help="do not turn each technique off"
    )
    parser.add_argument(
        "--run-seconds", type=int, default=120, help="a run stops after so long (default 120), 0: none does"
    )
    parser.add_argument(
        "--budget-s", type=float, default=float("inf"), help="begin no run that may end later than this"
    )
    parser.add_argument(
        "--own-memory", default="0", metavar="SIZE", help="of a limited process itself (default: measured)"
    )
    parser.add_argument("--again", action="store_true", help="make runs again that failed")
    parser.add_argument("--quick", action="store_true", help="tiny data, three steps: shows that it works")
    parser.set_defaults(kind=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry the command out; the exit status: 1 when a run failed, 3 when runs are left for another call."""
    from bam.config import parse_bytes
    from gids.bench.data import data_root
    from gids.bench.paper.folder import RunsFolder
    from gids.bench.paper.page import write_results
    from gids.bench.paper.regimes import planned_runs
    from gids.bench.paper.session import SessionSettings, run_session
    from gids.config import load_config

    config = load_config(arguments.config, [*_overrides(arguments), *arguments.set])
    root = data_root(arguments.data)
    quick = arguments.quick
    loaders = arguments.loaders or (_QUICK_LOADERS if quick else "")
    names = tuple(name.strip() for name in loaders.split(",") if name.strip())
    repetitions = 1 if quick else arguments.repetitions
    techniques = arguments.techniques and not quick
    runs = planned_runs(_regimes(arguments), repetitions, names, techniques)
    settings = SessionSettings(
        root=root,
        work=root / "paper_work",
        run_seconds=arguments.run_seconds,
        budget_s=arguments.budget_s,
        # Nothing is measured by --quick, so it need not find out how much a process takes.
        own_bytes=parse_bytes(arguments.own_memory, "--own-memory") or (_QUICK_OWN_BYTES if quick else 0),
        ceiling_seconds=0.1 if quick else 2.0,
        calibrate_seconds=0.5 if quick else 10.0,
    )
    folder = RunsFolder(arguments.runs, config)
    if arguments.again:
        folder.forget_failures(runs)
    with terminated_as_interrupted():
        end = run_session(config, folder, runs, settings, report=_say, progress=byte_bar)
    failed = [each for each in runs if "failed" in (folder.result(each) or {})]
    for path in write_results(config, folder, repetitions, arguments.out, write_json):
        print(path)
    print(f"{end.made} runs made, {end.left} left, {len(failed)} failed")
    return 3 if end.left else int(bool(failed))


def _say(line: str) -> None:
    print(line, flush=True)


def _overrides(arguments: argparse.Namespace) -> list[str]:
    given = list(_QUICK) if arguments.quick else []
    if arguments.device:
        given.append(f'loader.device="{arguments.device}"')
    if arguments.steps:
        given.append(f"bench.steps={arguments.steps}")
    if arguments.official:
        folder = Path(arguments.official).resolve()
        given += [f'data.folder="{folder}"', f'data.store="{folder.name}_store"', 'data.synth_scale=""']
    return given


def _regimes(arguments: argparse.Namespace) -> Any:
    """The regimes that were asked for.

    Raises
    ------
    ConfigError
    """
    from bam.config import parse_kind
    from gids.bench.paper.regimes import REGIMES, RegimeName

    names = arguments.regimes or (_QUICK_REGIMES if arguments.quick else [name.value for name in REGIMES])
    return tuple(REGIMES[parse_kind("--regimes", name, RegimeName)] for name in names)
