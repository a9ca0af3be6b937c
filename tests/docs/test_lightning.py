"""The tutorial's block for Lightning runs, where Lightning is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
_BLOCK = re.compile(r"^```python( lightning)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_lightning_trains_with_the_loader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("lightning", reason="Lightning is not installed: pip install lightning")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__main__"}
    blocks = _BLOCK.findall(TUTORIAL.read_text())
    assert [bool(mark) for mark, _ in blocks].count(True) == 1
    for mark, code in blocks:
        exec(compile(code, str(TUTORIAL), "exec"), names)
        if mark:
            break
