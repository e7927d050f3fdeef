"""linear_logp in float64, independent of the operator."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

# Unit roundoff of a result's type.
ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53, "float16": 2.0**-11, "bfloat16": 2.0**-8}


@dataclasses.dataclass
class Problem:
    """Seeded inputs in `dtype`, which holds them exactly."""

    hidden: Any
    weight: Any
    bias: Any
    targets: Any
    grad_logp: Any

    @classmethod
    def draw(cls, n: int, d: int, v: int, dtype: Any = np.float32, bias: bool = True) -> Problem:
        rng = np.random.default_rng(7)
        upstream = np.float64 if np.dtype(dtype) == np.float64 else np.float32
        return cls(
            hidden=rng.standard_normal((n, d)).astype(dtype),
            weight=(rng.standard_normal((v, d)) / d**0.5).astype(dtype),
            bias=(rng.standard_normal(v) / 10).astype(dtype) if bias else None,
            targets=rng.integers(0, v, n),
            grad_logp=rng.standard_normal(n).astype(upstream),
        )

    def arguments(self) -> dict[str, Any]:
        return vars(self).copy()


def expected(problem: Problem) -> dict[str, Any]:
    hidden, weight = problem.hidden.astype(np.float64), problem.weight.astype(np.float64)
    logits = hidden @ weight.T
    if problem.bias is not None:
        logits += problem.bias.astype(np.float64)
    top = logits.max(axis=1, keepdims=True)
    log_softmax = logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True))
    rows = np.arange(len(problem.targets))
    dz = -np.exp(log_softmax)
    dz[rows, problem.targets] += 1
    dz *= problem.grad_logp.astype(np.float64)[:, None]
    return {
        "logp": log_softmax[rows, problem.targets],
        "grad_hidden": dz @ weight,
        "grad_weight": dz.T @ hidden,
        "grad_bias": dz.sum(axis=0) if problem.bias is not None else None,
    }


def check(result: Any, problem: Problem, names: Any = ("logp", "grad_hidden", "grad_weight", "grad_bias")) -> None:
    """That `result` has right arrays of numpy under `names`, and None elsewhere. Bounds: a float32 result of sums of at
    most some hundred terms, 1e-5 of its largest value, and one rounding to its own type.
    """
    want = expected(problem)
    for name in want:
        got = getattr(result, name)
        if name not in names or want[name] is None:
            assert got is None, name
            continue
        assert got.shape == want[name].shape, name
        scale = np.abs(want[name]).max(initial=1.0)
        limit = scale * ((1e-12 if got.dtype == np.float64 else 1e-5) + ROUNDOFF[got.dtype.name])
        assert np.abs(got.astype(np.float64) - want[name]).max(initial=0.0) <= limit, name
