"""Files of the memory classes: a header and arrays in one checked, atomically replaced file.

Layout: 16 magic bytes, the header's length (uint64, little-endian), the header (JSON), each array's bytes (little-endian)
in the header's order, and the SHA-256 of everything before it. Nothing is ever executed or unpickled on reading.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np

from spo_fast._files import replaced

_MAGIC = b"spo_fast.record\n"
_LENGTH = struct.Struct("<Q")
_DIGEST_BYTES = hashlib.sha256().digest_size
_DTYPES = {"<f8": np.dtype("<f8"), "<i8": np.dtype("<i8")}


def write_record(path: str | os.PathLike[str], kind: str, schema: int, state: dict[str, Any]) -> None:
    """Write ``state`` so that ``path`` holds either the old file or the whole new one, whatever happens.

    The bytes go to a temporary file in the same folder, reach the disk, and then take the place of ``path``.

    Args:
        path: where the record goes; its folder must exist.
        kind: what the record is; :func:`read_record` refuses any other.
        schema: version of the keys of ``state``.
        state: float64 and int64 arrays, and values that JSON can hold.
    """
    arrays = {key: np.asarray(value) for key, value in state.items() if isinstance(value, np.ndarray)}
    header = {
        "kind": kind,
        "schema": schema,
        "values": {key: value for key, value in state.items() if key not in arrays},
        "arrays": [
            {"name": key, "dtype": array.dtype.newbyteorder("<").str, "shape": array.shape}
            for key, array in arrays.items()
        ],
    }
    encoded = json.dumps(header, allow_nan=False).encode("ascii")
    body = b"".join(
        [_MAGIC, _LENGTH.pack(len(encoded)), encoded]
        + [array.astype(array.dtype.newbyteorder("<"), order="C").tobytes() for array in arrays.values()]
    )

    with replaced(path) as descriptor, open(descriptor, "wb", closefd=False) as file:
        file.write(body)
        file.write(hashlib.sha256(body).digest())


def read_record(path: str | os.PathLike[str], kind: str, schema: int) -> dict[str, Any]:
    """The ``state`` given to :func:`write_record`.

    Raises:
        ValueError: naming the file, if it is truncated, altered, of another kind or of an unknown schema.
    """
    name = os.fspath(path)
    data = Path(path).read_bytes()
    if not data.startswith(_MAGIC):
        raise ValueError(
            f"{name}: expected a {kind} file of spo_fast, got a file that does not begin like one"
        )
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(body) < len(_MAGIC) + _LENGTH.size or hashlib.sha256(body).digest() != digest:
        raise ValueError(f"{name}: the checksum does not match; the file is truncated or damaged")
    try:
        (length,) = _LENGTH.unpack_from(body, len(_MAGIC))
        start = len(_MAGIC) + _LENGTH.size
        header = json.loads(body[start : start + length])
        if (header["kind"], header["schema"]) != (kind, schema):
            raise ValueError(
                f"{name}: expected {kind} of schema {schema}, got {header['kind']} of schema {header['schema']}"
            )
        state: dict[str, Any] = dict(header["values"])
        offset = start + length
        for entry in header["arrays"]:
            dtype, shape = _DTYPES[entry["dtype"]], tuple(entry["shape"])
            count = int(np.prod(shape, dtype=np.int64))
            array = np.frombuffer(body, dtype=dtype, count=count, offset=offset)
            state[entry["name"]] = array.astype(dtype.newbyteorder("=")).reshape(shape)
            offset += array.nbytes
    except (KeyError, TypeError, struct.error) as error:
        raise ValueError(f"{name}: the file is not a well-formed {kind} file ({error!r})") from error
    return state
