"""What a few blocks of a file held when it was opened; the twin of fingerprint.h.

A file that was cut and a file that was written anew and is shorter now look the same to `stat`: another
modification time and a smaller size. Bytes before the cut may be handed out only in the first case, so the
blocks are compared.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from bam.storage.buffers import aligned_buffer

_SAMPLE_BYTES = 4096
_SAMPLES_OF_ALL_FILES, _MOST_SAMPLES, _FEWEST_SAMPLES = 1024, 16, 2
_ATTEMPTS = 8


def samples_per_file(n_files: int) -> int:
    """Blocks sampled of each of so many files opened together: few enough that opening many stays cheap."""
    return max(_FEWEST_SAMPLES, min(_MOST_SAMPLES, _SAMPLES_OF_ALL_FILES // max(1, n_files)))


@dataclass(frozen=True)
class Fingerprint:
    """Sampled blocks of a file.

    Attributes
    ----------
    unit : int
        Alignment of reads of the file.
    samples : tuple of (int, bytes)
        Offset and content.
    """

    unit: int = 1
    samples: tuple[tuple[int, bytes], ...] = ()

    @classmethod
    def take(cls, descriptor: int, n_bytes: int, unit: int, samples: int) -> Fingerprint:
        """Read `samples` blocks, evenly spread from the first one on; of a short file, all of it.

        A block that cannot be read is left out: only who needs it is to learn of that.
        """
        block = max(_SAMPLE_BYTES, unit)
        whole = n_bytes <= samples * block
        length = -(-n_bytes // unit) * unit if whole else block
        found = []
        for i in range(0 if not n_bytes else 1 if whole else samples):
            offset = n_bytes // samples * i // block * block
            try:
                content = _read_block(descriptor, length, offset, unit)
            except OSError:
                continue
            if content:
                found.append((offset, content))
        return cls(unit, tuple(found))

    def compare(self, descriptor: int, end: int) -> int:
        """How the sampled bytes before `end` compare with what they were.

        Returns
        -------
        int
            0: equal. ESTALE: not, or there is none to compare though the file has bytes. EAGAIN: the file
            ends earlier than `end`.

        Raises
        ------
        OSError
        """
        compared = end == 0
        for offset, content in self.samples:
            length = min(len(content), end - offset)
            if length <= 0:
                break
            now = _read_block(descriptor, -(-length // self.unit) * self.unit, offset, self.unit)
            if len(now) < length:
                return errno.EAGAIN
            if now[:length] != content[:length]:
                return errno.ESTALE
            compared = True
        return 0 if compared else errno.ESTALE


def _read_block(descriptor: int, length: int, offset: int, unit: int) -> bytes:
    """Up to `length` bytes at `offset`, both multiples of `unit`, until the file ends."""
    memory = aligned_buffer(length, max(_SAMPLE_BYTES, unit))
    done = attempt = 0
    while done < length and attempt < _ATTEMPTS:
        try:
            got = os.preadv(descriptor, [memory[done:].data], offset + done)
        except BlockingIOError:
            attempt += 1
            continue
        done += got
        if not got or done % unit:  # an unaligned end is that of the file
            break
    return memory[:done].tobytes()
