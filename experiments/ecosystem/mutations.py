"""Mutated Arrow, Parquet and npy files: each is read as the plain reader reads it, or refused.

    GIDS_TEST_DATA=shared/data python experiments/ecosystem/mutations.py --n 100000 --json F

Mutation number `k` is a function of the seed and `k`: a file of the data folder (or one made here), cut, with
bits flipped, words replaced, or lengths, counts and offsets that lie. Child processes read them, with an
address space that is bounded and a time limit for each; one that dies is replaced, and what it was at is
counted. Killed, the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import selectors
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, BinaryIO

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

import bam
import gids
from bam.bench.machine import command, commit, describe_machine
from bam.errors import BamError
from gids.errors import TableError
from gids.table.arrow_file import column_type
from gids.table.table import ArrowTable
from gids.table.write import write_arrow

SCHEMA = 1
CHUNK = 2000
LIMIT_S = 20.0
#: Address space and resident memory that reading one file of at most LARGEST_FILE bytes may add.
SPACE_BYTES = 1 << 30
RESIDENT_BYTES = 64 << 20
LARGEST_FILE = 300_000
LIES = (0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)


class Outcome(Enum):
    """What came of reading one file. Only the first two are right."""

    EQUAL = "equal"
    TYPED_ERROR = "typed_error"
    PLAIN_READER_REFUSED = "plain_reader_refused"
    DIFFERENT = "different"
    WRONG_ERROR = "wrong_error"
    OVER_READ = "over_read"
    OVER_ALLOCATION = "over_allocation"
    CRASH = "crash"
    CRASH_OF_PLAIN_READER = "crash_of_plain_reader"
    HANG = "hang"


class Kind(Enum):
    """Format of a file."""

    ARROW = "arrow"
    PARQUET = "parquet"
    NPY = "npy"


#: Bytes at the beginning and the end that mark a format.
MARKS = {Kind.ARROW: (8, 10), Kind.PARQUET: (4, 8), Kind.NPY: (10, 0)}


@dataclass(frozen=True)
class Original:
    """A file that is mutated."""

    name: str
    kind: Kind
    content: bytes


@dataclass(frozen=True)
class Finding:
    """A mutation that was not read as it should be."""

    number: int
    file: str
    outcome: Outcome
    text: str


def file_of(files: Sequence[Original], number: int) -> Original:
    """Which file mutation `number` is made of: half of them Arrow, a quarter each Parquet and npy.

    Every other one is a file made here, since most real ones are mostly metadata.
    """
    kind = (Kind.ARROW, Kind.PARQUET, Kind.ARROW, Kind.NPY)[number % 4]
    made = number // 4 % 2 == 0
    of_kind = [file for file in files if file.kind is kind and made <= file.name.startswith("made/")]
    return of_kind[number // 8 % len(of_kind)]


class OverRead(Exception):
    """An array has more bytes than its file."""


def originals(data: Path | None) -> list[Original]:
    """Real files, smallest first, and some made here, in an order that does not change."""
    found = [*_made()]
    for folder, suffix, kind in (
        ("arrow-real", ".arrow", Kind.ARROW),
        ("arrow-gold", ".arrow_file", Kind.ARROW),
        ("npy", ".npy", Kind.NPY),
    ):
        paths = [] if data is None else sorted((data / folder).rglob(f"*{suffix}"))
        for path in paths:
            if 0 < path.stat().st_size <= LARGEST_FILE:
                found.append(Original(f"{folder}/{path.name}", kind, path.read_bytes()))
    return found


def _made() -> Iterator[Original]:
    random = np.random.default_rng(5)
    rows = random.standard_normal((60, 4)).astype(np.float32)
    year = random.integers(1990, 2024, 60).astype(np.int32)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), 4)
    table = pa.table({"feat": lists, "year": year, "text": [f"n{k % 7}" for k in range(60)]})
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "file"
        write_arrow(path, table.schema, table.to_batches(20), stats=["year"])
        yield Original("made/stats.arrow", Kind.ARROW, path.read_bytes())
        body = random.standard_normal((2000, 8)).astype(np.float32)
        columns = {f"c{k}": pa.array(body[:, k]) for k in range(3)}
        columns["feat"] = pa.FixedSizeListArray.from_arrays(pa.array(body.reshape(-1)), 8)
        write_arrow(path, pa.table(columns).schema, pa.table(columns).to_batches(300), stats=["c1"])
        yield Original("made/body.arrow", Kind.ARROW, path.read_bytes())
        np.save(path.with_suffix(".npy"), body)
        yield Original("made/body.npy", Kind.NPY, path.with_suffix(".npy").read_bytes())
        for codec in ("lz4", "zstd"):
            settings = pa.ipc.IpcWriteOptions(compression=codec)
            with (
                pa.OSFile(str(path), "wb") as file,
                pa.ipc.new_file(file, table.schema, options=settings) as to,
            ):
                to.write_table(table, 20)
            yield Original(f"made/{codec}.arrow", Kind.ARROW, path.read_bytes())
        flat = table.select(["year", "text"]).append_column("score", pa.array(random.random(60)))
        for codec in ("none", "snappy", "zstd", "gzip"):
            for version in ("1.0", "2.0"):
                pyarrow.parquet.write_table(
                    flat, path, row_group_size=20, compression=codec, data_page_version=version
                )
                yield Original(f"made/{codec}-{version}.parquet", Kind.PARQUET, path.read_bytes())
        np.save(path.with_suffix(".npy"), rows)
        yield Original("made/rows.npy", Kind.NPY, path.with_suffix(".npy").read_bytes())


def mutated(content: bytes, kind: Kind, random: np.random.Generator) -> bytes:
    """Cut, or changed in one place or a few, half of them near an end, where the metadata is.

    What marks the format at both ends is mostly left alone, or little else would be tried.
    """
    changed = bytearray(content)
    how = int(random.integers(0, 12))
    if how == 0:
        return bytes(changed[: random.integers(0, len(changed))])
    low, high = MARKS[kind] if random.random() < 0.9 else (0, 0)
    for _ in range(1 + int(random.geometric(0.7))):
        at = low + _place(len(changed) - low - high, random)
        if how <= 3:
            changed[at] ^= 1 << int(random.integers(0, 8))
        elif how <= 5:
            changed[at] = int(random.integers(0, 256))
        elif how == 6:
            at -= at % 4
            _put(changed, at, int(random.integers(0, 2**32)).to_bytes(4, "little"))
        elif how <= 9:
            width = int(random.choice([2, 4, 8]))
            at -= at % width
            _put(
                changed,
                at,
                (LIES[random.integers(0, len(LIES))] % 2 ** (8 * width)).to_bytes(width, "little"),
            )
        elif how == 10:
            number = int.from_bytes(changed[at : at + 4], "little") + int(random.integers(-8, 9))
            _put(changed, at, (number % 2**32).to_bytes(4, "little"))
        else:
            other = _place(len(changed), random)
            _put(changed, at, bytes(changed[other : other + int(random.integers(1, 17))]))
    return bytes(changed)


def _put(changed: bytearray, at: int, part: bytes) -> None:
    """Write over what is there; the length stays."""
    changed[at : at + len(part)] = part[: len(changed) - at]


def _place(length: int, random: np.random.Generator) -> int:
    if length > 2048 and random.random() < 0.6:
        near = int(random.integers(0, 1024))
        return near if random.random() < 0.3 else length - 1 - near
    return int(random.integers(0, max(1, length)))


def read_ours(path: Path, kind: Kind) -> dict[str, np.ndarray[Any, Any]]:
    """What can be read of the file through this package; a BamError when it is nothing."""
    size = path.stat().st_size
    if kind is Kind.NPY:
        with bam.open_array(path, cache="16KiB") as array:
            _require_within(array.nbytes, size)
            return {"": np.asarray(array)}
    found: dict[str, np.ndarray[Any, Any]] = {}
    refusal: BamError | None = None
    with gids.open_table(path) as table:
        for name in table.columns:
            try:
                found[name] = _column(table, name, size)
            except BamError as error:
                refusal = error
        for condition in (f"{name} > 3" for name in table.columns if name.isidentifier()):
            try:
                table.where(condition)
            except BamError as error:
                refusal = error
    if not found and refusal is not None:
        raise refusal
    return found


def _column(table: Any, name: str, size: int) -> np.ndarray[Any, Any]:
    if isinstance(table, ArrowTable):
        with table.column(name, cache="16KiB") as array:
            _require_within(array.nbytes, size)
            return np.asarray(array)
    parts = []
    table.bounds(name)  # refuses what is no column of numbers
    for batch in range(len(table.batch_rows)):
        column = table.read([name], batch)[0][name]
        if column.valid is not None:
            raise TableError("", "values", "nulls", name)
        parts.append(column.values)
    return np.concatenate(parts) if parts else np.empty(0)


def _require_within(found: int, size: int) -> None:
    if found > size:
        raise OverRead(f"{found} bytes of a file of {size}")


def read_plain(path: Path, kind: Kind, names: Sequence[str]) -> dict[str, np.ndarray[Any, Any]]:
    """The same by numpy and pyarrow alone."""
    if kind is Kind.NPY:
        return {"": np.load(path, allow_pickle=False)}
    if kind is Kind.PARQUET:
        whole = pyarrow.parquet.read_table(path, columns=list(names))
    else:
        with pa.OSFile(str(path)) as file:
            whole = pa.ipc.open_file(file).read_all()
    found = {}
    for name in names:
        values = whole.column(name).combine_chunks()
        kind_of = column_type(pa, values.type)
        assert kind_of is not None
        flat = values.flatten() if kind_of.dim is not None else values
        if kind_of.dtype.kind in "iu" and not pa.types.is_integer(flat.type):
            flat = flat.view(pa.int32() if kind_of.dtype.itemsize == 4 else pa.int64())
        found[name] = flat.to_numpy(zero_copy_only=False).reshape(len(values), *kind_of.row_shape)
    return found


def judge(path: Path, kind: Kind, say: Any) -> tuple[Outcome, str]:
    """Read one file both ways."""
    try:
        ours = read_ours(path, kind)
    except BamError as error:
        ran_out = any(isinstance(each, MemoryError) for each in _causes(error))
        return (Outcome.OVER_ALLOCATION if ran_out else Outcome.TYPED_ERROR), str(error)
    except OverRead as error:
        return Outcome.OVER_READ, str(error)
    except MemoryError as error:
        return Outcome.OVER_ALLOCATION, repr(error)
    except Exception as error:
        return Outcome.WRONG_ERROR, f"{type(error).__name__}: {error}"
    if not ours:
        return Outcome.EQUAL, ""
    say("plain")
    try:
        plain = read_plain(path, kind, list(ours))
    except Exception as error:
        return Outcome.PLAIN_READER_REFUSED, f"{type(error).__name__}: {error}"
    for name, values in ours.items():
        if (
            values.shape != plain[name].shape
            or values.tobytes() != plain[name].astype(values.dtype).tobytes()
        ):
            return Outcome.DIFFERENT, f"column {name!r}: {values.shape} and {plain[name].shape}"
    return Outcome.EQUAL, ""


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def child(seed: int, first: int, end: int, data: Path | None) -> None:
    """Read mutations ``first``, … ``end - 1``; a JSON line before and after each."""
    files = originals(data)
    with tempfile.TemporaryDirectory(prefix="gids-mutations-") as work:
        path = Path(work) / "file"

        def say(*words: object) -> None:
            sys.stdout.write(json.dumps(words) + "\n")
            sys.stdout.flush()

        for file in files:  # loads what is loaded at the first use
            path.write_bytes(file.content)
            judge(path, file.kind, lambda *_: None)
        limit = _status("VmSize") + SPACE_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for number in range(first, end):
            random = np.random.default_rng([seed, number])
            file = file_of(files, number)
            path.write_bytes(mutated(file.content, file.kind, random))
            say("begin", number)
            Path("/proc/self/clear_refs").write_text("5")  # the high-water mark begins anew
            before = _status("VmRSS")
            outcome, text = judge(path, file.kind, say)
            grown = _status("VmHWM") - before
            if grown > RESIDENT_BYTES:
                outcome, text = Outcome.OVER_ALLOCATION, f"{grown} bytes more; {outcome.value}: {text}"
            say("done", number, outcome.value, text[:300])


def _status(key: str) -> int:
    """Bytes, from /proc/self/status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return 1024 * int(line.split()[1])
    raise KeyError(key)


@dataclass
class Progress:
    """How far it is, and what came out."""

    next_number: int
    counts: dict[str, Counter[str]]
    findings: list[Finding]

    def note(self, number: int, file: Original, outcome: Outcome, text: str) -> None:
        self.counts[file.kind.value][outcome.value] += 1
        if outcome not in (Outcome.EQUAL, Outcome.TYPED_ERROR):
            self.findings.append(Finding(number, file.name, outcome, text))
        self.next_number = number + 1


def run_child(seed: int, end: int, progress: Progress, files: Sequence[Original]) -> None:
    """One child process, until it has read all up to `end` or dies."""
    environment = {**os.environ, "MALLOC_ARENA_MAX": "2", "ARROW_DEFAULT_MEMORY_POOL": "system"}
    arguments = ["--child", str(progress.next_number), str(end), "--seed", str(seed)]
    process = subprocess.Popen(
        [sys.executable, __file__, *arguments], env=environment, stdout=subprocess.PIPE, bufsize=0
    )
    assert isinstance(process.stdout, object)
    at, plain, hung = -1, False, False
    for words in _lines(process):
        if words is None:
            hung = True
            process.kill()
            break
        if words[0] == "begin":
            at, plain = words[1], False
        elif words[0] == "plain":
            plain = True
        else:
            progress.note(at, file_of(files, at), Outcome(words[2]), words[3])
            at = -1
    status = process.wait()
    if at < 0 and status:
        raise RuntimeError(f"a child ended with {status} before its first file")
    if at >= 0:
        died = Outcome.CRASH_OF_PLAIN_READER if plain else Outcome.CRASH
        progress.note(at, file_of(files, at), Outcome.HANG if hung else died, f"exit status {status}")


def _lines(process: subprocess.Popen[bytes]) -> Iterator[list[Any] | None]:
    """Lines of the child; None when none comes for too long."""
    stream: BinaryIO = process.stdout  # type: ignore[assignment]
    selector, held = selectors.DefaultSelector(), b""
    selector.register(stream, selectors.EVENT_READ)
    while True:
        if not selector.select(LIMIT_S):
            yield None
            return
        part = os.read(stream.fileno(), 65536)
        if not part:
            return
        *lines, held = (held + part).split(b"\n")
        yield from map(json.loads, lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all of them; the exit status is 1 when any was not read as it should be."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", metavar="F", help="result file; its .partial is where it goes on from")
    parser.add_argument("--child", nargs=2, type=int, metavar=("FIRST", "END"), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    data = Path(os.environ["GIDS_TEST_DATA"]) if os.environ.get("GIDS_TEST_DATA") else None
    if given.child:
        child(given.seed, *given.child, data)
        return 0
    files = originals(data)
    partial = Path(f"{given.json}.partial") if given.json else None
    progress = _resume(partial)
    while progress.next_number < given.n:
        run_child(given.seed, min(given.n, progress.next_number + CHUNK), progress, files)
        if partial:
            _keep(partial, progress)
    totals = sum(progress.counts.values(), Counter[str]())
    result = {
        "schema": SCHEMA,
        "name": "mutations",
        "commit": commit(),
        "command": command(),
        "machine": describe_machine(Path(tempfile.gettempdir())),
        "n": given.n,
        "seed": given.seed,
        "files": {kind.value: sum(file.kind is kind for file in files) for kind in Kind},
        "limits": {"space_bytes": SPACE_BYTES, "resident_bytes": RESIDENT_BYTES, "seconds": LIMIT_S},
        "outcomes": {each.value: totals[each.value] for each in Outcome},
        "by_format": {kind: dict(sorted(counts.items())) for kind, counts in progress.counts.items()},
        "findings": [{**vars(each), "outcome": each.outcome.value} for each in progress.findings[:200]],
    }
    print(json.dumps({**result, "findings": result["findings"][:20]}, indent=1))
    if given.json and partial:
        Path(given.json).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        partial.unlink(missing_ok=True)
    return 1 if progress.findings else 0


def _resume(partial: Path | None) -> Progress:
    if partial is None or not partial.is_file():
        return Progress(0, {kind.value: Counter() for kind in Kind}, [])
    kept = json.loads(partial.read_text(encoding="utf-8"))
    findings = [Finding(**{**each, "outcome": Outcome(each["outcome"])}) for each in kept["findings"]]
    return Progress(kept["next"], {kind: Counter(found) for kind, found in kept["counts"].items()}, findings)


def _keep(partial: Path, progress: Progress) -> None:
    kept = {
        "next": progress.next_number,
        "counts": progress.counts,
        "findings": [{**vars(each), "outcome": each.outcome.value} for each in progress.findings],
    }
    fresh = partial.with_name(partial.name + ".new")
    fresh.write_text(json.dumps(kept), encoding="utf-8")
    fresh.replace(partial)


if __name__ == "__main__":
    sys.exit(main())
