from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

from bam.array.row_ids import as_row_ids, select
from bam.errors import RowIndexTypeError, RowOutOfRange

INTEGERS = ["i1", "u1", "<i2", ">i4", "<u4", "<i8", ">i8", "<u8"]


def numpy_result(array: npt.NDArray[Any], key: object) -> npt.NDArray[Any]:
    """What the selection gives when its rows are gathered with numpy."""
    selection = select(key, array.shape)
    rows = array[np.array(selection.rows, np.int64)]
    return rows[selection.index] if selection.index else rows


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_keys_mean_what_they_mean_to_numpy(data: st.DataObject) -> None:
    shape = data.draw(st_numpy.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6))
    array = np.arange(np.prod(shape)).reshape(shape)
    first = data.draw(
        st.one_of(
            st.integers(-shape[0], shape[0] - 1),
            st.slices(shape[0]),
            st_numpy.arrays(
                st.sampled_from(["i1", "<i8", ">i4"]),
                st_numpy.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4),
                elements=st.integers(-shape[0], shape[0] - 1),
            ),
            st_numpy.arrays("?", shape[0]),
            st_numpy.arrays("?", shape),
        )
    )
    # Whatever numpy takes for the rest of the array behind the rows.
    used = first.ndim if isinstance(first, np.ndarray) and first.dtype == bool else 1
    rest: tuple[Any, ...] = ()
    if len(shape) > used:
        rest = data.draw(
            st.just(())
            | st.just((Ellipsis,))
            | st_numpy.basic_indices(shape[used:], allow_newaxis=True).map(
                lambda key: key if isinstance(key, tuple) else (key,)
            )
        )
    key = (first, *rest)
    try:
        expected = array[key]
    except IndexError:
        with pytest.raises(IndexError):
            numpy_result(array, key)
        return
    found = numpy_result(array, key)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)
    if not rest:
        np.testing.assert_array_equal(numpy_result(array, first), array[first])


CUBE = np.arange(60).reshape(5, 4, 3)


@pytest.mark.parametrize(
    "key",
    [
        (),
        Ellipsis,
        (Ellipsis, 1),
        (Ellipsis, [1, 2]),
        (Ellipsis, 1, 2),
        (2, Ellipsis, 1),
        ([0, 4, 4], Ellipsis),
        ([0, 4, 4], [1, 2, 3]),
        ([0, 4, 4], slice(None), [0, 1, 2]),
        ([[0], [4]], [1, 2, 3]),
        ([0, 1], None, 2),
        ([True, False, True, False, False], [1, 2]),
        (CUBE % 2 == 0),
        (CUBE[:, :, 0] % 3 == 0, 1),
        (Ellipsis, CUBE[0] % 2 == 0),
        (slice(1, 4), [0, 2], [1, 2]),
        ([], 1),
        (range(3),),
        ((0, 3),),
        np.uint8(3),
        np.array(3),
    ],
)
def test_keys_by_example(key: Any) -> None:
    expected = CUBE[key]
    found = numpy_result(CUBE, key)
    assert found.shape == expected.shape
    np.testing.assert_array_equal(found, expected)


def test_tensors() -> None:
    for key in [torch.tensor([1, -1, 0]), torch.tensor(2), torch.tensor([[0], [1]], dtype=torch.uint8)]:
        np.testing.assert_array_equal(numpy_result(CUBE, key), CUBE[key.numpy()])
    mask = torch.tensor([True, False, True, False, True])
    np.testing.assert_array_equal(numpy_result(CUBE, mask), CUBE[mask.numpy()])


@pytest.mark.parametrize(
    "key",
    [
        1.0,
        [0.5],
        np.array([1.0]),
        np.array([]),
        np.array([1], dtype=object),
        "rows",
        ["a"],
        b"a",
        True,
        np.True_,
        np.array(True),
        [0, None],
        [[0], [0, 1]],
        1j,
        np.array(["2020"], dtype="M8[Y]"),
        (Ellipsis, Ellipsis),
        None,
        (None, 0),
        [True, False],
        np.ones((5, 3), bool),
        np.ones((5, 4, 3, 1), bool),
        slice("a", None),
        slice(0, 3, 0),
        slice(1.5),
        torch.tensor([1.0]),
        torch.tensor([1], device="meta"),
        {0, 1},
        {"rows": 0},
        object(),
    ],
)
def test_what_is_no_row_id(key: object) -> None:
    with pytest.raises(RowIndexTypeError) as caught:
        select(key, CUBE.shape)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("key", [(0, 9), (0, 0, 0, 0), ([0, 1], [0, 1, 2]), (slice(None), [9]), (0, "a")])
def test_what_follows_the_rows_is_checked_before_anything_is_read(key: object) -> None:
    with pytest.raises(IndexError):
        select(key, CUBE.shape)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("shape", [(0,), (6,), (2, 3), ()])
def test_integers_of_every_kind(dtype: str, shape: tuple[int, ...]) -> None:
    ids = (np.arange(np.prod(shape, dtype=int)).reshape(shape) % 5).astype(dtype)
    if ids.dtype.kind == "i" and ids.size > 1:
        ids.reshape(-1)[1] = -5
    found = as_row_ids(ids, 5)
    assert (found.dtype, found.shape) == (np.int64, shape)
    assert found.dtype.isnative
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, np.arange(5)[ids])


def test_strided_ids() -> None:
    for ids in [np.arange(10)[::-2], np.arange(6).reshape(2, 3).T]:
        np.testing.assert_array_equal(as_row_ids(ids, 10), ids)


def test_ids_that_are_ready_are_not_copied() -> None:
    ids = np.array([3, 1])
    assert np.shares_memory(as_row_ids(ids, 4), ids)
    kept = np.array([3, -1])
    as_row_ids(kept, 4)
    assert kept.tolist() == [3, -1]


@pytest.mark.parametrize(
    ("ids", "wrong", "position"),
    [
        ([0, 5], 5, 1),
        ([0, 0, -6, 7], -6, 2),
        ([[0, 1], [2, 9]], 9, 3),
        (np.array([2**64 - 1], np.uint64), 2**64 - 1, 0),
        (np.array([1, 2**63], np.uint64), 2**63, 1),
        (np.array([200, 3], np.uint8), 200, 0),
        (np.array([0, -128], np.int8), -128, 1),
        (np.array([0, 77], ">i4"), 77, 1),
        (np.array([-(2**63)]), -(2**63), 0),
        ([2**63], 2**63, 0),
        ([0, 2**64, 9], 2**64, 1),
        ([-1, 2**63], 2**63, 1),
        ([0, -(2**70)], -(2**70), 1),
        (5, 5, 0),
        (np.array(-6), -6, 0),
        (range(3, 8), 5, 2),
    ],
)
def test_ids_out_of_range(ids: object, wrong: int, position: int) -> None:
    with pytest.raises(RowOutOfRange) as caught:
        as_row_ids(ids, 5)
    assert (caught.value.row_id, caught.value.position, caught.value.n_rows) == (wrong, position, 5)
    assert isinstance(caught.value, IndexError)
    assert str(wrong) in str(caught.value)


@pytest.mark.parametrize("key", [2**70, -(2**70), 5, -6, np.uint64(2**64 - 1)])
def test_a_single_row_out_of_range(key: int) -> None:
    with pytest.raises(RowOutOfRange) as caught:
        select(key, CUBE.shape)
    assert caught.value.row_id == key


def test_no_rows_at_all() -> None:
    assert as_row_ids([], 0).shape == (0,)
    with pytest.raises(RowOutOfRange):
        as_row_ids([0], 0)
    with pytest.raises(RowOutOfRange):
        as_row_ids([-1], 0)


class TestIndexObjects:
    """Whatever says which integer it is can stand for it, as in numpy."""

    class Index:
        def __init__(self, value: int) -> None:
            self.value = value

        def __index__(self) -> int:
            return self.value

    def test_one_row(self) -> None:
        array = np.arange(30).reshape(10, 3)
        np.testing.assert_array_equal(numpy_result(array, self.Index(-2)), array[8])
        assert as_row_ids(self.Index(4), 10).shape == ()

    @pytest.mark.parametrize("value", [10, -11, 2**70])
    def test_out_of_range(self, value: int) -> None:
        with pytest.raises(RowOutOfRange) as caught:
            as_row_ids(self.Index(value), 10)
        assert caught.value.row_id == value
