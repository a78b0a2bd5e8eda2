"""Markov chains: where they are, their random streams, and the samples they have kept."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from numpy.typing import NDArray

from gpflow_ilr.augmented.gibbs import GibbsSampler

__all__ = ["Chains"]

Array = NDArray[np.float64]

# Below this many rows a Cholesky factorisation is not worth a second thread.
_FEWEST_THREADED_ROWS = 500


@dataclass
class Chains:
    """Markov chains of one sampler: their states, their random streams and what they have kept.

    All of it is NumPy, so chains can be pickled and continued elsewhere; a chain continued is
    bit for bit the chain that was never interrupted.

    :param sampler: the sampler whose sweeps the chains make.
    :param num_chains: number of chains, each started from a prior draw of its own.
    :param thinning: sweeps per kept sample.
    :param seed: seed of all chains; chain i is the same for any number of chains.
    """

    sampler: GibbsSampler
    num_chains: int
    thinning: int = 1
    seed: int = 0
    samples: Array = field(init=False, repr=False)

    def __post_init__(self) -> None:
        streams = np.random.SeedSequence(self.seed).spawn(self.num_chains)
        self._rngs = [np.random.default_rng(stream) for stream in streams]
        self._states = [self.sampler.prior_draw(rng) for rng in self._rngs]
        self.samples = np.empty((self.num_chains, 0, *self._states[0].shape))

    def discard(self, num_sweeps: int, progress: bool = False) -> None:
        """Make sweeps and keep nothing: the burn-in.

        :param num_sweeps: sweeps per chain.
        :param progress: show a progress bar (needs tqdm).
        """
        with _single_blas_thread(len(self.sampler.Y)):
            for i, _ in _steps(self.num_chains, num_sweeps, "burn-in", progress):
                self._states[i] = self.sampler.sweep(self._states[i], self._rngs[i])

    def extend(self, num_samples: int, progress: bool = False) -> None:
        """Append samples to :attr:`samples` [num_chains, S, N, L].

        :param num_samples: samples to append per chain, `thinning` sweeps each.
        :param progress: show a progress bar (needs tqdm).
        """
        drawn = np.empty((self.num_chains, num_samples, *self._states[0].shape))
        with _single_blas_thread(len(self.sampler.Y)):
            for i, s in _steps(self.num_chains, num_samples, "sampling", progress):
                for _ in range(self.thinning):
                    self._states[i] = self.sampler.sweep(self._states[i], self._rngs[i])
                drawn[i, s] = self._states[i]
        self.samples = np.concatenate([self.samples, drawn], axis=1)


def _steps(num_chains: int, num_steps: int, what: str, progress: bool) -> Iterable[tuple[int, int]]:
    """Pairs (chain, step), chain by chain, under a progress bar if asked for."""
    steps = [(i, s) for i in range(num_chains) for s in range(num_steps)]
    if not progress:
        return steps
    try:
        from tqdm.auto import tqdm
    except ImportError:
        raise ImportError(
            "progress=True needs the package tqdm: pip install 'gpflow_ilr[augmented]', or leave "
            "progress out."
        ) from None
    return cast("Iterable[tuple[int, int]]", tqdm(steps, desc=what))


def _single_blas_thread(size: int) -> AbstractContextManager[object]:
    """Keep BLAS to one thread for matrices too small to gain from more.

    On a busy machine its threads wait for each other: a sweep of 2 ms was seen to take 200.
    """
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        return nullcontext()
    return cast(
        "AbstractContextManager[object]",
        threadpool_limits(limits=1 if size < _FEWEST_THREADED_ROWS else None, user_api="blas"),
    )
