"""A progress bar with the loss and, where there are held-out rows, their NLL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gpflow_ilr.training.watch import Observer, Watch

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(total: int, name: str, has_nll: bool) -> Iterator[Observer]:
    """What draws the bar after each step; the bar ends with the context.

    :param total: number of steps.
    :param name: what stands before the bar.
    :param has_nll: whether looks are at the NLL of held-out rows.
    :raises ImportError: without tqdm.
    """
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError(
            "progress=True needs the package tqdm: pip install 'gpflow_ilr[training]', or leave "
            "progress out."
        ) from None

    def draw(watch: Watch) -> None:
        numbers = {"loss": watch.losses[-1]}
        if has_nll:
            numbers["NLL"] = watch.looks[-1][1]
        bar.set_postfix({key: f"{value:.5g}" for key, value in numbers.items()}, refresh=False)
        bar.update(watch.num_steps - bar.n)

    with tqdm(total=total, desc=name) as bar:
        yield draw
