"""linear_logp and its gradients in plain Python floats (float64), independent of the operator, and how far
docs/contract.md C2 lets a result be from them.
"""

import math
import random
import struct


def round_bfloat16(value):
    """To nearest, ties to even; finite values alone."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    bits += 0x7FFF + ((bits >> 16) & 1)
    return struct.unpack("<f", struct.pack("<I", bits & 0xFFFF0000))[0]


# By the part of the proto's names behind DATA_TYPE_: struct's letter, and how a value is rounded to the type.
FORMATS = {"FLOAT32": "f", "FLOAT64": "d", "FLOAT16": "e", "INT32": "i", "INT64": "q"}


def encode(values, dtype):
    """Little-endian bytes of numbers."""
    if dtype == "BFLOAT16":
        return b"".join(struct.pack("<f", round_bfloat16(value))[2:] for value in values)
    return struct.pack(f"<{len(values)}{FORMATS[dtype]}", *values)


def decode(data, dtype):
    if dtype == "BFLOAT16":
        return [struct.unpack("<f", b"\0\0" + data[i : i + 2])[0] for i in range(0, len(data), 2)]
    count = len(data) // struct.calcsize("<" + FORMATS[dtype])
    return list(struct.unpack(f"<{count}{FORMATS[dtype]}", data))


class Problem:
    """Seeded inputs that `dtype` holds exactly, flat and row-major."""

    def __init__(self, num_tokens, hidden_size, vocab_size, dtype="FLOAT32", bias=True, seed=1):
        generator = random.Random(seed)
        self.n, self.d, self.v, self.dtype = num_tokens, hidden_size, vocab_size, dtype
        # That of logp and its upstream.
        self.logp_dtype = "FLOAT64" if dtype == "FLOAT64" else "FLOAT32"

        def draw(count, scale, dtype):
            return decode(encode([generator.gauss(0, scale) for _ in range(count)], dtype), dtype)

        self.hidden = draw(self.n * self.d, 1, dtype)
        self.weight = draw(self.v * self.d, self.d**-0.5, dtype)
        self.bias = draw(self.v, 0.1, dtype) if bias else None
        self.targets = [generator.randrange(self.v) for _ in range(self.n)]
        self.grad_logp = draw(self.n, 1, self.logp_dtype)


# Unit roundoff of a result's type.
ROUNDOFF = {"FLOAT32": 2.0**-24, "FLOAT64": 2.0**-53, "FLOAT16": 2.0**-11, "BFLOAT16": 2.0**-8}


def epsilons(problem, max_logit):
    """C2's epsilon, and what it has before the magnitude for logp. C2 is of float32 arithmetic; float64 results and
    this file's differ by the order of sums of at most 1,000 terms, each worth 2^-53 of the sum of magnitudes.
    """
    if problem.dtype == "FLOAT64":
        return 1000 * 2.0**-53 * max(1.0, max_logit), 1000 * 2.0**-53
    return 5e-6 + 8 * 2.0**-24 * max_logit, 8 * 2.0**-24


class Expected:
    """Closed form of `problem`: `values` by name, and `magnitudes` (C2's S), both flat."""

    def __init__(self, problem):
        n, d, v = problem.n, problem.d, problem.v
        bias = problem.bias or [0.0] * v
        logp = []
        grads = {"grad_hidden": [0.0] * (n * d), "grad_weight": [0.0] * (v * d), "grad_bias": [0.0] * v}
        sums = {name: list(values) for name, values in grads.items()}
        self.max_logit = 0.0
        for i in range(n):
            row = problem.hidden[i * d : (i + 1) * d]
            logits = [
                math.fsum(row[k] * problem.weight[j * d + k] for k in range(d)) + bias[j] for j in range(v)
            ]
            self.max_logit = max(self.max_logit, max(map(abs, logits)))
            top = max(logits)
            log_sum = top + math.log(math.fsum(math.exp(x - top) for x in logits))
            logp.append(logits[problem.targets[i]] - log_sum)
            upstream = problem.grad_logp[i]
            for j in range(v):
                onehot = 1.0 if j == problem.targets[i] else 0.0
                softmax = math.exp(logits[j] - log_sum)
                dz, magnitude = upstream * (onehot - softmax), abs(upstream) * (onehot + softmax)
                grads["grad_bias"][j] += dz
                sums["grad_bias"][j] += magnitude
                for k in range(d):
                    weight = problem.weight[j * d + k]
                    grads["grad_hidden"][i * d + k] += dz * weight
                    sums["grad_hidden"][i * d + k] += magnitude * abs(weight)
                    grads["grad_weight"][j * d + k] += dz * row[k]
                    sums["grad_weight"][j * d + k] += magnitude * abs(row[k])
        self.values = {"logp": logp, **grads}
        self.magnitudes = sums
        self._problem = problem

    def fault(self, name, got, dtype):
        """Why `got`, a result of type `dtype`, isn't right by C2; None where it is."""
        want = self.values[name]
        if len(got) != len(want):
            return f"{name}: {len(got)} values, not {len(want)}"
        epsilon, logp_epsilon = epsilons(self._problem, self.max_logit)
        errors = [abs(a - b) for a, b in zip(got, want)]
        if name == "logp":
            limit = logp_epsilon * max([1.0, self.max_logit, *map(abs, want)])
            error = max(errors, default=0.0)
        else:
            limit = epsilon * math.hypot(*self.magnitudes[name]) + ROUNDOFF[dtype] * math.hypot(*want)
            error = math.hypot(*errors)
        return None if error <= limit else f"{name}: {error} away, at most {limit} is right"
