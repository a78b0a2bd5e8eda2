"""The head as a Keras 3 layer: Keras trains the GP's own variables, not copies of them."""

import pytest

from gpflow_ilr.keras import check_keras
from tests.heads.stacks import STACKS, X


def test_keras_that_would_train_copies_is_refused() -> None:
    with pytest.raises(ImportError, match=r"keras>=3\.10"):
        check_keras("3.9.2", "tensorflow")
    with pytest.raises(ImportError, match="KERAS_BACKEND=tensorflow"):
        check_keras("3.15.1", "jax")
    check_keras("3.10.0", "tensorflow")


def test_keras_holds_the_variables_of_the_gp_themselves() -> None:
    head = STACKS["keras"].model().layers[-1]
    variables = {id(v) for v in head.gp.variables}
    assert {id(alias.value) for alias in head.variables} == variables
    assert len(head.variables) == len(variables)


def test_trainable_is_that_of_keras_and_spares_what_is_frozen() -> None:
    head = STACKS["keras"].head(frozen=["kernel"])
    head.adapt(X)
    trained = len(head.trainable_variables)
    assert 0 < trained < len(head.variables)
    head.trainable = False
    assert not head.trainable
    assert head.trainable_variables == []
    head.trainable = True
    assert len(head.trainable_variables) == trained
