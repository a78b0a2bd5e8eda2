"""What ``fit`` of a network with a GPHead reports under a strategy, and what one device would."""

import tensorflow as tf

from tests.heads.stacks import STACKS, N, X, Y

RATE, STEPS = 0.01, 2


def losses(strategy: tf.distribute.Strategy, package: str, dtype: str) -> list[list[float]]:
    """Losses of gradient descent on GPflow's ELBO, eager and on one device, and those of ``fit``."""
    stack = STACKS[package]
    stack.keras.backend.set_floatx(dtype)
    inputs, y = X.astype(dtype), (Y > 0).astype(int)

    def build() -> tf.Module:
        stack.keras.utils.set_random_seed(0)  # workers must not differ
        head = stack.head(num_classes=2, gp_dtype=dtype, dtype=dtype)
        model = stack.model(head, dtype=dtype)
        head.gp.kernel.lengthscales.assign(0.3)  # well conditioned: float32 keeps its digits
        return model

    one = build()
    backbone, head = one.layers
    variables = [getattr(v, "_value", v) for v in one.trainable_variables]  # Keras 3 wraps them
    expected = []
    for _ in range(STEPS):
        with head.precision(), tf.GradientTape() as tape:
            loss = -head.gp.elbo((backbone(inputs), y)) / N
        expected.append(float(loss))
        for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
            variable.assign_sub(RATE * gradient)

    assert strategy.num_replicas_in_sync == 2
    with strategy.scope():
        two = build()
        two.compile(stack.keras.optimizers.SGD(RATE), loss=stack.ELBOLoss())
    data = tf.data.Dataset.from_tensor_slices((inputs, y)).batch(N)
    history = two.fit(data, epochs=STEPS, verbose=0, shuffle=False).history
    return [expected, history["loss"]]
