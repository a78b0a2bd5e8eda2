"""Claims about contestants of ``examples/paper``: what they choose from, and what cannot spoil them."""

from collections.abc import Callable, Iterator

import gpflow
import numpy as np
import pytest

import gpflow_ilr as gi
from gpflow_ilr.codes import overlap_noise_variance
from tests.whole.paper import Import, importing

K = 3


@pytest.fixture(name="paper")
def _paper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Import]:
    yield from importing(monkeypatch)


@pytest.fixture(name="noises_tried")
def _noises_tried(
    paper: Import, monkeypatch: pytest.MonkeyPatch
) -> Callable[[list[float]], list[tuple[float | None, int]]]:
    """Noises (None: learned) and iterations of collapsed fits whose NLL are some numbers, in turn."""
    ours = paper("ours")
    X, y = np.random.default_rng(0).normal(size=[40, 2]), np.arange(40) % K
    task = paper("problem").Problem(X, y, K, seed=0, num_inducing=5)
    sample = gi.ILRGPR((X, y), gpflow.kernels.SquaredExponential(), num_classes=K)
    monkeypatch.setattr(ours, "sample_fit", lambda *_: (sample, "a kind"))

    def tried(nll: list[float]) -> list[tuple[float | None, int]]:
        found: list[tuple[float | None, int]] = []

        def trained(model: gi.ILRSGPR, iterations: int) -> float:
            learned = model.code.noise == "shared"
            found.append((None if learned else float(model.code.noise_variance[0, 0]), iterations))
            return nll[len(found) - 1]

        monkeypatch.setattr(ours, "_trained", trained)
        ours.collapsed(task, X)
        return found

    return tried


def test_noise_goes_down_by_decades_while_that_helps_and_the_best_trains_on(
    noises_tried: Callable, paper: Import
) -> None:
    """From Proposition 1's, a rule that has seen no data set."""
    first, more = paper("ours").ITERATIONS, paper("ours").TO_THE_END
    largest = overlap_noise_variance(K, 1e-6)
    shares = [None, 1.0, 0.1, 0.01]
    expected = [share if share is None else pytest.approx(share * largest) for share in shares]
    found = noises_tried([5.0, 4.0, 3.0, 3.5, 0.0])
    assert [noise for noise, _ in found] == [*expected, expected[2]]
    assert [iterations for _, iterations in found] == [first] * 4 + [more]
    found = noises_tried([1.0, 2.0, 0.0])  # noise learned is better than Proposition 1's
    assert [noise for noise, _ in found] == [None, expected[1], None]


@pytest.mark.parametrize("peer", ["SVC", "MLP"])
def test_a_few_wild_values_do_not_spoil_a_peer(
    peer: str, paper: Import, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As four rows of EEG, which reach 7e5, did when columns were divided by standard deviations."""
    peers, rng = paper("peers"), np.random.default_rng(0)
    monkeypatch.setattr(peers, "WEIGHT_DECAYS", (1e-4,))
    y = np.arange(200) % 2
    X = rng.normal(size=[200, 2]) + 4.0 * y[:, None]
    X[:4] = 7e5
    fitted = peers.PEERS[peer](paper("problem").Problem(X, y, 2, seed=0))
    assert np.mean(np.argmax(fitted.predict(X[4:]), axis=1) == y[4:]) > 0.97
