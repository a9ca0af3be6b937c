"""Configuration files: a TOML file in, frozen dataclasses out; every mistake named before any work."""

from __future__ import annotations

from gids.config.read import as_table, load_config, run_config
from gids.config.sections import BenchConfig, DataConfig, LoaderConfig, RunConfig

__all__ = ["BenchConfig", "DataConfig", "LoaderConfig", "RunConfig", "as_table", "load_config", "run_config"]
