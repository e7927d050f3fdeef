"""keval.torch: a head on the server as a function of torch's."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Kevald, await_reachable

import keval

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("torch.utils.checkpoint")

import keval.torch  # noqa: E402

torch.set_num_threads(1)  # Small operators on busy cores: threads would wait for each other.
D, V = 6, 11


class Local:
    """A head of this process's own, the same calls."""

    def __init__(self, dtype: Any = torch.float64, bias: bool = True) -> None:
        torch.manual_seed(3)
        self.hidden = torch.randn(3, 4, D, dtype=dtype, requires_grad=True)
        self.weight = torch.nn.Parameter(torch.randn(V, D, dtype=dtype))
        self.bias = torch.nn.Parameter(torch.randn(V, dtype=dtype)) if bias else None
        self.targets = torch.randint(V, (3, 4))

    def logp(self) -> Any:
        logits = torch.nn.functional.linear(self.hidden, self.weight, self.bias)
        return logits.log_softmax(-1).gather(-1, self.targets[..., None])[..., 0]

    def gradients(self) -> list[Any]:
        """Of what has one, which is forgotten here."""
        tensors = [tensor for tensor in (self.hidden, self.weight, self.bias) if tensor is not None]
        found = [tensor.grad for tensor in tensors]
        for tensor in tensors:
            tensor.grad = None
        return found


def assert_same(found: list[Any], expected: list[Any], tolerance: float = 1e-12) -> None:
    """float64 sums of at most 12 terms; `tolerance` of the largest value for other types."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert (one - other).abs().max() <= tolerance * other.abs().max()


@contextlib.contextmanager
def head_of(client: keval.Client, local: Local, **options: Any) -> Iterator[keval.torch.RemoteHead]:
    with keval.torch.RemoteHead(client, local.weight, local.bias, **options) as head:
        yield head


@pytest.mark.parametrize("bias", [True, False])
def test_gradients_are_those_of_torch(client: keval.Client, bias: bool) -> None:
    local = Local(bias=bias)
    upstream = torch.randn(3, 4, dtype=torch.float64)
    local.logp().backward(upstream)
    expected = local.gradients()
    with head_of(client, local) as head:
        logp = keval.torch.linear_logp(local.hidden, head, local.targets)
        assert_same([logp.detach()], [local.logp().detach()])
        logp.backward(upstream)
        assert_same(local.gradients(), expected)
        # A strided upstream, targets of 32 bits, and sums over two micro-batches.
        for _ in range(2):
            (2 * keval.torch.linear_logp(local.hidden, head, local.targets.int())).sum().backward()
    found = local.gradients()
    local.logp().sum().backward()
    assert_same(found, [4 * gradient for gradient in local.gradients()])


def test_only_what_needs_a_gradient_is_asked_for(client: keval.Client) -> None:
    local = Local()
    with head_of(client, local) as head:
        local.weight.requires_grad_(False)
        keval.torch.linear_logp(local.hidden, head, local.targets).sum().backward()
        hidden, weight, bias = local.gradients()
        assert weight is None and hidden is not None and bias is not None
        keval.torch.linear_logp(local.hidden.detach(), head, local.targets).sum().backward()
        assert local.gradients()[0] is None
        with torch.no_grad():
            assert not keval.torch.linear_logp(local.hidden, head, local.targets).requires_grad
        assert not keval.torch.weighted_logp(local.hidden.detach(), head, local.targets, torch.ones(3, 4).double())[
            1
        ].requires_grad


def test_one_call_where_the_weights_are_known(client: keval.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    local = Local()
    weights = torch.randn(3, 4, dtype=torch.float64)
    (3 * (local.logp() * weights).sum()).backward()
    expected = local.gradients()
    calls: list[dict[str, Any]] = []
    gradient = client.gradient
    monkeypatch.setattr(client, "gradient", lambda **arguments: calls.append(arguments) or gradient(**arguments))
    with head_of(client, local) as head:
        total, logp = keval.torch.weighted_logp(local.hidden, head, local.targets, weights)
        assert_same([logp, total.detach()], [local.logp().detach(), (local.logp() * weights).sum().detach()])
        (3 * total).backward()
        assert_same(local.gradients(), expected)
        assert len(calls) == 1
        with torch.no_grad():
            keval.torch.weighted_logp(local.hidden, head, local.targets, weights)
        assert "grad_logp" not in calls[1]
        for wrong in (weights.requires_grad_(), torch.ones(3), 1.0):
            with pytest.raises(keval.InvalidArgument) as refused:
                keval.torch.weighted_logp(local.hidden, head, local.targets, wrong)
            assert refused.value.field == "token_weights"


def test_autocast_is_the_one_of_the_forward_pass(client: keval.Client) -> None:
    local = Local(torch.float32)
    upstream = torch.ones(3, 4)
    arguments = {"hidden": local.hidden, "weight": local.weight, "bias": local.bias, "targets": local.targets}
    for dtype, name in ((torch.bfloat16, "bfloat16"), (torch.float16, "float16"), (None, "none")):
        expected = client.gradient(**arguments, grad_logp=upstream, autocast=name)
        with head_of(client, local) as head:
            with torch.autocast("cpu", dtype, enabled=dtype is not None):
                logp = keval.torch.linear_logp(local.hidden, head, local.targets)
                total, _ = keval.torch.weighted_logp(local.hidden, head, local.targets, upstream)
            logp.backward(upstream)  # Outside.
            wanted = [expected.grad_hidden, expected.grad_weight, expected.grad_bias]
            assert_same(local.gradients(), wanted, 0)
            total.backward()
            assert_same(local.gradients(), wanted, 0)
    with head_of(client, local) as head, torch.autocast("cpu", torch.bfloat16):
        half = local.hidden.bfloat16()  # As a layer under autocast gives it.
        assert keval.torch.linear_logp(half, head, local.targets).dtype == torch.float32


def test_an_optimizer_step_is_seen_and_only_what_changed_is_sent(
    client: keval.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = Local()
    sent: list[Any] = []
    put = client.tensors.put
    monkeypatch.setattr(client.tensors, "put", lambda array, **options: sent.append(array) or put(array, **options))
    before = {tensor.handle for tensor in client.tensors.list()}
    with head_of(client, local) as head:
        assert sent == []
        optimizer = torch.optim.SGD([local.weight], lr=0.1)
        for _ in range(3):
            keval.torch.linear_logp(local.hidden, head, local.targets).sum().backward()
            optimizer.step()
            expected = local.logp().detach()
            assert_same([keval.torch.linear_logp(local.hidden, head, local.targets).detach()], [expected])
        assert [array is local.bias for array in sent] == [False, True, False, False, False]
        with torch.no_grad():
            local.weight.data.zero_()  # Behind torch's back.
        head.refresh()
        assert_same([keval.torch.linear_logp(local.hidden, head, local.targets).detach()], [local.logp().detach()])
        assert len({tensor.handle for tensor in client.tensors.list()} - before) == 2
    assert {tensor.handle for tensor in client.tensors.list()} == before


def test_a_change_between_forward_and_backward_is_refused(client: keval.Client) -> None:
    local = Local()
    with head_of(client, local) as head:
        logp = keval.torch.linear_logp(local.hidden, head, local.targets)
        with torch.no_grad():
            local.bias.add_(1)
        with pytest.raises(RuntimeError, match="changed between"):
            logp.sum().backward()


def test_second_derivatives_are_refused(client: keval.Client) -> None:
    local = Local()
    with head_of(client, local) as head:
        for loss in (
            keval.torch.linear_logp(local.hidden, head, local.targets).sum(),
            keval.torch.weighted_logp(local.hidden, head, local.targets, torch.ones(3, 4).double())[0],
        ):
            gradients = torch.autograd.grad(loss, [local.hidden, local.weight, local.bias], create_graph=True)
            for gradient in gradients:
                with pytest.raises(RuntimeError, match="first derivatives alone"):
                    gradient.sum().backward(retain_graph=True)


def test_leases_are_renewed_and_lost_tensors_sent_again(
    start: Callable[..., Kevald], monkeypatch: pytest.MonkeyPatch
) -> None:
    local = Local()
    server = start()
    with keval.Client(server.control) as client, head_of(client, local, lease=100.0) as head:
        expected = keval.torch.linear_logp(local.hidden, head, local.targets)
        before = client.tensors.list()
        later = keval.torch.time.monotonic() + 60
        monkeypatch.setattr(keval.torch.time, "monotonic", lambda: later)
        keval.torch.linear_logp(local.hidden, head, local.targets)
        monkeypatch.undo()
        after = client.tensors.list()
        assert [tensor.handle for tensor in after] == [tensor.handle for tensor in before]
        assert all(new.expire_time_unix_ms > old.expire_time_unix_ms for new, old in zip(after, before, strict=True))
        for tensor in after:
            client.tensors.delete(tensor)
        assert_same([keval.torch.linear_logp(local.hidden, head, local.targets).detach()], [expected.detach()])
        server.restart()
        await_reachable(client)
        expected.sum().backward()
        found = local.gradients()
        local.logp().sum().backward()
        assert_same(found, local.gradients())
        again = keval.torch.linear_logp(local.hidden, head, local.targets)
        server.kill()
        with pytest.raises(keval.Unavailable):
            again.sum().backward()


def test_refusals(client: keval.Client) -> None:
    local = Local()
    for make in (
        lambda: keval.torch.RemoteHead(client, "weight"),
        lambda: keval.torch.RemoteHead(client, local.weight, 1.0),
        lambda: keval.torch.RemoteHead(client, local.weight, lease=0.0),
        lambda: keval.torch.linear_logp(local.hidden, local.weight, local.targets),
        lambda: keval.torch.linear_logp([1.0], keval.torch.RemoteHead(client, local.weight), local.targets),
    ):
        with pytest.raises(keval.InvalidArgument):
            make()
    with head_of(client, local) as head:
        with pytest.raises(keval.InvalidArgument) as refused:
            keval.torch.linear_logp(local.hidden, head, local.targets + V)
        assert refused.value.field == "targets"


def test_activation_checkpointing(client: keval.Client) -> None:
    local = Local()
    local.logp().sum().backward()
    expected = local.gradients()
    with head_of(client, local) as head:
        for reentrant in (False, True):
            torch.utils.checkpoint.checkpoint(
                keval.torch.linear_logp, local.hidden, head, local.targets, use_reentrant=reentrant
            ).sum().backward()
            assert_same(local.gradients(), expected)


def test_a_compiled_function_breaks_its_graph_here(client: keval.Client) -> None:
    local = Local()
    (2 * local.logp()).sum().backward()
    expected = local.gradients()
    with head_of(client, local) as head:

        def loss(hidden: Any) -> Any:
            return (keval.torch.linear_logp(2 * hidden / 2, head, local.targets) * 2).sum()

        torch.compile(loss, backend="eager")(local.hidden).backward()
        assert_same(local.gradients(), expected)
        torch._dynamo.reset()
        with pytest.raises(torch._dynamo.exc.Unsupported):
            torch.compile(loss, backend="eager", fullgraph=True)(local.hidden)


def test_hooks_of_data_parallel_training_run(
    client: keval.Client, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    local = Local()
    local.logp().sum().backward()
    expected = local.gradients()

    class Model(torch.nn.Module):
        def __init__(self, head: keval.torch.RemoteHead) -> None:
            super().__init__()
            self.weight, self.bias = head.weight, head.bias
            self.head = head

        def forward(self, hidden: Any) -> Any:
            return keval.torch.linear_logp(hidden, self.head, local.targets)

    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        with head_of(client, local) as head:
            model = torch.nn.parallel.DistributedDataParallel(Model(head))
            buckets = []

            def hook(state, bucket):  # Without types: torch takes none that are text.
                buckets.append(bucket.buffer().numel())
                future = torch.futures.Future()
                future.set_result(bucket.buffer())
                return future

            model.register_comm_hook(None, hook)
            model(local.hidden).sum().backward()
            assert sum(buckets) == V * D + V
            assert_same(local.gradients(), expected)
    finally:
        torch.distributed.destroy_process_group()


def test_gradients_of_the_head_are_summed_up_on_the_server(client: keval.Client) -> None:
    local = Local()
    upstream = [torch.randn(3, 4, dtype=torch.float64) for _ in range(3)]
    for one in upstream:
        local.logp().backward(one)
    expected = local.gradients()
    with head_of(client, local, accumulate=True) as head:
        assert head.collect() == 0
        for one in upstream:
            keval.torch.linear_logp(local.hidden, head, local.targets).backward(one)
        assert local.weight.grad is None and local.bias.grad is None
        assert head.collect() == 3
        assert client.sessions.list() == []
        assert_same(local.gradients(), expected)
        # What is there already is added to; sums can be thrown away; only the head has a gradient here.
        local.weight.grad = torch.ones_like(local.weight)
        keval.torch.linear_logp(local.hidden.detach(), head, local.targets).sum().backward()
        head.discard()
        assert head.collect() == 0
        total, logp = keval.torch.weighted_logp(local.hidden.detach(), head, local.targets, upstream[0])
        assert not logp.requires_grad
        (2 * total).backward()
        assert head.collect() == 1
        found = local.gradients()
        local.logp().backward(2 * upstream[0])
        assert_same(found[1:], [local.weight.grad + 1, local.bias.grad])


def test_sums_that_were_not_collected(start: Callable[..., Kevald]) -> None:
    local = Local()
    server = start()
    with keval.Client(server.control) as client, head_of(client, local, accumulate=True) as head:
        keval.torch.linear_logp(local.hidden, head, local.targets).sum().backward()
        with torch.no_grad():
            local.weight.add_(1)  # As an optimizer's step would.
        with pytest.raises(RuntimeError, match="collect"):
            keval.torch.linear_logp(local.hidden, head, local.targets).sum().backward()
        head.discard()
        keval.torch.linear_logp(local.hidden, head, local.targets).sum().backward()
        server.restart()
        await_reachable(client)
        with pytest.raises(keval.NotFound, match="restarted"):
            keval.torch.linear_logp(local.hidden, head, local.targets).sum().backward()
        local.gradients()
        keval.torch.linear_logp(local.hidden, head, local.targets).sum().backward()
        server.restart()
        await_reachable(client)
        with pytest.raises(keval.NotFound, match="restarted"):
            head.collect()
        local.gradients()
        keval.torch.linear_logp(local.hidden, head, local.targets).sum().backward()
        assert head.collect() == 1
        found = local.gradients()
        local.logp().sum().backward()
        assert_same(found, local.gradients())
