"""Random numbers: known answers, compiled and plain agree, every outcome equally likely."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gids.sampling import random, reference

U32, U64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [  # the test vectors that come with Random123, the authors' own implementation
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_answers(
    counter: reference.Words, key: reference.Key, expected: reference.Words
) -> None:
    assert reference.philox(counter, key) == expected
    assert random.philox(*map(np.uint64, (*counter, *key))) == expected


@given(U64, U32, U32, U32, U32)
def test_streams_agree(seed: int, epoch: int, batch: int, hop: int, relation: int) -> None:
    compiled = random.stream_key(np.uint64(seed), epoch, batch, hop, relation)
    assert compiled == reference.stream_key(seed, epoch, batch, hop, relation)


# Just above 2^31 and 3 * 2^30 half and a quarter of the words are refused, so several attempts are needed.
@given(st.integers(1, 2**32 - 1) | st.sampled_from([1, 2**31 + 1, 3 * 2**30 + 1, 2**32 - 1]), U64, U64, U32)
def test_choices_agree(n: int, key: int, item: int, draw: int) -> None:
    words = (key >> 32, key & 0xFFFFFFFF)
    expected = reference.below(n, words, item, draw)
    compiled_key = tuple(map(np.uint64, words))
    first_word = np.uint64(random.words_of(compiled_key, np.uint64(item), draw)[draw & 3])
    assert first_word == reference.word(words, item, draw, 0)
    assert random.below(n, first_word, compiled_key, np.uint64(item), draw) == expected
    assert 0 <= expected < n


def test_refused_words_leave_no_bias() -> None:
    """Of 3 * 2^30 + 1 outcomes each third is equally likely; taking words as they are would favour some."""
    n = 3 * 2**30 + 1
    thirds = np.zeros(3)
    modulo_three = np.zeros(3)
    for item in range(6000):
        choice = reference.below(n, (1, 2), item, 0)
        thirds[min(choice * 3 // n, 2)] += 1
        modulo_three[choice % 3] += 1
    for counts in (thirds, modulo_three):
        assert (
            (counts - 2000) ** 2 / 2000
        ).sum() < 10  # chi-square with 2 degrees: below 9.2 in 99 % of cases


def test_draws_of_one_item_do_not_depend_on_one_another() -> None:
    """Bits of neighbouring draws, items and attempts are uncorrelated."""
    key = (0x12345678, 0x9ABCDEF0)
    words = np.array(
        [
            [reference.word(key, item, draw, attempt) for draw in range(8) for attempt in range(2)]
            for item in range(1500)
        ]
    )
    bits = (words[:, :, None] >> np.arange(32)) & 1
    assert abs(bits.mean() - 0.5) < 0.002
    flat = bits.reshape(len(words), -1) - 0.5
    correlation = (flat.T @ flat) / len(words) * 4
    np.fill_diagonal(correlation, 0)
    assert np.abs(correlation).max() < 5.5 / np.sqrt(len(words))
    assert abs((flat[1:] * flat[:-1]).mean() * 4) < 5 / np.sqrt(flat[1:].size)
