"""CUDA kernels from source at first use: NVRTC makes a cubin, which is kept on disk for the next process.

NVRTC is called directly, so kernels compile on machines without a GPU too; only :func:`load` needs CuPy. No
nvcc is needed, only NVRTC and the headers of libcu++ (`pip install 'gids-bam[cuda13]'`, or a CUDA toolkit).
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bam.errors import ConfigError, EngineUnavailable

logger = logging.getLogger(__name__)

#: Headers shared by host and GPU, and the kernels of this package.
INCLUDE_FOLDER = Path(__file__).parent / "include"
KERNEL_FOLDER = Path(__file__).parent / "cuda"

_OPTIONS = ("--std=c++17", "--device-as-default-execution-space")
_REMEDY = (
    "Install the extra cuda13 or cuda12 of this package, or a CUDA toolkit, and set CUDA_HOME to its folder"
)
_DIGEST_BYTES = hashlib.sha256().digest_size


def load(source: Path, *, options: Sequence[str] = (), include: Sequence[Path] = ()) -> Any:
    """The kernels of one `.cu` file, for the current device.

    Parameters
    ----------
    source : Path
    options : sequence of str
        Of NVRTC, beside those that every kernel here is compiled with.
    include : sequence of Path
        Folders of headers, beside those of `bam`.

    Returns
    -------
    cupy.RawModule
        ``module.get_function(name)`` gives a kernel declared ``extern "C"``.

    Raises
    ------
    EngineUnavailable
        NVRTC, libcu++ or CuPy is missing.
    ConfigError
        The source does not compile; the compiler's messages are in it.
    """
    try:
        import cupy
    except ImportError as error:
        raise EngineUnavailable("cuda", f"CuPy cannot be imported ({error})", _REMEDY) from error
    arch = f"sm_{cupy.cuda.Device().compute_capability}"
    cubin = compiled(source.read_text(), source.name, arch, options, include, f"cupy {cupy.__version__}")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        module = cupy.RawModule(path=file.name)
        module.compile()  # loads it now, while the file is there
    return module


def compiled(
    source: str,
    name: str,
    arch: str,
    options: Sequence[str] = (),
    include: Sequence[Path] = (),
    salt: str = "",
) -> bytes:
    """The cubin of `source` for `arch` (``"sm_90"``), from the kernel cache or compiled now.

    Parameters
    ----------
    source, name : str
        CUDA C++, and what messages call it.
    salt : str
        Part of the cache's key: versions of whatever will use the cubin.

    Raises
    ------
    EngineUnavailable, ConfigError
        As :func:`load`.
    """
    flags = [*_OPTIONS, f"--gpu-architecture={arch}", *options]
    folders = [INCLUDE_FOLDER, *include]
    path = _cache_folder() / f"{Path(name).stem}-{_key(source, flags, folders, salt)}.cubin"
    found = _read(path)
    if found is not None:
        return found
    flags += [f"--include-path={folder}" for folder in (*folders, *_cuda_include_folders())]
    cubin = _compile(source, name, flags)
    _write(path, cubin)
    return cubin


def _key(source: str, flags: Sequence[str], folders: Sequence[Path], salt: str) -> str:
    """Everything that decides what the cubin is: source, headers, options, compiler, and who will load it."""
    digest = hashlib.sha256()
    parts = [source, *flags, salt, "nvrtc {}.{}".format(*_version())]
    for folder in folders:
        for header in sorted(folder.rglob("*")):
            if header.is_file():
                parts += [str(header.relative_to(folder)), header.read_text()]
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little") + encoded)
    return digest.hexdigest()[:32]


def _cache_folder() -> Path:
    chosen = os.environ.get("BAM_KERNEL_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gids-bam" / "kernels"


def _read(path: Path) -> bytes | None:
    """The cached cubin; None when there is none or it is damaged. An entry is its SHA-256, then the cubin."""
    try:
        entry = path.read_bytes()
    except OSError:
        return None
    digest, cubin = entry[:_DIGEST_BYTES], entry[_DIGEST_BYTES:]
    if cubin and hashlib.sha256(cubin).digest() == digest:
        return cubin
    logger.warning("%s is damaged: its kernels are compiled again", path)
    return None


def _write(path: Path, cubin: bytes) -> None:
    """Atomically, so that another process sees the old entry or the new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
        with os.fdopen(descriptor, "wb") as file:
            file.write(hashlib.sha256(cubin).digest() + cubin)
        os.replace(temporary, path)
    except OSError as error:
        logger.warning("the kernel cache %s cannot be written (%s)", path.parent, error)


def _compile(source: str, name: str, flags: Sequence[str]) -> bytes:
    nvrtc = _nvrtc()
    program = c_void_p()
    _check(nvrtc.nvrtcCreateProgram(byref(program), source.encode(), name.encode(), 0, None, None))
    try:
        encoded = (c_char_p * len(flags))(*(flag.encode() for flag in flags))
        status = nvrtc.nvrtcCompileProgram(program, len(flags), encoded)
        if status:
            messages = _take(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
            raise ConfigError("kernel", name, f"source that compiles:\n{messages.decode(errors='replace')}")
        return _take(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
    finally:
        nvrtc.nvrtcDestroyProgram(byref(program))


def _take(get_size: Any, get: Any, program: c_void_p) -> bytes:
    size = c_size_t()
    _check(get_size(program, byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(get(program, buffer))
    return buffer.raw[: size.value]


def _check(status: int) -> None:
    if status:
        text = _nvrtc().nvrtcGetErrorString(status).decode()
        raise EngineUnavailable("cuda", f"NVRTC says {text}", _REMEDY)


def _version() -> tuple[int, int]:
    major, minor = c_int(), c_int()
    _check(_nvrtc().nvrtcVersion(byref(major), byref(minor)))
    return major.value, minor.value


@functools.cache
def _nvrtc() -> ctypes.CDLL:
    """NVRTC: of pip's packages, of a CUDA toolkit, or wherever the system finds it."""
    names = [str(path) for root in _cuda_roots() for path in _libraries(root)]
    for name in [*names, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]:
        try:
            # NVRTC opens its built-in functions by their bare name, and finds them if they are loaded.
            for builtins in Path(name).parent.glob("libnvrtc-builtins.so*") if "/" in name else ():
                ctypes.CDLL(str(builtins))
            library = ctypes.CDLL(name)
        except OSError:
            continue
        library.nvrtcGetErrorString.restype = c_char_p
        library.nvrtcDestroyProgram.argtypes = [POINTER(c_void_p)]
        return library
    raise EngineUnavailable("cuda", "NVRTC (libnvrtc.so) was not found", _REMEDY)


def user_options() -> tuple[str, ...]:
    """Options with which your own kernels find `bam/array.cuh`, for ``cupy.RawModule`` and others."""
    folders = (INCLUDE_FOLDER, *_cuda_include_folders())
    return ("-std=c++17", *(f"-I{folder}" for folder in folders))


def available() -> bool:
    """Whether kernels can be compiled here; says nothing of a GPU."""
    try:
        _nvrtc()
        _cuda_include_folders()
    except EngineUnavailable:
        return False
    return True


def _libraries(root: Path) -> Iterator[Path]:
    for folder in ("lib64", "lib"):
        yield from sorted((root / folder).glob("libnvrtc.so.[0-9]*"))


@functools.cache
def _cuda_include_folders() -> tuple[Path, ...]:
    """Where `<cuda/atomic>` is."""
    for root in _cuda_roots():
        for folder in (root / "include" / "cccl", root / "include"):
            if (folder / "cuda" / "atomic").is_file():
                return (folder, root / "include")
    raise EngineUnavailable("cuda", "the headers of libcu++ (<cuda/atomic>) were not found", _REMEDY)


def _cuda_roots() -> list[Path]:
    """Folders that may hold a CUDA toolkit, or a part of one, in the order they are looked at."""
    roots = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    packages = find_spec("nvidia")
    if packages is not None and packages.submodule_search_locations is not None:
        for folder in packages.submodule_search_locations:
            roots += sorted(Path(folder).glob("cu[0-9]*")) + sorted(Path(folder).glob("cuda_*"))
    return [*roots, Path("/usr/local/cuda")]
