"""Fixtures of all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# No deadlines: first calls compile, and the machine may be busy. The same examples every time.
settings.register_profile("repository", deadline=None, derandomize=True)
settings.load_profile("repository")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The shared data folder: real files that are not part of the repository.

    Its path is in GIDS_TEST_DATA; by default it is `shared/data` beside the repository.
    """
    folder = Path(os.environ.get("GIDS_TEST_DATA") or REPOSITORY.parent / "shared" / "data")
    if not folder.is_dir():
        pytest.skip(f"the shared data folder is not at {folder}; set GIDS_TEST_DATA to its path")
    return folder
