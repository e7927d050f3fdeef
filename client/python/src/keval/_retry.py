"""When a call is made again, and after how long: as client/retry.h."""

from __future__ import annotations

import dataclasses
import math
import random
import time

from keval._errors import DeadlineExceeded, Error, ResourceExhausted, Unavailable, invalid_field


@dataclasses.dataclass(frozen=True)
class RetryPolicy:
    max_attempts: int = 4
    initial_backoff: float = 0.1  # Seconds, as all here.
    max_backoff: float = 5.0


def deadline_after(timeout: float | None) -> float | None:
    """On the monotonic clock, `timeout` seconds from now; None: never."""
    if timeout is None or timeout == math.inf:
        return None
    if not timeout > 0:
        raise invalid_field("timeout", timeout, "a positive number of seconds")
    return time.monotonic() + timeout


def seconds_until(deadline: float | None) -> float | None:
    """Positive, or DeadlineExceeded: gRPC rounds a timeout up, so a quick call that began too late could end well."""
    if deadline is None:
        return None
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlineExceeded("the deadline passed before the call was made")
    return left


class Attempts:
    """The attempts of one call. `repeatable`: it may reach the server twice without harm; otherwise it is made again
    only where the server itself said when. Not thread-safe.
    """

    def __init__(self, policy: RetryPolicy, repeatable: bool, deadline: float | None) -> None:
        self._left = policy.max_attempts
        self._repeatable = repeatable
        self._next = policy.initial_backoff
        self._max = policy.max_backoff
        self._deadline = deadline

    def delay_after(self, error: Error) -> float | None:
        """How long to wait before the next attempt, or None where there should be none: only UNAVAILABLE, and
        RESOURCE_EXHAUSTED with a delay of the server's, may pass by themselves.
        """
        self._left -= 1
        if self._left <= 0 or not isinstance(error, (Unavailable, ResourceExhausted)):
            return None
        # A delay comes from the server alone, which refused before it did anything.
        if error.retry_delay is None and not (self._repeatable and isinstance(error, Unavailable)):
            return None
        delay = max(self.backoff(), error.retry_delay or 0.0)
        if self._deadline is not None and time.monotonic() + delay >= self._deadline:
            return None
        return delay

    def backoff(self) -> float:
        """Doubles, each drawn from the upper half of its range so that clients don't come back together."""
        whole = self._next
        self._next = min(whole * 2, self._max)
        return whole * random.uniform(0.5, 1.0)
