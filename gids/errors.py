"""Errors of `gids`: typed, with fields, and each message names the next step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from bam.errors import BamError


class GidsError(BamError):
    """Base of every error `gids` raises on purpose."""


class ConfigFileError(GidsError, ValueError):
    """A configuration file holds something that cannot work.

    Attributes
    ----------
    file, key, expected : str
    value : object
        What was found; None: nothing.
    """

    def __init__(self, file: str, key: str, expected: str, value: object) -> None:
        self.file, self.key, self.expected, self.value = file, key, expected, value
        found = "nothing" if value is None else value if isinstance(value, str) and not key else repr(value)
        super().__init__(f"{file}: {key + ': ' if key else ''}expected {expected}, found {found}")


class UnfinishedWorkError(GidsError, RuntimeError):
    """A folder holds work that cannot be continued by this call.

    Attributes
    ----------
    folder, reason, remedy : str
    """

    def __init__(self, folder: str, reason: str, remedy: str) -> None:
        self.folder, self.reason, self.remedy = folder, reason, remedy
        super().__init__(f"{folder}: {reason}. {remedy}")


class DiskFullError(GidsError, OSError):
    """There is not enough room for what is to be written. What was written stays and is not written again.

    Attributes
    ----------
    file : str
    needed_bytes, free_bytes : int
    errno : int or None
        The system's reason; None when the room was found too small before any work.
    """

    def __init__(self, file: str, needed_bytes: int, free_bytes: int, errno: int | None = None) -> None:
        self.file, self.needed_bytes, self.free_bytes = file, needed_bytes, free_bytes
        super().__init__(
            f"{file}: {needed_bytes:,} more bytes are needed, {free_bytes:,} are free. "
            "Make room (or raise the quota or file size limit) and run the same command again; it goes on"
        )
        self.errno = errno


class GpuMemoryExceeded(GidsError, MemoryError):
    """What a loader would hold on the GPU does not fit. Nothing of it was made.

    Attributes
    ----------
    parts : dict of str to int
        Bytes by the setting that decides them.
    usable_bytes : int
        Memory of the GPU that there is for them.
    """

    def __init__(self, parts: Mapping[str, int], usable_bytes: int) -> None:
        self.parts, self.usable_bytes = dict(parts), usable_bytes
        largest = max(self.parts, key=lambda name: self.parts[name])
        listed = ", ".join(f"{name} {size:,}" for name, size in self.parts.items() if size)
        super().__init__(
            f"the loader needs {sum(self.parts.values()):,} bytes of the GPU's memory ({listed}), and "
            f"{usable_bytes:,} can be used. Lower {largest!r}"
        )


class NonFiniteLoss(GidsError, ArithmeticError):
    """Training came to a loss that is no number; its weights are lost, and the checkpoint before is whole.

    Attributes
    ----------
    step : int
        Number of the step, from 0.
    loss : float
    """

    def __init__(self, step: int, loss: float) -> None:
        self.step, self.loss = step, loss
        super().__init__(
            f"the loss of step {step} is {loss}. Either features are NaN or infinite (`gids convert` refuses "
            "them and names the first one), or training.learning_rate is too large"
        )


class DatasetError(GidsError, ValueError):
    """A data set folder is not what it should be.

    Attributes
    ----------
    file : str
    expected, found : str
    """

    def __init__(self, file: str, expected: str, found: str) -> None:
        self.file, self.expected, self.found = file, expected, found
        super().__init__(f"{file}: expected {expected}, found {found}")


class ChecksumError(DatasetError):
    """Bytes of a store are not those that were written.

    Attributes
    ----------
    offset, length : int
        The chunk, in bytes of the file.
    """

    def __init__(self, file: str, offset: int, length: int, expected: int, found: int) -> None:
        self.offset, self.length = offset, length
        super().__init__(
            file, f"checksum {expected:08x} of bytes {offset} to {offset + length}", f"{found:08x}"
        )


class TableError(DatasetError):
    """A table's file or column is not what is needed.

    Attributes
    ----------
    column : str or None
    batch : int or None
        Number of the record batch or row group in its file.
    """

    def __init__(
        self, file: str, expected: str, found: str, column: str | None = None, batch: int | None = None
    ) -> None:
        self.column, self.batch = column, batch
        where = "" if column is None else f": column {column!r}"
        where += "" if batch is None else f", record batch {batch}"
        super().__init__(file + where, expected, found)
        self.file = file


class DatabaseError(GidsError, RuntimeError):
    """A database cannot be reached or will not do what is asked.

    Attributes
    ----------
    database : str
        Its address, without a password.
    reason : str
    """

    def __init__(self, database: str, reason: str) -> None:
        self.database, self.reason = database, reason
        super().__init__(f"{database}: {reason}")


class UnknownColumn(GidsError, KeyError):
    """The table has no column of this name.

    Attributes
    ----------
    column : str
    known : tuple of str
    """

    def __init__(self, column: str, known: Iterable[str]) -> None:
        self.column, self.known = column, tuple(known)
        super().__init__(f"no column {column!r}; {did_you_mean(str(column), self.known)}")

    __str__ = Exception.__str__


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A sentence that suggests the nearest of the known names, else lists them.

    Parameters
    ----------
    name : str
        What was asked for.
    known : iterable of str
        What there is.
    """
    names = list(known)
    near = get_close_matches(name, names, n=1)
    if near:
        return f"did you mean {near[0]!r}?"
    return "known: " + (", ".join(repr(each) for each in names) or "none")


class UnknownNodeType(GidsError, KeyError):
    """The graph has no node type of this name.

    Attributes
    ----------
    node_type : str
    known : tuple of str
    """

    def __init__(self, node_type: str, known: Iterable[str]) -> None:
        self.node_type, self.known = node_type, tuple(known)
        super().__init__(f"no node type {node_type!r}; {did_you_mean(str(node_type), self.known)}")

    __str__ = Exception.__str__


class UnknownEdgeType(GidsError, KeyError):
    """The graph has no such edge type, or several relations carry the name given.

    Attributes
    ----------
    edge_type : str
        As it was asked for, `src__rel__dst` or a relation.
    known : tuple of str
        The edge types there are, `src__rel__dst`; of an ambiguous relation, those it may mean.
    ambiguous : bool
    """

    def __init__(self, edge_type: str, known: Iterable[str], ambiguous: bool = False) -> None:
        self.edge_type, self.known, self.ambiguous = edge_type, tuple(known), ambiguous
        if ambiguous:
            text = f"relation {edge_type!r} is not unique; name one of {', '.join(self.known)}"
        else:
            relations = [name.split("__")[1] for name in self.known if name.count("__") == 2]
            candidates = self.known if "__" in edge_type else relations
            text = f"no edge type {edge_type!r}; {did_you_mean(edge_type, candidates)}"
        super().__init__(text)

    __str__ = Exception.__str__


class GraphError(GidsError, ValueError):
    """Arrays do not make up the graph they are said to be.

    Attributes
    ----------
    where : str
        The array: a file, or the edge type and what it holds.
    expected, found : str
    """

    def __init__(self, where: str, expected: str, found: str) -> None:
        self.where, self.expected, self.found = where, expected, found
        super().__init__(f"{where}: expected {expected}, found {found}")


class NodeOutOfRange(GidsError, IndexError):
    """A node id is not in ``[0, num_nodes)``.

    Attributes
    ----------
    node_type : str
    node_id : int
    num_nodes : int
    position : int
        Index of the offending id in the caller's list.
    """

    def __init__(self, node_type: str, node_id: int, num_nodes: int, position: int) -> None:
        self.node_type, self.node_id, self.num_nodes, self.position = node_type, node_id, num_nodes, position
        super().__init__(
            f"node {node_id} of type {node_type!r} (at position {position}) is out of range: "
            f"there are {num_nodes:,} such nodes"
        )


class DuplicateSeed(GidsError, ValueError):
    """A mini-batch names one seed twice; a block's destination nodes are distinct.

    Attributes
    ----------
    node_type : str
    node_id : int
    position : int
        Index of the second occurrence in the caller's list.
    """

    def __init__(self, node_type: str, node_id: int, position: int) -> None:
        self.node_type, self.node_id, self.position = node_type, node_id, position
        super().__init__(
            f"seed {node_id} of type {node_type!r} is there twice (again at position {position}); "
            "pass each seed once, for example numpy.unique(seeds)"
        )


class PackageMissing(GidsError, ImportError):
    """An optional package is needed for this call.

    Attributes
    ----------
    package, needed_for, remedy : str
    """

    def __init__(self, package: str, needed_for: str, remedy: str) -> None:
        self.package, self.needed_for, self.remedy = package, needed_for, remedy
        super().__init__(f"{needed_for} needs {package}. {remedy}")


class LoaderStopped(GidsError, RuntimeError):
    """A loader's iterator was closed while its next mini-batch was awaited; start a new iteration."""

    def __init__(self) -> None:
        super().__init__("the iterator was closed; iterate over the loader again")
