"""Arrays of numpy, torch and DLPack as contiguous bytes, without a copy where they are that already, and back."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any, Literal

import numpy as np

from keval._errors import DataLoss, invalid_field
from keval.v1 import tensor_pb2 as pb

Framework = Literal["numpy", "torch"]

_NAMES = {
    pb.DATA_TYPE_FLOAT32: "float32",
    pb.DATA_TYPE_FLOAT64: "float64",
    pb.DATA_TYPE_BFLOAT16: "bfloat16",
    pb.DATA_TYPE_FLOAT16: "float16",
    pb.DATA_TYPE_INT32: "int32",
    pb.DATA_TYPE_INT64: "int64",
}
_BY_NAME = {name: value for value, name in _NAMES.items()}
_DTYPES_TEXT = "of float32, float64, bfloat16, float16, int32 or int64"
_ARRAYS_TEXT = "an array of numpy, torch or DLPack, or a tensor that the server keeps"


@dataclasses.dataclass(frozen=True)
class RemoteTensor:
    """A tensor that the server keeps while its lease runs; owned by the caller that put it."""

    handle: str  # "tensors/" and 32 hexadecimal digits.
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    sha256: str  # Hexadecimal; empty where the server doesn't know it.
    expire_time_unix_ms: int  # When the lease ends.

    @classmethod
    def from_proto(cls, info: pb.TensorInfo) -> RemoteTensor:
        return cls(
            info.handle,
            dtype_name(info.spec.dtype),
            tuple(info.spec.shape),
            info.size_bytes,
            info.sha256.hex(),
            info.expire_time_unix_ms,
        )


@dataclasses.dataclass(frozen=True)
class Payload:
    """A tensor's bytes as they travel. `data` keeps alive whatever it is a view of."""

    spec: pb.TensorSpec
    data: memoryview
    framework: Framework


def dtype_name(dtype: int) -> str:
    """DataLoss for a type that this package doesn't know."""
    name = _NAMES.get(dtype)  # type: ignore[call-overload]
    if name is None:
        raise DataLoss(f"the server's tensor has an element type that this client doesn't know: {dtype}")
    return str(name)


def dtype_value(name: str, field: str = "dtype") -> pb.DataType:
    if name not in _BY_NAME:
        raise invalid_field(field, name, "one " + _DTYPES_TEXT)
    return _BY_NAME[name]


def is_torch(array: object) -> bool:
    """Without importing torch where nobody else has."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def payload_of(name: str, array: Any) -> Payload:
    """InvalidArgument (field `name`) for what is no array, or of a type that doesn't travel. Copied only where it isn't
    contiguous, little-endian and in host memory.
    """
    if is_torch(array):
        return _of_torch(name, array)
    if isinstance(array, (np.ndarray, np.generic)):
        return _of_numpy(name, np.asanyarray(array))
    if hasattr(array, "__dlpack__"):
        return _of_dlpack(name, array)
    raise invalid_field(name, type(array).__name__, _ARRAYS_TEXT)


def _of_numpy(name: str, array: np.ndarray[Any, Any]) -> Payload:
    dtype = _BY_NAME.get(array.dtype.name)
    if dtype is None:
        raise invalid_field(name, f"an array of {array.dtype}", _DTYPES_TEXT)
    if isinstance(array, np.ma.MaskedArray):
        raise invalid_field(name, "a masked array", "without a mask")
    shape = array.shape
    contiguous = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    spec = pb.TensorSpec(dtype=dtype, shape=shape)
    return Payload(spec, contiguous.reshape(-1).view(np.uint8).data, "numpy")


def _of_torch(name: str, tensor: Any) -> Payload:
    dtype = _BY_NAME.get(str(tensor.dtype).removeprefix("torch."))
    if dtype is None:
        raise invalid_field(name, f"a tensor of {tensor.dtype}", _DTYPES_TEXT)
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided or tensor.is_meta:
        raise invalid_field(name, "a meta tensor" if tensor.is_meta else f"a tensor of {tensor.layout}", "dense")
    spec = pb.TensorSpec(dtype=dtype, shape=tuple(tensor.shape))
    # Bytes, since numpy has no bfloat16 of its own.
    flat = tensor.detach().cpu().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
    return Payload(spec, flat.numpy().data, "torch")


def _of_dlpack(name: str, array: Any) -> Payload:
    try:
        return _of_numpy(name, np.from_dlpack(array))
    except (BufferError, RuntimeError, TypeError):
        pass  # Another device's memory, bfloat16, which numpy doesn't read from DLPack, or an older numpy's read-only.
    try:
        if hasattr(array, "__array__"):
            return _of_numpy(name, np.asarray(array))
        import torch

        return dataclasses.replace(_of_torch(name, torch.from_dlpack(array)), framework="numpy")
    except (ImportError, BufferError, RuntimeError, TypeError) as error:
        raise invalid_field(name, type(array).__name__, "in host memory, or torch be installed to fetch it") from error


class Received:
    """A tensor of an answer: memory that frames are written into, then the array over it."""

    def __init__(self, name: str, spec: pb.TensorSpec) -> None:
        self.name = name
        self._dtype = dtype_name(spec.dtype)
        self._shape = tuple(spec.shape)
        size = 2 if self._dtype in ("bfloat16", "float16") else 4 if self._dtype in ("float32", "int32") else 8
        for dimension in self._shape:
            if dimension < 0:
                raise DataLoss(f"the server's {name} has a negative dimension")
            size *= dimension
        self._memory = np.empty(size, np.uint8)
        self.buffer = self._memory.data

    def array(self, framework: Framework) -> Any:
        if framework == "torch":
            import torch

            if not self.buffer:
                return torch.empty(self._shape, dtype=getattr(torch, self._dtype))
            return torch.from_numpy(self._memory).view(getattr(torch, self._dtype)).reshape(self._shape)
        return self._memory.view(_numpy_dtype(self._dtype)).reshape(self._shape)


def _numpy_dtype(name: str) -> np.dtype[Any]:
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError as error:
        raise ImportError("bfloat16 in numpy needs ml_dtypes: pip install 'keval[bfloat16]'") from error
    bfloat16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return bfloat16
