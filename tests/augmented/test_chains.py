"""Chains continue where they stopped, do not depend on each other, and show their progress."""

import pickle
import sys

import numpy as np
import pytest

from gpflow_ilr.augmented.chains import Chains
from gpflow_ilr.augmented.gibbs import GibbsSampler
from gpflow_ilr.augmented.link import LogisticSoftmaxLink
from tests.augmented.reference import squared_exponential, three_blobs


@pytest.fixture
def sampler():
    X, y = three_blobs(num_rows=12)
    K = squared_exponential(X, X, 4.0, 1.0) + 1e-6 * np.eye(12)
    return GibbsSampler(LogisticSoftmaxLink.logistic(3), y, K[None], np.zeros((12, 3)))


def test_a_continued_chain_is_the_uninterrupted_one_even_through_a_pickle(sampler):
    whole = Chains(sampler, num_chains=2, seed=3)
    whole.discard(5)
    whole.extend(10)
    parts = Chains(sampler, num_chains=2, seed=3)
    parts.discard(2)
    parts.discard(3)
    parts.extend(4)
    parts = pickle.loads(pickle.dumps(parts))
    parts.extend(6)
    np.testing.assert_array_equal(parts.samples, whole.samples)


def test_a_chain_does_not_depend_on_the_others(sampler):
    one, three = (Chains(sampler, num_chains=n, seed=3) for n in (1, 3))
    for chains in (one, three):
        chains.extend(4)
    np.testing.assert_array_equal(one.samples[0], three.samples[0])
    assert np.all(np.any(three.samples[1:] != three.samples[:1], axis=(1, 2, 3)))


def test_thinning_keeps_every_so_many_th_sample(sampler):
    every, third = Chains(sampler, num_chains=1), Chains(sampler, num_chains=1, thinning=3)
    every.extend(9)
    third.extend(3)
    np.testing.assert_array_equal(third.samples[:, :], every.samples[:, 2::3])


def test_sampling_without_threadpoolctl_gives_the_same_samples(sampler, monkeypatch):
    chains = Chains(sampler, num_chains=1)
    chains.extend(3)
    monkeypatch.setitem(sys.modules, "threadpoolctl", None)
    again = Chains(sampler, num_chains=1)
    again.extend(3)
    np.testing.assert_allclose(again.samples, chains.samples, rtol=1e-9)


def test_progress_bars_name_the_phase(sampler, capsys):
    pytest.importorskip("tqdm")
    chains = Chains(sampler, num_chains=2)
    chains.discard(1, progress=True)
    chains.extend(1, progress=True)
    shown = capsys.readouterr().err
    assert "burn-in" in shown
    assert "sampling" in shown


def test_progress_without_tqdm_says_what_to_install(sampler, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    with pytest.raises(ImportError, match="needs the package tqdm"):
        Chains(sampler, num_chains=1).extend(1, progress=True)
