"""Which sums a model knows, which of their rows it has, and what it does with them."""

import numpy as np
import pytest

from gpflow_ilr.collapsed.kept import Elsewhere
from tests.models.oracles import XNEW, X, Y, build


def test_own_sums_are_those_of_the_rows_whatever_was_adopted():
    model = build("ILRSGPR", data=(X[:10], Y[:10]))
    rest = build("ILRSGPR", data=(X[10:], Y[10:]))
    for _ in range(2):  # adopting again counts nothing twice
        own = model.own_statistics()
        model.adopt([a + b for a, b in zip(own, rest.own_statistics(), strict=True)])
        assert model.elsewhere is Elsewhere.SHARED
        np.testing.assert_allclose(
            model.predict_y(XNEW)[0], build("ILRSGPR").predict_y(XNEW)[0], rtol=1e-9
        )


def test_sums_that_were_absorbed_are_the_models_own_until_they_are_shared():
    model = build("ILRSGPR", data=(X[:10], Y[:10]))
    model.absorb((X, Y), batch_size=8, sample_size=5)
    own = model.own_statistics()
    assert float(own[0].count[0]) == len(X)
    model.update(X[:3], Y[:3])  # goes with them
    own = model.own_statistics()
    assert float(own[0].count[0]) == len(X) + 3
    model.adopt([sums + sums for sums in own])
    with pytest.raises(ValueError, match=r"Call model.absorb\(dataset\) again first"):
        model.own_statistics()
    model.data = X, Y  # other rows, whose sums can be computed
    assert float(model.own_statistics()[0].count[0]) == len(X)


def test_sums_are_known_while_rows_and_parameters_stay():
    model = build("ILRSGPR")
    assert model.known_statistics() is None
    model.keep(model.statistics(model.rows))
    assert model.known_statistics() is not None
    model.kernel.variance.assign(2.0)
    assert model.known_statistics() is None
    model.kernel.variance.assign(0.6)
    assert model.known_statistics() is not None
    model.data = X, Y
    assert model.known_statistics() is None


def test_probes_tell_parameters_apart():
    model, other = build("ILRSGPR"), build("ILRSGPR")
    rows = model.data[0][:4], model.labels[:4]
    assert all(map(np.array_equal, model.probes(*rows), other.probes(*rows)))
    other.inducing_variable.Z.assign_add(np.full(other.inducing_variable.Z.shape, 1e-6))
    assert not all(map(np.array_equal, model.probes(*rows), other.probes(*rows)))
