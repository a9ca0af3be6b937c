"""What the synthetic IGBH is made of: every number is a function of (seed, position), so chunks can be made
in any order.

Nodes of a type are dealt to 2,983 subclasses, 157 in each of 19 classes, by a permutation of their ids
(``position = (multiplier * id + offset) mod n``; subclass ``k`` owns the k-th slice of positions). It is
affine, so its inverse is too, and a member of a class is drawn without any table.

Arithmetic is on integers, or on floats without fused operations, so the bytes do not depend on the machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

N_CLASSES = 19
SUBCLASSES = 157
N_SUBCLASSES = N_CLASSES * SUBCLASSES
#: With fewer members than this, all edges into a subclass would end in the same few nodes (or be self loops);
#: its class is drawn from instead.
MIN_SLICE = 8

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_LOW_16 = np.uint64(0xFFFF)
_UNIT_53 = 2.0**-53
# The sum of four 16-bit uniforms has mean 2 * 65535 and this standard deviation.
_NOISE_MEAN = np.int32(131070)
_NOISE_SCALE = np.float32(1.0 / 37837.22)


@njit(cache=True, nogil=True)
def mix(x: Any) -> Any:
    """Finalizer of SplitMix64 (Steele, Lea, Flood 2014): 64 bits that look random, from a counter."""
    once = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    twice = (once ^ (once >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return twice ^ (twice >> np.uint64(31))


@njit(cache=True, nogil=True)
def subclass_of(node: int, n: int, multiplier: int, offset: int) -> int:
    """Subclass of a node; its class is ``subclass // SUBCLASSES``."""
    return (multiplier * node + offset) % n * N_SUBCLASSES // n


@njit(cache=True, nogil=True)
def _slice_start(subclass: int, n: int) -> int:
    return -(-subclass * n // N_SUBCLASSES)


@njit(cache=True, nogil=True)
def _draw(low: int, high: int, x: np.uint64) -> int:
    """A position in ``[low, high)``; position ``low + r`` comes with a probability that falls like ``r **
    (-2/3)``.

    So degrees follow a power law with exponent 2.5.
    """
    u = np.float64(x >> np.uint64(11)) * _UNIT_53
    return low + int(np.float64(high - low) * (u * u * u))


@njit(cache=True, nogil=True)
def fill_edges(
    out: npt.NDArray[np.int64],
    first_edge: int,
    key: np.uint64,
    source: npt.NDArray[np.int64],
    destination: npt.NDArray[np.int64],
    same_subclass: np.uint64,
    same_class: np.uint64,
) -> None:
    """Edges ``first_edge``, … of one relation into `out` (n, 2).

    `source` and `destination` are (n, multiplier, offset, inverse of the multiplier). An edge ends in its
    source's subclass, or in its class, or in any class, with the odds ``same_subclass : same_class : rest``
    of 65536.
    """
    n_src, src_multiplier, src_offset = source[0], source[1], source[2]
    n_dst, dst_offset, dst_inverse = destination[0], destination[2], destination[3]
    for row in range(len(out)):
        edge = first_edge + row
        base = key + np.uint64(4 * edge) * _GOLDEN
        if edge < n_src:
            node = (src_multiplier * edge + src_offset) % n_src
        else:
            node = np.int64(mix(base) >> np.uint64(1)) % n_src
        subclass = subclass_of(node, n_src, src_multiplier, src_offset)
        odds = mix(base + _GOLDEN)
        level = odds & _LOW_16
        low, high = 0, 0
        if level < same_subclass:
            low, high = _slice_start(subclass, n_dst), _slice_start(subclass + 1, n_dst)
        elif level >= same_subclass + same_class:
            subclass = int(np.int64(odds >> np.uint64(16))) % N_SUBCLASSES
        if high - low < MIN_SLICE:
            group = subclass // SUBCLASSES * SUBCLASSES
            low, high = _slice_start(group, n_dst), _slice_start(group + SUBCLASSES, n_dst)
        if low == high:
            low, high = 0, n_dst
        position = _draw(low, high, mix(base + np.uint64(2) * _GOLDEN))
        out[row, 0] = node
        out[row, 1] = (position - dst_offset) % n_dst * dst_inverse % n_dst


@njit(cache=True, nogil=True)
def fill_features(
    out: npt.NDArray[np.float32],
    first_node: int,
    key: np.uint64,
    space: npt.NDArray[np.int64],
    class_means: npt.NDArray[np.float32],
    subclass_means: npt.NDArray[np.float32],
) -> None:
    """Features of nodes ``first_node``, … into `out` (n, dim): the class's mean, the subclass's, and noise.

    The noise of every element is the sum of four uniforms, scaled to variance 1.
    """
    n, multiplier, offset = space[0], space[1], space[2]
    dim = out.shape[1]
    for row in range(len(out)):
        node = first_node + row
        subclass = subclass_of(node, n, multiplier, offset)
        mean, submean = class_means[subclass // SUBCLASSES], subclass_means[subclass]
        base = key + np.uint64(node) * np.uint64(dim) * _GOLDEN
        for column in range(dim):
            x = mix(base + np.uint64(column) * _GOLDEN)
            total = (x & _LOW_16) + (x >> np.uint64(16) & _LOW_16) + (x >> np.uint64(32) & _LOW_16)
            noise = np.float32(np.int32(total + (x >> np.uint64(48))) - _NOISE_MEAN) * _NOISE_SCALE
            out[row, column] = noise + (mean[column] + submean[column])


@njit(cache=True, nogil=True)
def fill_labels(
    out: npt.NDArray[np.float32], first_node: int, space: npt.NDArray[np.int64], group: int
) -> None:
    """Labels of nodes ``first_node``, …: the subclass divided by `group`."""
    for row in range(len(out)):
        out[row] = subclass_of(first_node + row, space[0], space[1], space[2]) // group


@njit(cache=True, nogil=True)
def fill_signs(out: npt.NDArray[np.float32], key: np.uint64, size: np.float32) -> None:
    """Random ``+size`` and ``-size`` into `out` (n, dim)."""
    for row in range(out.shape[0]):
        for column in range(out.shape[1]):
            x = mix(key + np.uint64(row * out.shape[1] + column) * _GOLDEN)
            out[row, column] = size if x >> np.uint64(63) else -size
