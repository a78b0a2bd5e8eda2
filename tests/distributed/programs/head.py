"""What ``fit`` of a network with a GPHead reports under a strategy, and what one device would.

The reference is gradient descent on GPflow's ELBO, eager and on one device.
Usage: ``python -m tests.distributed.programs.head keras|tf_keras DTYPE mirrored|workers``.
"""

import json
import sys

import tensorflow as tf

if sys.argv[3] == "mirrored":
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    STRATEGY = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
else:  # before any other operation
    STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()

from tests.heads.stacks import STACKS, N, X, Y

PACKAGE, DTYPE = sys.argv[1:3]
RATE, STEPS = 0.01, 2
stack = STACKS[PACKAGE]
stack.keras.backend.set_floatx(DTYPE)
X, y = X.astype(DTYPE), (Y > 0).astype(int)


def build() -> tf.Module:
    stack.keras.utils.set_random_seed(0)  # workers must not differ
    head = stack.head(num_classes=2, gp_dtype=DTYPE, dtype=DTYPE)
    model = stack.model(head, dtype=DTYPE)
    head.gp.kernel.lengthscales.assign(0.3)  # well conditioned: float32 keeps its digits
    return model


one = build()
backbone, head = one.layers
variables = [getattr(v, "_value", v) for v in one.trainable_variables]  # Keras 3 wraps them
expected = []
for _ in range(STEPS):
    with head.precision(), tf.GradientTape() as tape:
        loss = -head.gp.elbo((backbone(X), y)) / N
    expected.append(float(loss))
    for variable, gradient in zip(variables, tape.gradient(loss, variables), strict=True):
        variable.assign_sub(RATE * gradient)

assert STRATEGY.num_replicas_in_sync == 2
with STRATEGY.scope():
    two = build()
    two.compile(stack.keras.optimizers.SGD(RATE), loss=stack.ELBOLoss())
data = tf.data.Dataset.from_tensor_slices((X, y)).batch(N)
history = two.fit(data, epochs=STEPS, verbose=0, shuffle=False).history
print(json.dumps([expected, history["loss"]]))
