"""A server's linear_logp as a function of torch's, with gradients: the language model's head runs there.

head = keval.torch.RemoteHead(client, lm_head.weight)
logp = keval.torch.linear_logp(hidden, head, targets)
(-logp.mean()).backward()
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import torch

from keval._arrays import RemoteTensor
from keval._client import Client
from keval._errors import Error, NotFound, invalid_field
from keval._gradient import Autocast, GradientResult, Want
from keval.v1 import linear_logp_pb2 as pb

__all__ = ["RemoteHead", "linear_logp", "weighted_logp"]

_AUTOCASTS: dict[Any, Autocast] = {torch.bfloat16: "bfloat16", torch.float16: "float16"}
_NAMES: tuple[Want, ...] = ("hidden", "weight", "bias")


class _Resident:
    """A tensor, and its copy on the server, which is sent when it is first asked for and after a change. Owner: a
    RemoteHead, whose lock guards it.
    """

    def __init__(self, client: Client, name: str, tensor: Any, lease: float) -> None:
        if not isinstance(tensor, torch.Tensor):
            raise invalid_field(name, type(tensor).__name__, "a tensor of torch")
        self.tensor = tensor
        self._client = client
        self._lease = lease
        self._stored: RemoteTensor | None = None
        self._stamp: Any = None  # Of the bytes that are stored.
        self._renew = 0.0

    def stamp(self) -> Any:
        """Differs after a change that torch counts: an optimizer's step, not one behind its back (`tensor.data`)."""
        version = 0 if self.tensor.is_inference() else self.tensor._version
        return self.tensor.data_ptr(), version

    def stored(self) -> RemoteTensor:
        if self._stored is not None and self._stamp == self.stamp():
            if time.monotonic() < self._renew:
                return self._stored
            try:
                return self._keep(self._client.tensors.touch(self._stored, lease=self._lease))
            except NotFound:
                self._stored = None
        return self.send()

    def send(self) -> RemoteTensor:
        """Bytes go over the wire only where the server has none of this digest."""
        stamp = self.stamp()
        if stamp != self._stamp:
            self.drop()  # First: the server may not have room for both.
        stored = self._client.tensors.put(self.tensor, lease=self._lease, if_new=True)
        self.drop()
        self._stamp = stamp
        return self._keep(stored)

    def _keep(self, stored: RemoteTensor) -> RemoteTensor:
        self._stored = stored
        self._renew = time.monotonic() + self._lease / 2
        return stored

    def forget(self) -> None:
        """What the server has lost."""
        self._stored = None

    def drop(self) -> None:
        stored, self._stored = self._stored, None
        if stored is not None:
            with contextlib.suppress(Error):  # Its lease ends by itself.
                self._client.tensors.delete(stored)


class RemoteHead:
    """Weight [V, D] and perhaps bias [V] of a head, kept on the server between calls; the tensors here stay the ones
    that an optimizer changes. They are sent at the first call and after each change, and again where the server has
    lost them. Thread-safe. `close` frees what the server keeps; so does the end of the lease, which calls renew.

    With `accumulate` the weight's and the bias's gradients are summed up there, in float32, until `collect` brings the
    sums of a step's micro-batches.
    """

    def __init__(
        self,
        client: Client,
        weight: Any,
        bias: Any = None,
        *,
        variant: str | None = None,
        device: str | None = None,
        chunk_elems: int = 0,
        accumulate: bool = False,
        lease: float = 3600.0,
        timeout: float | None = None,
    ) -> None:
        """`variant`, `device`, `chunk_elems` and `timeout` are those of Client.gradient, for each call; `lease` is in
        seconds. Nothing is sent yet.
        """
        if not lease > 0:
            raise invalid_field("lease", lease, "a positive number of seconds")
        self._client = client
        self._options: dict[str, Any] = {"variant": variant, "device": device, "chunk_elems": chunk_elems}
        self._timeout = timeout
        self._lock = threading.Lock()
        self._weight = _Resident(client, "weight", weight, lease)
        self._bias = None if bias is None else _Resident(client, "bias", bias, lease)
        self.accumulate = accumulate
        self._lease = lease
        self._session: pb.GradientSession | None = None  # With sums that weren't collected.
        self._session_stamps: tuple[Any, ...] = ()  # Of the bytes that it has.

    @property
    def weight(self) -> Any:
        return self._weight.tensor

    @property
    def bias(self) -> Any:
        return None if self._bias is None else self._bias.tensor

    def __enter__(self) -> RemoteHead:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Deletes what the server keeps, sums that weren't collected too. A later call sends it again."""
        self.discard()
        with self._lock:
            for resident in self._residents():
                resident.drop()

    def refresh(self) -> None:
        """Sends weight and bias now, each only where its bytes are new to the server. Calls do so by themselves after a
        change that torch counts; after one behind its back (`weight.data.copy_(…)`) this has to be called.
        """
        with self._lock:
            for resident in self._residents():
                resident.send()

    def _residents(self) -> list[_Resident]:
        return [self._weight] if self._bias is None else [self._weight, self._bias]

    def stamps(self) -> tuple[Any, ...]:
        return tuple(resident.stamp() for resident in self._residents())

    def gradient(self, autocast: Autocast, **arguments: Any) -> GradientResult:
        """Client.gradient with this weight and bias. Once more, after sending them again, where the server has lost
        them: it was restarted, or the lease ran out.
        """
        with self._lock:
            # A copy: another thread may drop them meanwhile.
            handles = [resident.stored() for resident in self._residents()]
        try:
            return self._call(handles, autocast, arguments)
        except NotFound:
            with self._lock:
                for resident in self._residents():
                    resident.forget()
                handles = [resident.stored() for resident in self._residents()]
        return self._call(handles, autocast, arguments)

    def add_batch(self, autocast: Autocast, hidden: Any, targets: Any, grad_logp: Any, want_hidden: bool) -> Any:
        """Adds a micro-batch's gradients to the sums on the server, once. grad_hidden; None where it isn't wanted."""
        with self._lock:
            if self._session is None:
                handles = [resident.stored() for resident in self._residents()]
                self._session = self._client.sessions.create(
                    *handles, device=self._options["device"], lease=self._lease, timeout=self._timeout
                )
                self._session_stamps = self.stamps()
            elif self._session_stamps != self.stamps():
                raise RuntimeError("the head was changed while gradients weren't collected: collect() comes first")
            session = self._session
        try:
            return self._client.gradient(
                session=session,
                hidden=hidden,
                targets=targets,
                grad_logp=grad_logp,
                want=("hidden",) if want_hidden else ("weight",),  # The second: nothing is returned.
                autocast=autocast,
                framework="torch",
                timeout=self._timeout,
                **self._options,
            ).grad_hidden
        except NotFound:
            with self._lock:
                self._lost(session)
            raise

    def _lost(self, session: pb.GradientSession) -> None:
        """It ended with its lease or with the server's process, and its sums with it. REQUIRES the lock."""
        if self._session is session:
            self._session = None

    def collect(self) -> int:
        """Adds the sums to weight.grad and bias.grad, and begins anew: before an optimizer's step. How many
        micro-batches were in them. NotFound: they are lost; where it fails otherwise they are still there.
        """
        with self._lock:
            session = self._session
            if session is None:
                return 0
            try:
                sums = self._client.sessions.fetch(session, framework="torch", timeout=self._timeout)
            except NotFound:
                self._lost(session)
                raise
            for tensor, gradient in ((self.weight, sums.grad_weight), (self.bias, sums.grad_bias)):
                if tensor is not None and tensor.requires_grad:
                    gradient = gradient.to(tensor.device, tensor.dtype)
                    tensor.grad = gradient if tensor.grad is None else tensor.grad + gradient
            self._session = None
        with contextlib.suppress(Error):  # Its lease ends by itself.
            self._client.sessions.delete(session)
        return sums.session.batches

    def discard(self) -> None:
        """Forgets sums that weren't collected."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(Error):
                self._client.sessions.delete(session)

    def _call(self, handles: list[RemoteTensor], autocast: Autocast, arguments: dict[str, Any]) -> GradientResult:
        return self._client.gradient(
            weight=handles[0],
            bias=handles[1] if len(handles) > 1 else None,
            autocast=autocast,
            framework="torch",
            timeout=self._timeout,
            **self._options,
            **arguments,
        )


def _wanted(needs: tuple[bool, ...]) -> tuple[Want, ...]:
    return tuple(name for name, need in zip(_NAMES, needs, strict=False) if need)


class _FirstDerivative(torch.autograd.Function):  # type: ignore[misc]
    """A gradient as it is, which can't be differentiated again: a term left out in silence would be wrong."""

    @staticmethod
    def forward(ctx: Any, gradient: Any, *sources: Any) -> Any:
        return gradient.view_as(gradient)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError("a remote head's logp has first derivatives alone")


def _returned(gradients: Iterable[Any], sources: tuple[Any, ...]) -> tuple[Any, ...]:
    """What a backward pass returns, of what depends on `sources`. Grad mode is on there exactly under create_graph."""
    if not torch.is_grad_enabled():
        return tuple(gradients)
    return tuple(None if gradient is None else _FirstDerivative.apply(gradient, *sources) for gradient in gradients)


def _gradients(result: GradientResult, tensors: tuple[Any, ...]) -> list[Any]:
    """Of hidden, weight and bias, each where its tensor is."""
    found = (result.grad_hidden, result.grad_weight, result.grad_bias)
    return [
        None if gradient is None else gradient.to(tensor.device)
        for gradient, tensor in zip(found, tensors, strict=True)
    ]


class _LinearLogp(torch.autograd.Function):  # type: ignore[misc]
    """A call forward, one backward. Weight and bias are arguments for their gradients' sake: the head has the bytes."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Any, weight: Any, bias: Any, targets: Any, head: RemoteHead, autocast: Autocast
    ) -> Any:
        ctx.save_for_backward(hidden, targets)
        ctx.head, ctx.autocast, ctx.stamps = head, autocast, head.stamps()
        return head.gradient(autocast, hidden=hidden, targets=targets).logp.to(hidden.device)

    @staticmethod
    def backward(ctx: Any, grad_logp: Any) -> tuple[Any, ...]:
        hidden, targets = ctx.saved_tensors
        head: RemoteHead = ctx.head
        if ctx.stamps != head.stamps():
            raise RuntimeError(
                "the head's weight or bias was changed between the forward and the backward pass of linear_logp"
            )
        if head.accumulate and any(ctx.needs_input_grad[1:3]):
            found = head.add_batch(ctx.autocast, hidden, targets, grad_logp, ctx.needs_input_grad[0])
            found = [None if found is None else found.to(hidden.device), None, None]
            return *_returned(found, (hidden, head.weight, head.bias, grad_logp)), None, None, None
        want = _wanted(ctx.needs_input_grad)
        result = head.gradient(ctx.autocast, hidden=hidden, targets=targets, grad_logp=grad_logp, want=want)
        operands = (hidden, head.weight, head.bias)
        return *_returned(_gradients(result, operands), (*operands, grad_logp)), None, None, None


class _WeightedLogp(torch.autograd.Function):  # type: ignore[misc]
    """One call for both passes: the gradients wait here for the factor that backward brings."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Any,
        weight: Any,
        bias: Any,
        targets: Any,
        token_weights: Any,
        head: RemoteHead,
        autocast: Autocast,
        backward: bool,
    ) -> Any:
        want = _wanted(ctx.needs_input_grad) if backward else ()
        upstream = {"grad_logp": token_weights, "want": want} if want else {}
        result = head.gradient(autocast, hidden=hidden, targets=targets, **upstream)
        logp = result.logp.to(hidden.device)
        ctx.mark_non_differentiable(logp)
        operands = (hidden, head.weight, head.bias)
        ctx.save_for_backward(*operands, *_gradients(result, operands))
        return (logp * token_weights.to(logp.device)).sum(), logp

    @staticmethod
    def backward(ctx: Any, grad_total: Any, grad_logp: Any) -> tuple[Any, ...]:
        operands, found = ctx.saved_tensors[:3], ctx.saved_tensors[3:]
        with torch.no_grad():
            scaled = [None if one is None else one * grad_total.to(one.device, one.dtype) for one in found]
        return *_returned(scaled, (*operands, grad_total)), None, None, None, None, None


def _captured(hidden: Any, head: RemoteHead) -> tuple[Any, Autocast]:
    """Autocast as it is on this thread now, which backward may not see; hidden in the weight's dtype under it, since
    the server's operands have one.
    """
    if not isinstance(head, RemoteHead):
        raise invalid_field("head", type(head).__name__, "a RemoteHead")
    if not isinstance(hidden, torch.Tensor):
        raise invalid_field("hidden", type(hidden).__name__, "a tensor of torch")
    kind = hidden.device.type
    if not torch.is_autocast_enabled(kind):
        return hidden, "none"
    dtype = torch.get_autocast_dtype(kind)
    if dtype not in _AUTOCASTS:
        raise invalid_field("autocast", dtype, "bfloat16 or float16")
    return hidden.to(head.weight.dtype), _AUTOCASTS[dtype]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def linear_logp(hidden: Any, head: RemoteHead, targets: Any) -> Any:
    """logp [...] of `targets` [...] under `head`, for hidden [..., D]: differentiable by hidden and by the head's
    weight and bias, once. Forward and backward are a call each; either may raise a keval.Error. Autocast is the
    caller's, as it is here, in both. Under torch.compile it is a break of the graph.
    """
    hidden, autocast = _captured(hidden, head)
    return _LinearLogp.apply(hidden, head.weight, head.bias, targets, head, autocast)


@torch.compiler.disable  # type: ignore[untyped-decorator]
def weighted_logp(hidden: Any, head: RemoteHead, targets: Any, token_weights: Any) -> tuple[Any, Any]:
    """The sum of token_weights times logp, differentiable like linear_logp, and logp [...] itself, which isn't. One
    call for both passes (two where the head accumulates), for losses whose weights are known beforehand: a masked
    mean, per-token advantages.
    `token_weights` [...] is float32 (float64 with float64 operands) and a constant.
    """
    hidden, autocast = _captured(hidden, head)
    if not isinstance(token_weights, torch.Tensor) or token_weights.requires_grad:
        raise invalid_field("token_weights", type(token_weights).__name__, "a tensor that needs no gradient")
    if token_weights.shape != hidden.shape[:-1]:
        raise invalid_field("token_weights", tuple(token_weights.shape), f"of shape {tuple(hidden.shape[:-1])}")
    if head.accumulate:
        # The server's sums can't be scaled by what backward brings: the upstream has to be known whole.
        logp = _LinearLogp.apply(hidden, head.weight, head.bias, targets, head, autocast)
        return (logp * token_weights.to(logp.device)).sum(), logp.detach()
    total, logp = _WeightedLogp.apply(
        hidden, head.weight, head.bias, targets, token_weights, head, autocast, torch.is_grad_enabled()
    )
    return total, logp
