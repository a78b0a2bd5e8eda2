"""What one strategy computes for all cases, written to a file by each worker.

Usage: ``python -m tests.distributed.programs.losses mirrored|workers FOLDER``.
"""

import sys
from pathlib import Path

import tensorflow as tf

if sys.argv[1] == "mirrored":
    (cpu,) = tf.config.list_physical_devices("CPU")
    tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
    STRATEGY = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    WORKER = None
else:  # before any other operation
    STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()
    WORKER = STRATEGY.cluster_resolver.task_id

import gpflow
import numpy as np

import gpflow_ilr as gi
from gpflow_ilr.distributed import share_statistics, sum_over_workers, training_loss_closure
from gpflow_ilr.saving import save
from tests.distributed.programs.cases import (
    CASES,
    X_NEW,
    X,
    Y,
    Z,
    batches,
    kernel,
    parameters,
    svgp,
    value_and_gradient,
)
from tests.distributed.programs.head import losses

FOLDER = Path(sys.argv[2])
results: dict[str, np.ndarray] = {}

for name, case in CASES.items():
    rows = case.rows(WORKER)
    model = case.build(rows)
    loss = training_loss_closure(model, STRATEGY, case.data(model, rows), compile=False)
    results[name] = value_and_gradient(loss, model)

with STRATEGY.scope():
    mirrored = CASES["per output"].build(CASES["per output"].rows(WORKER))
loss = training_loss_closure(mirrored, STRATEGY, compile=False)
results["in the scope"] = value_and_gradient(loss, mirrored)

# L-BFGS in lock-step, from another start on each worker: the first worker's counts.
rows = CASES["per output"].rows(WORKER)
model = gi.ILRSGPR(rows, kernel(), Z, num_classes=3)
if WORKER:
    model.kernel.variance.assign(5.0)
loss = training_loss_closure(model, STRATEGY)
fit = gpflow.optimizers.Scipy().minimize(loss, model.trainable_variables, options={"maxiter": 10})
results["fitted"] = np.append(parameters(model), fit.fun)
share_statistics(model, STRATEGY)
results["predicted"] = model.predict_y(X_NEW)[0].numpy()
results["predicted, compiled"] = tf.function(model.predict_y, autograph=False)(X_NEW)[0].numpy()
results["elbo"] = model.elbo().numpy()
save(model, FOLDER / f"model-{WORKER or 0}")

try:
    with tf.GradientTape() as tape:
        value = model.training_loss()
    tape.gradient(value, model.trainable_variables)
except ValueError as error:
    results["gradient refused"] = np.array(str(error))
model.kernel.variance.assign(2.0)
try:
    model.predict_y(X_NEW)
except ValueError as error:
    results["stale refused"] = np.array(str(error))

# Each worker absorbs its own shards with hyperparameters from elsewhere, then all share the sums.
absorbing = gi.ILRSGPR((X[:6], Y[:6]), kernel(), Z, num_classes=3)
absorbing.absorb(rows, batch_size=8, sample_size=4)
share_statistics(absorbing, STRATEGY)
results["absorbed"] = absorbing.predict_y(X_NEW)[0].numpy()
results["absorbed, elbo"] = absorbing.elbo().numpy()
results["absorbed, calibrated on"] = np.array(absorbing.calibrate().num_rows)
try:
    share_statistics(absorbing, STRATEGY)
except ValueError as error:
    results["shared twice refused"] = np.array(str(error))

# Minibatches: Adam and natural gradients, batches of different sizes on the workers.
uncollapsed = svgp(())
loss = training_loss_closure(uncollapsed, STRATEGY, iter(batches(WORKER)), compile=False)
adam = gpflow.keras.tf_keras.optimizers.Adam(0.01)
for _ in range(3):
    adam.minimize(loss, uncollapsed.trainable_variables)
    gpflow.optimizers.NaturalGradient(0.1).minimize(loss, [(uncollapsed.q_mu, uncollapsed.q_sqrt)])
results["minibatches"] = parameters(uncollapsed)

(count,) = sum_over_workers(STRATEGY, [tf.constant(len(rows[0]), tf.int64)])
results["count"] = count.numpy()

# Keras 3 cannot train on several workers: its fit fails for any layer there (keras-team/keras#20585).
networks = [("tf_keras", "float64")]
if WORKER is None:
    networks += [("keras", "float64"), ("keras", "float32")]
for package, dtype in networks:
    results[f"{package} {dtype}"] = np.array(losses(STRATEGY, package, dtype))

np.savez(FOLDER / f"results-{WORKER or 0}.npz", **results)
