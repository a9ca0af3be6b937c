"""Pickles are read without running anything; sparse matrices agree with SciPy's."""

from __future__ import annotations

import os
import pickle
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st

from gids.errors import DatasetError
from gids.graph.real.pickles import load_npy, load_npz, load_pickle, sparse_of_npz, sparse_of_pickle


class Attack:
    """What unpickling must not run."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("attacked",)


@pytest.mark.parametrize("protocol", range(5))
def test_nothing_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocol: int) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps({"a": [Attack()]}, protocol))
    with pytest.raises(DatasetError, match="mkdir"):
        load_pickle(path)
    assert not (tmp_path / "attacked").exists()


def test_nothing_is_run_by_an_object_array(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    array = np.empty((), object)
    array[()] = Attack()
    np.savez(tmp_path / "x.npz", array=array)
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    with pytest.raises(DatasetError, match="mkdir"):
        load_npz(tmp_path / "x.npz")
    with pytest.raises(DatasetError, match="mkdir"):
        load_npy(tmp_path / "x.npy")
    assert not (tmp_path / "attacked").exists()


def test_containers_and_arrays_come_back(tmp_path: Path) -> None:
    made = {"a": [1, "two", None], "b": np.arange(6.0).reshape(2, 3)}
    path = tmp_path / "x.pkl"
    path.write_bytes(pickle.dumps(made))
    found = load_pickle(path)
    assert found["a"] == made["a"]
    assert np.array_equal(found["b"], made["b"])


@pytest.mark.parametrize("stored", ["csr", "coo"])
def test_sparse_npz(tmp_path: Path, stored: str) -> None:
    matrix = scipy.sparse.random(30, 20, 0.2, stored, np.float32, rng=np.random.default_rng(0))
    scipy.sparse.save_npz(tmp_path / "m.npz", matrix)
    found = sparse_of_npz(tmp_path / "m.npz")
    assert np.array_equal(found.dense(), matrix.toarray())


@given(st.binary(min_size=1, max_size=4), st.integers(0, 2**16))
def test_damaged_sparse_pickle(tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int) -> None:
    """Any bytes changed: the same matrix, another one, or a typed error."""
    content = pickle.dumps(scipy.sparse.eye(5, format="csr", dtype=np.float32), 2)
    at %= len(content)
    path = tmp_path_factory.mktemp("damage") / "m.pkl"
    path.write_bytes(content[:at] + noise + content[at + len(noise) :])
    with suppress(DatasetError):
        assert sparse_of_pickle(path, load_pickle(path)).dense().ndim == 2
