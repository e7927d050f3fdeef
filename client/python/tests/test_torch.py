"""Tensors of torch, there and back."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from reference import Problem, check

import keval
from keval._arrays import payload_of

torch = pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_torch_in_torch_out(client: keval.Client, dtype: torch.dtype) -> None:
    name = str(dtype).removeprefix("torch.")
    problem = Problem.draw(24, 12, 40, dtype=ml_dtypes.bfloat16 if name == "bfloat16" else name)
    wide = {"bfloat16": np.float32}.get(name, np.float64)  # numpy has no bfloat16 that torch reads.
    arguments = {
        key: torch.from_numpy(value.astype(wide)).to(dtype)
        if key in ("hidden", "weight", "bias")
        else torch.from_numpy(value)
        for key, value in problem.arguments().items()
    }
    arguments["weight"].requires_grad_()  # As a module's parameter does.
    result = client.gradient(**arguments)
    assert isinstance(result.grad_hidden, torch.Tensor)
    assert result.grad_weight.dtype == dtype
    again = client.gradient(**arguments, framework="numpy")
    check(again, problem)
    assert torch.equal(result.grad_weight.double(), torch.from_numpy(again.grad_weight.astype(np.float64)))


def test_contiguous_tensors_are_not_copied() -> None:
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        tensor = torch.ones(3, 4).to(dtype)
        data = payload_of("hidden", tensor).data
        assert np.frombuffer(data, np.uint8).__array_interface__["data"][0] == tensor.data_ptr()


def test_views_are_those_elements(client: keval.Client) -> None:
    tensor = torch.arange(24.0).reshape(4, 6)
    for view in (tensor.T, tensor[:, ::2], tensor[1:1], tensor[0, 0], torch._neg_view(tensor)):
        back = client.tensors.get(client.tensors.put(view), framework="torch")
        assert torch.equal(back, view)


def test_bfloat16_there_and_back(client: keval.Client) -> None:
    tensor = torch.randn(5, 7).bfloat16()
    stored = client.tensors.put(tensor)
    assert torch.equal(client.tensors.get(stored, framework="torch"), tensor)
    assert client.tensors.get(stored).dtype == ml_dtypes.bfloat16


def test_what_does_not_travel() -> None:
    for tensor in (torch.zeros(2, dtype=torch.complex64), torch.eye(2).to_sparse(), torch.empty(2, device="meta")):
        with pytest.raises(keval.InvalidArgument) as refused:
            payload_of("hidden", tensor)
        assert refused.value.field == "hidden"
