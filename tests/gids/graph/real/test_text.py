"""Hashed text: fixed values, unit length, and the plain definition."""

from __future__ import annotations

import zlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gids.graph.real.text import hashed_text, words_of


def plain(text: str, dim: int) -> np.ndarray:
    vector = np.zeros(dim)
    for word in words_of(text):
        edged = f"<{word}>"
        pieces = [edged[at : at + size] for size in (3, 4) for at in range(len(edged) - size + 1)]
        for weight, item in [(1.0, "w" + word), *((np.float32(0.3), "c" + piece) for piece in pieces)]:
            code = zlib.crc32(item.encode())
            vector[code % dim] += weight if code >= 2**31 else -weight
    length = np.sqrt((vector**2).sum())
    return vector / length if length else vector


@given(st.lists(st.text(alphabet="abc#+ é.", max_size=12), max_size=6), st.sampled_from([1, 7, 64]))
def test_equals_the_plain_definition(texts: list[str], dim: int) -> None:
    found = hashed_text(texts, dim)
    assert found.shape == (len(texts), dim)
    for row, text in zip(found, texts, strict=True):
        assert np.allclose(row, plain(text, dim), atol=2e-3)


def test_words() -> None:
    assert words_of("GNU C++ compiler, C#-bindings (x86_64)") == [
        "gnu",
        "c++",
        "compiler",
        "c#",
        "bindings",
        "x86",
        "64",
    ]


def test_similar_texts_are_near() -> None:
    game, other_game, library = hashed_text(["strategy game", "strategic games", "shared library"]).astype(
        float
    )
    assert game @ other_game > game @ library + 0.2
