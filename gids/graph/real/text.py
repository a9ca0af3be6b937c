"""Short texts as vectors of fixed length, by hashing (Weinberger et al., ICML 2009)."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

#: Lengths of the pieces of words that count besides the words, and what a piece counts.
PIECE_LENGTHS = (3, 4)
PIECE_WEIGHT = 0.3

_WORD = re.compile(r"[a-z0-9+#]+")
_CHUNK_TEXTS = 4096

Hashed = tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]


def words_of(text: str) -> list[str]:
    """Words in lower case; ``c++`` and ``c#`` are words."""
    return _WORD.findall(text.lower())


def hashed_text(texts: Sequence[str], dim: int = 1024) -> npt.NDArray[np.float16]:
    """Each text's words, and pieces of words, as a vector of length 1.

    A word, or three or four letters of it (its ends count as letters), adds a number to one place. The place
    and the sign come from a CRC-32, so they are the same everywhere. Pieces let words of one stem meet.

    Parameters
    ----------
    texts : sequence of str
    dim : int

    Returns
    -------
    float16 array, shape (len(texts), dim)
        Zeros for a text without words.
    """
    vectors = np.empty((len(texts), dim), np.float16)
    known: dict[str, Hashed] = {}
    for first in range(0, len(texts), _CHUNK_TEXTS):
        sums = _sums(texts[first : first + _CHUNK_TEXTS], dim, known)
        lengths = np.sqrt(np.einsum("ij,ij->i", sums, sums))[:, None]
        vectors[first : first + len(sums)] = sums / np.where(lengths == 0, 1, lengths)
    return vectors


def _sums(texts: Sequence[str], dim: int, known: dict[str, Hashed]) -> npt.NDArray[np.float64]:
    """What the words of each text add up to; `known` remembers words."""
    places, values = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
    for row, text in enumerate(texts):
        for word in words_of(text):
            if word not in known:
                known[word] = _hashed(word, dim)
            places.append(known[word][0] + row * dim)
            values.append(known[word][1])
    sums = np.bincount(np.concatenate(places), np.concatenate(values), len(texts) * dim)
    return np.asarray(sums.reshape(len(texts), dim))


def _hashed(word: str, dim: int) -> Hashed:
    codes = np.array([zlib.crc32(each.encode()) for each in (f"w{word}", *_pieces(word))], np.int64)
    values = np.full(len(codes), PIECE_WEIGHT, np.float32)
    values[0] = 1
    return codes % dim, np.where(codes >> 31, values, -values).astype(np.float32)


def _pieces(word: str) -> Iterator[str]:
    letters = f"<{word}>"
    for length in PIECE_LENGTHS:
        for start in range(len(letters) - length + 1):
            yield f"c{letters[start : start + length]}"
