"""How payloads are verified: XXH3 at the speed of memory where both sides know it, SHA-256 otherwise."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import importlib
from collections.abc import Callable, Iterable
from typing import Any

from keval.v1 import tensor_pb2 as pb

xxhash: Any = None
with contextlib.suppress(ImportError):
    xxhash = importlib.import_module("xxhash")


@dataclasses.dataclass(frozen=True)
class Digest:
    value: pb.PayloadDigest
    field: str  # Of the messages that carry it.
    new: Callable[[], Any]  # As hashlib's constructors.


SHA256 = Digest(pb.PAYLOAD_DIGEST_SHA256, "sha256", hashlib.sha256)


def best_of(known: Iterable[int]) -> Digest:
    """Of those that the server knows."""
    if xxhash is None or pb.PAYLOAD_DIGEST_XXH3 not in known:
        return SHA256
    return Digest(pb.PAYLOAD_DIGEST_XXH3, "xxh3", xxhash.xxh3_128)
