"""Progress bars, by tqdm, for a terminal or a notebook."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

# Told how much more there is.
Update = Callable[[int], object]


def no_update(amount: int) -> None:
    """Where nobody looks."""


def _tqdm() -> Any:
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError("progress needs tqdm: pip install 'keval[tqdm]'") from error
    return tqdm


@contextlib.contextmanager
def byte_bar(shown: bool, description: str, total: int) -> Iterator[Update]:
    if not shown:
        yield no_update
        return
    with _tqdm()(total=total, desc=description, unit="B", unit_scale=True, unit_divisor=1024) as bar:
        yield bar.update


@contextlib.contextmanager
def round_bar(shown: bool, description: str) -> Iterator[Callable[[int, int], object]]:
    """To be told the rounds that are done, and those until the last look."""
    if not shown:
        yield lambda done, planned: None
        return
    with _tqdm()(desc=description, unit="round") as bar:

        def show(done: int, planned: int) -> None:
            bar.total = planned
            bar.update(done - bar.n)
            bar.refresh()

        yield show
