"""GPHead under tf.distribute: two replicas on two logical CPUs train as one device does."""

import json
import subprocess
import sys

import pytest

# The reference is gradient descent on GPflow's ELBO, eager and on one device. One strategy per process.
SCRIPT = """
import json, sys
import tensorflow as tf

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from tests.keras_stacks import N, STACKS, X, Y

stack, network = STACKS[sys.argv[1]], sys.argv[2]
stack.keras.backend.set_floatx(network)
X, y, rate, steps = X.astype(network), (Y > 0).astype(int), 0.01, 2

def build():
    head = stack.head(num_classes=2, gp_dtype=network, dtype=network)
    model = stack.model(head, dtype=network)
    head.gp.kernel.lengthscales.assign(0.3)  # well conditioned: float32 keeps its digits
    return model

one = build()
backbone, head = one.layers
variables = [getattr(v, "_value", v) for v in one.trainable_variables]  # Keras 3 wraps them
expected = []
for _ in range(steps):
    with head.precision(), tf.GradientTape() as tape:
        loss = -head.gp.elbo((backbone(X), y)) / N
    expected.append(float(loss))
    for variable, gradient in zip(variables, tape.gradient(loss, variables)):
        variable.assign_sub(rate * gradient)

strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
assert strategy.num_replicas_in_sync == 2
with strategy.scope():
    two = build()
    two.compile(stack.keras.optimizers.SGD(rate), loss=stack.ELBOLoss())
data = tf.data.Dataset.from_tensor_slices((X, y)).batch(N)
history = two.fit(data, epochs=steps, verbose=0, shuffle=False).history
print(json.dumps([expected, history["loss"]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "dtype", "tolerance"),
    [
        ("keras", "float64", 1e-10),
        ("tf_keras", "float64", 1e-10),
        ("keras", "float32", 1e-6),
    ],
)
def test_two_replicas_train_as_one_device(package: str, dtype: str, tolerance: float) -> None:
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, package, dtype]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    expected, reported = json.loads(done.stdout.splitlines()[-1])
    assert expected[1] < expected[0]
    assert reported == pytest.approx(expected, rel=tolerance)
