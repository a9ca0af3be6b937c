"""A heterogeneous graph in, a trained RGAT model and a report out. Run by `make demo`.

A synthetic graph with IGBH's layout is written and converted; then the same training runs through the gids
loader and through memory maps, on the same mini-batches from cold files. Each step is a command that can be
repeated by hand; this program only runs them in turn.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent


def main() -> int:
    """Run the commands; the exit status of the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", default=str(REPOSITORY / "configs" / "demo.toml"))
    parser.add_argument(
        "--out", default="build/demo", help="folder for data and results (default build/demo)"
    )
    options = parser.parse_args()
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    common = ["--config", options.config, "--data", str(out / "data")]
    results = [str(out / f"{name}.json") for name in ("e2e", "train-gids", "train-dgl-mmap")]
    begin = time.monotonic()
    for command in (
        ["prepare", *common],
        ["bench", "e2e", *common, "--same-batches", "--cold", "--json", results[0]],
        ["train", *common, "--out", str(out / "run-gids"), "--json", results[1]],
        [
            *("train", *common, "--loader", "dgl-mmap", "--same-batches"),
            *("--out", str(out / "run-dgl-mmap"), "--json", results[2]),
        ],
        ["report", *results, "--out", "report.html"],
    ):
        status = run(command)
        if status:
            return status
    losses = [(out / f"run-{name}" / "losses.bin").read_bytes() for name in ("gids", "dgl-mmap")]
    equal = losses[0] == losses[1]
    print(f"\nLosses through both loaders are {'equal, bit for bit' if equal else 'NOT equal'}.")
    print(f"{time.monotonic() - begin:.0f} s; the report is in {Path('report.html').resolve()}")
    return 0 if equal else 1


def run(arguments: list[str]) -> int:
    """One `gids` command, shown as it would be typed."""
    print(f"\n$ gids {shlex.join(arguments)}", flush=True)
    environment = {**os.environ, "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE")}
    command = [sys.executable, "-m", "gids.cli.main", *arguments]
    return subprocess.run(command, check=False, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
