"""Scripts for PyG and DGL, each changed in the one import line that is marked.

With the sampler they had, mini-batches are the same; with ours, accuracy is the same within noise.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from gids.errors import PackageMissing
from gids.sampling.dgl_import import import_dgl

EXAMPLES = Path(__file__).parents[3] / "examples"
SEEDS = range(4)
CHANCE = 0.25
#: Accuracy of one seed differs by about 0.02 from that of another.
NOISE = 0.04

_MARKED = re.compile(r"^# with gids: (.*)\nfrom .*$", re.MULTILINE)

Run = Callable[..., tuple[float, str]]


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """With several threads DGL's sampler does not repeat itself."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def script(name: str, imports: str = "") -> Run:
    """The function `run` of a script; `imports` takes the place of the marked import."""
    text = (EXAMPLES / name).read_text()
    changed, count = _MARKED.subn(imports or r"\g<0>", text)
    assert count == 1
    names: dict[str, Any] = {"__name__": name}
    exec(compile(changed, name, "exec"), names)
    run: Run = names["run"]
    return run


def marked(name: str) -> str:
    """The import that the mark names."""
    found = _MARKED.search((EXAMPLES / name).read_text())
    assert found is not None
    return found[1]


def accuracies(run: Run) -> list[float]:
    return [run(seed)[0] for seed in SEEDS]


def assert_alike(ours: list[float], theirs: list[float]) -> None:
    assert min(theirs) > 2 * CHANCE, "the graph teaches nothing"
    assert abs(statistics.mean(ours) - statistics.mean(theirs)) < NOISE


@pytest.fixture(scope="module")
def dgl() -> Any:
    try:
        return import_dgl()
    except PackageMissing as missing:
        pytest.skip(str(missing))


def test_dgl_script_with_dgls_sampler(dgl: Any) -> None:
    theirs = script("dgl_training.py")(7)
    ours = script(
        "dgl_training.py", "from dgl.dataloading import NeighborSampler; from gids.dgl import DataLoader"
    )(7)
    assert ours == theirs
    assert script("dgl_training.py")(8)[1] != theirs[1]


def test_dgl_script_with_our_sampler(dgl: Any) -> None:
    changed = script("dgl_training.py", marked("dgl_training.py"))
    assert_alike(accuracies(changed), accuracies(script("dgl_training.py")))
    assert changed(7)[1] != script("dgl_training.py")(7)[1], "it is another sampler"


@pytest.fixture(scope="module")
def pyg() -> Any:
    return pytest.importorskip("torch_geometric", reason="PyG is not installed: pip install 'gids-bam[pyg]'")


def require_pygs_sampler(pyg: Any) -> None:
    if not (pyg.typing.WITH_PYG_LIB or pyg.typing.WITH_TORCH_SPARSE):
        pytest.skip("PyG's NeighborLoader needs pyg-lib or torch-sparse")


def test_pyg_script_with_our_sampler(pyg: Any) -> None:
    """Without PyG's sampler there is no script of theirs that runs; ours learns what the graph teaches."""
    found = accuracies(script("pyg_training.py", marked("pyg_training.py")))
    assert min(found) > 2 * CHANCE
    assert max(found) - min(found) < 2 * NOISE


def test_pyg_script_is_as_accurate_as_before(pyg: Any) -> None:
    require_pygs_sampler(pyg)
    changed = script("pyg_training.py", marked("pyg_training.py"))
    assert_alike(accuracies(changed), accuracies(script("pyg_training.py")))


def test_pyg_script_with_pygs_sampler(pyg: Any) -> None:
    require_pygs_sampler(pyg)

    def run(imports: str) -> tuple[float, str]:
        found = script("pyg_training.py", imports)
        torch.manual_seed(7)
        data = found.__globals__["make_data"]()  # type: ignore[attr-defined]
        return found(7, sampler=pyg.sampler.NeighborSampler(data, [8, 4]))

    assert run(marked("pyg_training.py")) == run("")
