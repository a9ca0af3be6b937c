"""A small piece of all that the kernels do, for compute-sanitizer."""

from __future__ import annotations

import sys

import numpy as np

import bam
from bam.storage.fault import FaultKind, FaultRule, NativeFaultEngine


def main() -> int:
    rng = np.random.default_rng(0)
    for row_bytes, page_bytes, lines, policy in (
        (4096, 4096, 64, "clock"),
        (512, 512, 2000, "look_ahead_global"),
        (1000, 512, 7, "sieve"),
        (3, 512, 1, "random"),
    ):
        rows = rng.integers(0, 256, (2000, row_bytes), dtype=np.uint8)
        settings = bam.GpuSettings(queue_pairs=4, queue_slots=64, staging="1MiB", lone_pages=64)
        rule = FaultRule(FaultKind.ERROR, every=97, max_injections=5)
        with bam.open_array(
            rows,
            cache=f"{lines} lines",
            page_bytes=page_bytes,
            policy=policy,
            device="cuda",
            gpu=settings,
            timeout_s=120,
            wrap=lambda engine, rule=rule: NativeFaultEngine(engine, [rule]),
        ) as array:
            for _ in range(2):
                ids = rng.integers(-2000, 2000, 300)
                for _ in range(100):
                    try:
                        got = array.gather(ids).get()
                        break
                    except bam.StorageError:
                        continue
                if not (got == rows[ids]).all():
                    return 1
    print("all rows are right")
    return 0


if __name__ == "__main__":
    sys.exit(main())
