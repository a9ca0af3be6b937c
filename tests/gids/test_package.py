"""What `import gids` gives, and what it does not import."""

from __future__ import annotations

import subprocess
import sys

import gids


def test_every_name_is_there() -> None:
    for name in gids.__all__:
        assert getattr(gids, name) is not None
    assert set(gids.__all__) <= set(dir(gids))


def test_importing_it_is_light() -> None:
    heavy = ["torch", "numba", "dgl", "torch_geometric", "cupy", "pandas"]
    script = f"import gids, sys; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
