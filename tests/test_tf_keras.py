"""The head as a tf_keras layer: its weights are the GP's own variables."""

from tests.heads.stacks import STACKS, X


def test_weights_are_the_variables_of_the_gp_once_each() -> None:
    head = STACKS["tf_keras"].model().layers[-1]
    assert {id(v) for v in head.weights} == {id(v) for v in head.gp.variables}
    assert len(head.weights) == len(head.gp.variables)


def test_frozen_parts_and_a_frozen_layer_have_no_trainable_weights() -> None:
    head = STACKS["tf_keras"].head(frozen=["kernel"])
    head.adapt(X)
    kernel = {id(v) for v in head.gp.kernel.variables}
    assert kernel <= {id(v) for v in head.non_trainable_weights}
    assert not kernel & {id(v) for v in head.trainable_weights}
    head.trainable = False
    assert head.trainable_weights == []
    assert len(head.non_trainable_weights) == len(head.gp.variables)
