"""Compiled encoders give the bytes of the plain ones, and those are the rounding of IEEE 754."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch

from gids.graph.feature_kernels import encode_into, raise_largest
from gids.graph.feature_types import FeatureDtype, column_scale, decode_rows, encode_rows, is_non_finite

SIXTEEN_BITS = (FeatureDtype.FLOAT16, FeatureDtype.BFLOAT16)


def _hard_values() -> npt.NDArray[np.float32]:
    """Every half and bfloat16, their neighbours, the middles between them, and random bits."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float32)
    upper = (np.arange(2**16, dtype=np.uint32) << 16).view(np.float32)
    exact = np.concatenate([halves, upper])
    bits = exact.view(np.uint32)
    random = np.random.default_rng(0).integers(0, 2**32, 2**17, dtype=np.uint32)
    middles = [bits + np.uint32(step) for step in (1, 0xFFF, 0x1000, 0x1001, 0x7FFF, 0x8000, 0x8001)]
    return np.concatenate([bits, bits - np.uint32(1), *middles, random]).view(np.float32).reshape(-1, 64)


def _same(found: npt.NDArray[np.generic], expected: npt.NDArray[np.generic], dtype: FeatureDtype) -> bool:
    """Equal bits, but any NaN is as good as another."""
    nan = np.isnan(decode_rows(expected, dtype))
    bits = np.uint16
    same = (found.view(bits) == expected.view(bits)) | nan
    return bool(same.all() and np.array_equal(np.isnan(decode_rows(found, dtype)), nan))


@pytest.mark.parametrize("dtype", SIXTEEN_BITS)
def test_sixteen_bits(dtype: FeatureDtype) -> None:
    rows = _hard_values()
    out = np.empty(rows.shape, dtype.stored)
    count = encode_into(rows, dtype, None, out)
    plain = encode_rows(rows, dtype)
    assert _same(out, plain, dtype)
    assert count == is_non_finite(plain, dtype).sum()
    kind = torch.bfloat16 if dtype is FeatureDtype.BFLOAT16 else torch.float16
    by_torch = torch.from_numpy(rows).to(kind).view(torch.int16).numpy().view(dtype.stored)
    assert _same(plain, by_torch, dtype)


def test_float32_is_copied_bit_for_bit_and_counted() -> None:
    rows = _hard_values()
    out = np.empty(rows.shape, np.float32)
    count = encode_into(rows, FeatureDtype.FLOAT32, None, out)
    assert np.array_equal(out.view(np.uint32), rows.view(np.uint32))
    assert count == (~np.isfinite(rows)).sum()


def test_int8_rounds_to_the_nearest_step_of_its_column() -> None:
    rows = np.random.default_rng(0).standard_normal((500, 33)).astype(np.float32)
    rows[:, 4] = 0
    rows[:, 5] *= 1e-30
    largest = np.zeros(33, np.float32)
    assert raise_largest(rows, largest)
    assert np.array_equal(largest, np.abs(rows).max(axis=0))
    scale = column_scale(largest)
    out = np.empty(rows.shape, np.int8)
    assert encode_into(rows, FeatureDtype.INT8, scale, out) == 0
    assert np.array_equal(out, encode_rows(rows, FeatureDtype.INT8, scale))
    error = np.abs(decode_rows(out, FeatureDtype.INT8, scale) - rows)
    assert (error <= scale * 0.5001).all()
    assert np.abs(out).max() == 127
    assert (out[:, 4] == 0).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_columns_with_a_value_that_is_not_finite_have_no_scale(bad: float) -> None:
    rows = np.ones((10, 8), np.float32)
    rows[7, 3] = bad
    assert not raise_largest(rows, np.zeros(8, np.float32))


@pytest.mark.parametrize("source", [np.float16, np.float64])
@pytest.mark.parametrize("dtype", list(FeatureDtype))
def test_other_source_types(source: type, dtype: FeatureDtype) -> None:
    rows = np.random.default_rng(0).standard_normal((40, 8)).astype(source)
    scale = column_scale(np.abs(rows).max(axis=0).astype(np.float32))
    out = np.empty(rows.shape, dtype.stored)
    assert encode_into(rows, dtype, scale, out) == 0
    assert np.array_equal(out, encode_rows(rows, dtype, scale))
    assert np.allclose(decode_rows(out, dtype, scale), rows.astype(np.float32), atol=0.02)


def test_too_large_for_a_half() -> None:
    rows = np.array([[65504, 65519, 65520, -1e6]], np.float32)
    out = np.empty(rows.shape, np.float16)
    assert encode_into(rows, FeatureDtype.FLOAT16, None, out) == 2
    assert out.tolist() == [[65504, 65504, np.inf, -np.inf]]
