"""linear_logp from arrays of every kind, in one message and as a stream, against a float64 computation."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from reference import Problem, check

import keval
from keval.v1 import linear_logp_pb2

# 24 x 12 x 40 goes as one message, 30,000 tokens of 24 as a stream.
SIZES = {"unary": (24, 12, 40), "stream": (30_000, 24, 40)}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.float16, np.float64])
def test_every_type_and_size(client: keval.Client, dtype: Any, size: str) -> None:
    problem = Problem.draw(*SIZES[size], dtype=dtype)
    problem.targets = problem.targets.astype(np.int32)
    result = client.gradient(**problem.arguments())
    check(result, problem)
    assert result.grad_hidden.dtype == np.dtype(dtype)
    assert result.dispatch.variant == "portable_addmm"
    assert result.timing.compute_ns > 0


def test_a_wrong_result_is_seen(client: keval.Client) -> None:
    problem = Problem.draw(*SIZES["unary"])
    result = client.gradient(**problem.arguments())
    problem.grad_logp[3] *= 1.01
    with pytest.raises(AssertionError):
        check(result, problem)


def test_what_is_wanted_alone(client: keval.Client) -> None:
    problem = Problem.draw(9, 7, 30)
    check(
        client.gradient(**problem.arguments(), want=("hidden", "bias")), problem, ("logp", "grad_hidden", "grad_bias")
    )
    problem.bias = None
    check(client.gradient(**problem.arguments()), problem)
    with pytest.raises(keval.InvalidArgument) as refused:
        client.gradient(**problem.arguments(), want=("bias",))
    assert refused.value.field == "want"


@pytest.mark.parametrize("size", SIZES)
def test_forward_alone(client: keval.Client, size: str) -> None:
    problem = Problem.draw(*SIZES[size])
    arguments = problem.arguments()
    del arguments["grad_logp"]
    check(client.gradient(**arguments), problem, ("logp",))


def test_options_reach_the_server(client: keval.Client) -> None:
    problem = Problem.draw(20, 7, 30, dtype=ml_dtypes.bfloat16)
    result = client.gradient(
        **problem.arguments(), variant="materialized", device="cpu", force_variant=True, grad_dtype="float32"
    )
    assert result.dispatch.variant == "materialized"
    assert result.grad_weight.dtype == np.float32
    assert client.gradient(**problem.arguments(), chunk_elems=4 * 30).dispatch.chunks == 5


def test_leading_dimensions_come_back(client: keval.Client) -> None:
    problem = Problem.draw(6, 4, 10)
    arguments = problem.arguments()
    for name in ("hidden", "targets", "grad_logp"):
        arguments[name] = arguments[name].reshape(2, 3, *arguments[name].shape[1:])
    result = client.gradient(**arguments)
    assert result.logp.shape == (2, 3)
    assert result.grad_hidden.shape == (2, 3, 4)


def test_no_tokens(client: keval.Client) -> None:
    problem = Problem.draw(0, 4, 10)
    check(client.gradient(**problem.arguments()), problem)
    stored = client.tensors.put(problem.weight)
    check(client.gradient(**{**problem.arguments(), "weight": stored}), problem)  # By handle: a stream.


def test_strided_views_are_those_elements(client: keval.Client) -> None:
    problem = Problem.draw(24, 12, 40)
    arguments = problem.arguments()
    arguments["hidden"] = np.asfortranarray(problem.hidden)
    arguments["weight"] = np.repeat(problem.weight, 2, axis=0)[::2]
    arguments["grad_logp"] = problem.grad_logp.astype(">f4")
    arguments["targets"].flags.writeable = False
    check(client.gradient(**arguments), problem)


def test_operands_on_the_server(client: keval.Client) -> None:
    problem = Problem.draw(24, 12, 40, dtype=ml_dtypes.bfloat16)
    arguments = problem.arguments()
    arguments["weight"] = client.tensors.put(problem.weight)
    arguments["bias"] = client.tensors.put(problem.bias).handle
    check(client.gradient(**arguments), problem)
    client.tensors.delete(arguments["weight"])
    with pytest.raises(keval.NotFound) as missing:
        client.gradient(**arguments)
    assert missing.value.field == "weight.handle"


def test_refusals_name_what_to_change(client: keval.Client) -> None:
    problem = Problem.draw(4, 3, 10)
    arguments = problem.arguments()

    def refused(**changed: Any) -> keval.InvalidArgument:
        with pytest.raises(keval.InvalidArgument) as error:
            client.gradient(**{**arguments, **changed})
        return error.value

    error = refused(targets=np.array([0, 1, 2, 10]))
    assert (error.field, error.value, error.limit) == ("targets", "10", "in [0, 10)")
    assert refused(hidden=problem.hidden[:, :2]).field in ("hidden", "weight")
    assert refused(variant="no such variant").field == "variant"
    # Refused here, without a call.
    assert refused(hidden=[[1.0]]).value == "list"
    assert refused(weight=problem.weight.astype(complex)).field == "weight"
    assert refused(hidden=None).field == "hidden"
    assert refused(want=("logits",)).field == refused(want=()).field == "want"
    assert refused(autocast="int8").field == "autocast"
    assert refused(framework="jax").field == "framework"
    assert refused(timeout=0).field == "timeout"


def test_what_the_device_cannot_do(client: keval.Client) -> None:
    with pytest.raises(keval.FailedPrecondition) as refused:
        client.gradient(**Problem.draw(4, 3, 10).arguments(), device="cuda:7")
    assert refused.value.field == "device"


def test_a_deadline_ends_the_call(client: keval.Client) -> None:
    problem = Problem.draw(2000, 500, 4000)
    client.info()
    with pytest.raises(keval.DeadlineExceeded):
        client.gradient(**problem.arguments(), timeout=0.02)
    check(client.gradient(**Problem.draw(4, 3, 10).arguments()), Problem.draw(4, 3, 10))


def test_a_deadline_that_has_passed(client: keval.Client) -> None:
    problem = Problem.draw(4, 3, 10)
    for size in (problem, Problem.draw(2000, 500, 4000)):
        with keval.Client(client._connection.settings.address) as new, pytest.raises(keval.DeadlineExceeded):
            new.gradient(**size.arguments(), timeout=1e-9)
    with pytest.raises(keval.DeadlineExceeded):
        client.tensors.put(problem.hidden, if_new=True, timeout=1e-9)


def test_contract(client: keval.Client) -> None:
    rows = list(client.contract())
    assert {row.id for row in rows} >= {"P1", "P6", "C1", "C14"}
    failed = linear_logp_pb2.ContractRow.ROW_STATUS_FAIL
    assert [row.id for row in rows if row.status == failed] == []
    with pytest.raises(keval.InvalidArgument) as refused:
        next(client.contract("no such variant"))
    assert refused.value.field == "base"
    begun = client.contract("materialized", seed=3)
    assert next(begun).id
    begun.close()


def test_plan(client: keval.Client) -> None:
    # The figures of docs/contract.md.
    plan = client.plan(4096, 2048, 32768, bias=True)
    assert (plan.chunk_tokens, plan.chunks, plan.add_ops_saved) == (512, 8, 8)
    assert plan.base_bytes - plan.candidate_bytes == plan.saving_bytes == 4 << 30
    for changed, field in (({"vocab_size": 0}, "vocab_size"), ({"dtype": "int7"}, "dtype")):
        with pytest.raises(keval.InvalidArgument) as refused:
            client.plan(**{"num_tokens": 1, "hidden_size": 1, "vocab_size": 1, **changed})
        assert refused.value.field == field
