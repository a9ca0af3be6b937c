"""`gids prepare`, `train`, `bench e2e` and `report`, each once from a configuration file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gids.cli.main import main

CONFIG = """
[data]
folder = "igbh"
store = "store"
task = "19"
synth_scale = "0.005"
synth_dim = 8

[model]
hidden = 8
heads = 2

[sampling]
fanouts = [3, 2]
batch_size = 64

[training]
epochs = 2

[loader]
cache = "20%"
window = 2

[bench]
loaders = ["gids"]
steps = 2
threads = 1
"""


def _run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    status = main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return status, out, err


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "tiny.toml"
    file.write_text(CONFIG)
    return file


def test_from_a_configuration_to_a_report(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--config", config, "--data", tmp_path / "data"]
    status, out, err = _run(capsys, "prepare", *common)
    # No bars: standard error is not a terminal here.
    assert (status, err) == (0, "")
    assert out.splitlines() == [str(tmp_path / "data/igbh"), str(tmp_path / "data/store")]
    assert _run(capsys, "prepare", *common)[1] == "nothing to make\n"

    training = tmp_path / "results" / "train.json"
    options = ["--out", tmp_path / "run", "--json", training, "--set", "training.epochs=1"]
    status, out, err = _run(capsys, "train", *common, *options)
    assert (status, err) == (0, "")
    assert "epoch 0: validation accuracy" in out
    assert "test accuracy" in out
    assert json.loads(training.read_text())["steps"] == 5

    compared = tmp_path / "results" / "e2e.json"
    options = ["--steps", 3, "--no-train", "--cold", "--same-batches", "--loaders", "gids"]
    status, out, err = _run(capsys, "bench", "e2e", *common, *options, "--json", compared)
    assert (status, err) == (0, "")
    assert "gids: 3 steps, ms each" in out
    result = json.loads(compared.read_text())
    assert (result["loaders"]["gids"]["steps"], result["loaders"]["gids"]["losses"]) == (3, [])
    assert (result["cold"], result["config"]["bench"]["same_batches"]) == (True, True)

    page, text = tmp_path / "report.html", tmp_path / "report.md"
    status, out, err = _run(capsys, "report", training, compared, "--out", page, "--markdown", text)
    assert (status, err, out.splitlines()) == (0, "", [str(page), str(text)])
    assert "<svg" in page.read_text()
    assert "| tiny | gids |" in text.read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["prepare", "--set", "data.synth_scal=1"], "did you mean 'synth_scale'?"),
        (["train", "--loader", "dgl-map"], "did you mean 'dgl-mmap'?"),
        (["train", "--loader", "dgl-mmap-128k"], "did you mean 'dgl-mmap'?"),
        (["train"], "run `gids prepare --config ...`"),
        (["bench", "e2e", "--loaders", "gids,gds"], "did you mean 'gids'?"),
        (["bench", "e2e", "--memory-limit", "much"], "bench.memory_limit: expected a size"),
        (["bench", "e2e"], "run `gids prepare --config ...`"),
    ],
)
def test_mistakes_are_named_before_any_work(
    arguments: list[str],
    message: str,
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    status, out, err = _run(capsys, *arguments, "--config", config, "--data", tmp_path / "data")
    assert (status, out) == (1, "")
    assert message in err


def test_no_result_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = _run(capsys, "report", tmp_path / "none.json", "--out", tmp_path / "x.html")
    assert (status, "a result file" in err) == (1, True)
