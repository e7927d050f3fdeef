"""From a reference.Problem to the messages of linear_logp, and from an answer to its faults."""

from reference import decode, encode

RESULTS = ("logp", "grad_hidden", "grad_weight", "grad_bias")
FLOATS = ("FLOAT32", "FLOAT64", "FLOAT16", "BFLOAT16")


def data_type(client, name):
    return getattr(client.v1, "DATA_TYPE_" + name)


def operand(client, values, dtype, *shape):
    """With its bytes inline."""
    return client.v1.Operand(spec=client.spec(data_type(client, dtype), *shape), data=encode(values, dtype))


def inputs(client, problem, target_dtype="INT64", upstream=True):
    p = problem
    message = client.v1.LinearLogpInputs(
        hidden=operand(client, p.hidden, p.dtype, p.n, p.d),
        weight=operand(client, p.weight, p.dtype, p.v, p.d),
        targets=operand(client, p.targets, target_dtype, p.n),
    )
    if p.bias is not None:
        message.bias.CopyFrom(operand(client, p.bias, p.dtype, p.v))
    if upstream:
        message.grad_logp.CopyFrom(operand(client, p.grad_logp, p.logp_dtype, p.n))
    return message


def result_type(client, operand_message):
    return next(name for name in FLOATS if data_type(client, name) == operand_message.spec.dtype)


def faults(client, response, expected):
    """Of the results that `response` has: why they aren't those of reference.Expected; empty where they are."""
    found = []
    for name in RESULTS:
        if response.HasField(name):
            result = getattr(response, name)
            dtype = result_type(client, result)
            found.append(expected.fault(name, decode(result.data, dtype), dtype))
    return [fault for fault in found if fault is not None]
