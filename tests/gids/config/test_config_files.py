"""Configuration files: what is in the repository loads; every mistake is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from gids.config import as_table, load_config, run_config
from gids.errors import ConfigFileError

CONFIGS = Path(__file__).resolve().parents[3] / "configs"
MINIMAL = '[data]\nfolder = "here"\ntask = "19"\n'


@pytest.fixture
def minimal(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text(MINIMAL)
    return file


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.toml")), ids=lambda file: file.stem)
def test_every_config_loads_and_comes_back_from_its_table(file: Path) -> None:
    config = load_config(file)
    assert config.name == file.stem
    assert run_config(as_table(config)) == config
    assert len(config.sampling.fanouts) == config.model.layers


def test_the_published_settings() -> None:
    full = load_config(CONFIGS / "igbh_full.toml")
    assert (full.sampling.batch_size, full.model.layers, full.model.name.value) == (512, 2, "rgat")
    assert full.sampling.fanouts == (10, 5)
    assert (full.loader.cache, full.loader.cpu_buffer) == ("8GB", "20%")
    mlperf = load_config(CONFIGS / "igbh_full_mlperf.toml")
    # Its reference begins with 15 at the seeds, which here is the last layer.
    assert (mlperf.sampling.fanouts, mlperf.sampling.batch_size) == ((5, 10, 15), 1024)
    assert (mlperf.data.task, mlperf.data.split) == ("2983", "mlperf")
    assert (mlperf.model.hidden, mlperf.model.heads) == (512, 4)


def test_defaults_and_name(minimal: Path) -> None:
    config = load_config(minimal)
    assert (config.name, config.loader.window, config.bench.steps) == ("mine", 8, 100)


@pytest.mark.parametrize(
    ("override", "key", "message"),
    [
        ("loader.windw=3", "loader.windw", "did you mean 'window'?"),
        ("sampler.x=3", "sampler", "did you mean 'sampling'?"),
        ("loader.window=lots", "loader.window", "a size"),
        ("loader.window=true", "loader.window", "a whole number or text"),
        ("loader.window=-1", "loader.window", "from 0 on"),
        ("loader.cache=12 potatoes", "loader.cache", "a size"),
        ("loader.cache=1.5", "loader.cache", "a share"),
        ("loader.page_bytes=1000", "loader.page_bytes", "a power of two"),
        ("loader.engine=urin", "loader.engine", "did you mean 'uring'?"),
        ("model.hidden=0", "model.hidden", "at least 1"),
        ("model.hidden=30", "model.heads", "a divisor"),
        ("sampling.fanouts=[1]", "sampling.fanouts", "one for each layer"),
        ("sampling.fanouts=[1.5, 2]", "sampling.fanouts", "a whole number"),
        ("training.learning_rate=fast", "training.learning_rate", "a number"),
        ("data.split=half", "data.split", "'igb'"),
        ("data=3", "data", "a section"),
        ('bench.loaders=["dgl-map"]', "bench.loaders", "did you mean 'dgl-mmap'?"),
        ('bench.loaders=["gids", "gids"]', "bench.loaders", "none twice"),
        ("bench.cold=1", "bench.cold", "true or false"),
        ("bench.warm=1", "bench.warm", "true or false"),
        ("bench.memory_limit=much", "bench.memory_limit", "a size"),
    ],
)
def test_mistakes_name_file_key_and_what_was_expected(
    minimal: Path, override: str, key: str, message: str
) -> None:
    with pytest.raises(ConfigFileError, match=r"mine\.toml") as caught:
        load_config(minimal, [override])
    assert caught.value.key == key
    assert message in str(caught.value)


def test_a_key_that_is_needed(tmp_path: Path) -> None:
    file = tmp_path / "half.toml"
    file.write_text('[data]\nfolder = "here"\n')
    with pytest.raises(ConfigFileError, match=r"data\.task: expected text in quotes, found nothing"):
        load_config(file)


@pytest.mark.parametrize("content", [b"[data", b"\xff\xfe"])
def test_no_toml(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigFileError, match="expected a TOML file"):
        load_config(file)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match="No such file"):
        load_config(tmp_path / "none.toml")


def test_overrides_are_toml_or_plain_text(minimal: Path) -> None:
    overrides = ["data.folder=/some/where", 'data.task="2983"', "training.epochs=7", "loader.cache=30%"]
    config = load_config(minimal, overrides)
    assert (config.data.folder, config.data.task) == ("/some/where", "2983")
    assert (config.training.epochs, config.loader.cache) == (7, "30%")
    with pytest.raises(ConfigFileError, match=r"section\.key=value"):
        load_config(minimal, ["nothing"])
    with pytest.raises(ConfigFileError, match=r"a section \[folder\]"):
        load_config(minimal, ["data.folder.x=1"])


def test_cold_and_warm_exclude_each_other(minimal: Path) -> None:
    with pytest.raises(ConfigFileError, match=r"bench\.warm: expected false where cold is true"):
        load_config(minimal, ["bench.cold=true", "bench.warm=true"])
