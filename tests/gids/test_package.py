"""What `import gids` gives, and what it does not import."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import gids


def test_every_name_is_there() -> None:
    for name in gids.__all__:
        assert getattr(gids, name) is not None
    assert set(gids.__all__) <= set(dir(gids))


#: Packages that a user need not have, or that take long to import.
OPTIONAL = ("dgl", "torch_geometric", "cupy", "pandas", "pyarrow", "kvikio")


def output_of(script: str) -> str:
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", script]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_importing_it_is_light() -> None:
    heavy = ("torch", "numba", "numpy", *OPTIONAL)
    assert output_of(f"import gids, sys; print([name for name in {heavy} if name in sys.modules])") == "[]"


def test_its_names_come_quickly_and_without_optional_packages() -> None:
    """Less than a second of the processor, however busy the machine; torch and numba are others'."""
    script = f"""
        import sys
        from time import process_time

        begin = process_time()
        import gids
        alone = process_time() - begin
        import numba, numpy, torch
        begin = process_time()
        for name in gids.__all__:
            getattr(gids, name)
        print(alone, process_time() - begin, *(name for name in {OPTIONAL} if name in sys.modules))
    """
    alone, every_name, *optional = output_of(textwrap.dedent(script)).split()
    assert not optional
    assert float(alone) < 0.3
    assert float(alone) + float(every_name) < 1
