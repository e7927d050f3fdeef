"""Which arrays travel, and that nothing is copied where it needn't be."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference import Problem, check

import keval
from keval._arrays import Received, payload_of
from keval.v1 import tensor_pb2


def address_of(data: memoryview) -> int:
    return np.frombuffer(data, np.uint8).__array_interface__["data"][0]


class Exporter:
    """An array that has DLPack alone."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int64])
def test_contiguous_arrays_are_not_copied(dtype: Any) -> None:
    array = np.arange(12).astype(dtype).reshape(3, 4)
    array.flags.writeable = False
    payload = payload_of("hidden", array)
    assert address_of(payload.data) == array.__array_interface__["data"][0]
    assert (list(payload.spec.shape), len(payload.data)) == ([3, 4], array.nbytes)


def test_dlpack_is_not_copied() -> None:
    array = np.arange(12, dtype=np.float32)
    payload = payload_of("hidden", Exporter(array))
    assert address_of(payload.data) == array.__array_interface__["data"][0]


def test_dlpack_over_the_wire(client: keval.Client) -> None:
    problem = Problem.draw(24, 12, 40)
    arguments = problem.arguments()
    for name in ("hidden", "weight", "targets"):
        arguments[name] = Exporter(arguments[name])
    check(client.gradient(**arguments), problem)


class Elsewhere(Exporter):
    """Of a device that numpy can't reach."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("another device")


class Fetched(Elsewhere):
    """It copies itself to the host where it is asked to."""

    def __array__(self, *arguments: Any, **options: Any) -> np.ndarray[Any, Any]:
        return self._array.astype(ml_dtypes.bfloat16)


def test_dlpack_of_other_devices() -> None:
    payload = payload_of("hidden", Fetched(np.arange(3.0)))
    assert payload.spec.dtype == tensor_pb2.DATA_TYPE_BFLOAT16
    with pytest.raises(keval.InvalidArgument) as refused:
        payload_of("hidden", Elsewhere(np.arange(3.0)))
    assert (refused.value.field, refused.value.value) == ("hidden", "Elsewhere")


def test_bfloat16_without_ml_dtypes(monkeypatch: pytest.MonkeyPatch) -> None:
    received = Received("logp", tensor_pb2.TensorSpec(dtype=tensor_pb2.DATA_TYPE_BFLOAT16, shape=[2]))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match=r"keval\[bfloat16\]"):
        received.array("numpy")


def test_types_of_the_server_that_are_unknown() -> None:
    for spec in (tensor_pb2.TensorSpec(dtype=99, shape=[2]), tensor_pb2.TensorSpec(dtype=1, shape=[-1])):
        with pytest.raises(keval.DataLoss):
            Received("logp", spec)


@pytest.mark.parametrize(
    "array",
    [[1.0], 1.0, None, np.array(["a"]), np.zeros(2, bool), np.zeros(2, np.uint8), np.zeros(2, "O"), np.ma.zeros(2)],
)
def test_what_does_not_travel(array: Any) -> None:
    with pytest.raises(keval.InvalidArgument) as refused:
        payload_of("hidden", array)
    assert refused.value.field == "hidden"
