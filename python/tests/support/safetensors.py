"""Tensors on disk: an 8-byte length, a JSON header, raw little-endian data."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

_CODES = {"float64": "F64", "float32": "F32", "int64": "I64", "int8": "I8"}
_TYPES = {code: np.dtype(name) for name, code in _CODES.items()}


def write(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """Writes arrays by name."""
    header, data, end = {}, [], 0
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        begin, end = end, end + len(raw)
        header[name] = {"dtype": _CODES[str(array.dtype)], "shape": list(array.shape), "data_offsets": [begin, end]}
        data.append(raw)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def read(path: Path) -> dict[str, np.ndarray]:
    """Reads arrays by name."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    header.pop("__metadata__", None)
    return {
        name: np.frombuffer(data[slice(*entry["data_offsets"])], _TYPES[entry["dtype"]]).reshape(entry["shape"]).copy()
        for name, entry in header.items()
    }
