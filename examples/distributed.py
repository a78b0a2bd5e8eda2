"""Train on one machine or on many, with the same command line, and go on after a crash.

Write shards of scikit-learn's digits once, then train:

    python examples/distributed.py outputs/digits --make-shards 4
    python examples/distributed.py outputs/digits

The second command uses all GPUs of the machine (or its CPU). To train on several machines, run it on
each of them with TF_CONFIG set (here for the first of two; the index of the second is 1):

    export TF_CONFIG='{"cluster": {"worker": ["host0:2222", "host1:2222"]},
                       "task": {"type": "worker", "index": 0}}'

If a worker dies, run the command on all of them again: training goes on from the last checkpoint that
all have, with the same losses. Each worker reads its own shards and keeps its own checkpoints.
"""

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import gpflow
import numpy as np
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr.distributed import share_statistics, sum_over_workers, training_loss_closure
from gpflow_ilr.saving import save

K = 10
ITERATIONS = 10  # in a round

Training = tuple[tf.train.Checkpoint, Callable[[], float]]
"""What to save, and a round of training, which answers its loss."""


def make_shards(folder: Path, count: int) -> None:
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order] / 16.0, y[order]
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(folder / "test.npz", X=X[1500:], y=y[1500:])
    for i, rows in enumerate(np.array_split(np.arange(1500), count)):
        with tf.io.TFRecordWriter(str(folder / f"train-{i:05d}.tfrecord")) as writer:
            for row in rows:
                feature = {
                    "x": tf.train.Feature(float_list=tf.train.FloatList(value=X[row])),
                    "y": tf.train.Feature(int64_list=tf.train.Int64List(value=[y[row]])),
                }
                example = tf.train.Example(features=tf.train.Features(feature=feature))
                writer.write(example.SerializeToString())


def read_shards(folder: Path, worker: int, num_workers: int) -> tf.data.Dataset:
    """Rows of every num_workers-th shard."""
    files = sorted(map(str, folder.glob("train-*.tfrecord")))[worker::num_workers]
    if not files:
        raise SystemExit(f"Worker {worker} finds no shard of its own in {folder}: --make-shards.")
    num_inputs = np.load(folder / "test.npz")["X"].shape[1]
    features = {
        "x": tf.io.FixedLenFeature([num_inputs], tf.float32),
        "y": tf.io.FixedLenFeature([], tf.int64),
    }

    def parse(record: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        row = tf.io.parse_single_example(record, features)
        return tf.cast(row["x"], gpflow.default_float()), row["y"]

    return tf.data.TFRecordDataset(files).map(parse)


def collapsed(
    strategy: tf.distribute.Strategy, rows: tf.data.Dataset, num_inducing: int
) -> Training:
    """Collapsed-ILR of all rows; a round is ten iterations of L-BFGS."""
    X, y = rows.batch(2**30).get_single_element()
    Z = gi.kmeans_plusplus(X, num_inducing)  # the first worker's are taken by all
    model = gi.ILRSGPR((X, y), gi.starting_kernel(X, K), Z, num_classes=K)
    loss = training_loss_closure(model, strategy)
    optimizer = gpflow.optimizers.Scipy()

    def train() -> float:
        options = {"maxiter": ITERATIONS}
        return optimizer.minimize(loss, model.trainable_variables, options=options).fun

    return tf.train.Checkpoint(model=model), train


def uncollapsed(
    strategy: tf.distribute.Strategy, rows: tf.data.Dataset, num_inducing: int
) -> Training:
    """Uncollapsed-ILR from minibatches of 64 rows on each worker; a round is ten steps of Adam."""
    X, _ = rows.batch(1000).take(1).get_single_element()
    own = rows.reduce(np.int64(0), lambda count, _: count + 1)
    (num_data,) = sum_over_workers(strategy, [own])
    kernel = gi.starting_kernel(X, K)
    kernel.variance.assign(10.0)  # latents are logits
    Z = gi.kmeans_plusplus(X, num_inducing)
    model = gi.ILRSVGP(kernel, Z, num_classes=K, num_data=int(num_data))
    batches = iter(rows.repeat().shuffle(1000, seed=0).batch(64))
    loss = training_loss_closure(model, strategy, batches)
    optimizer = gpflow.keras.tf_keras.optimizers.Adam(0.02)
    optimizer.build(model.trainable_variables)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        with tf.GradientTape() as tape:
            value = loss()
        gradients = tape.gradient(value, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return value

    def train() -> float:
        return float(np.mean([step() for _ in range(ITERATIONS)]))

    return tf.train.Checkpoint(model=model, optimizer=optimizer, batches=batches), train


def resume(
    strategy: tf.distribute.Strategy,
    manager: tf.train.CheckpointManager,
    worker: int,
    num_workers: int,
) -> int:
    """Restore the last checkpoint that all workers have; the number of rounds until then."""
    latest = int((manager.latest_checkpoint or "-0").rpartition("-")[2])
    own = np.zeros(num_workers, np.int64)
    own[worker] = latest
    common = int(np.min(sum_over_workers(strategy, [tf.constant(own)])[0]))
    if common > 0:
        path = Path(manager.directory) / f"checkpoint-{common}"
        manager.checkpoint.restore(str(path)).assert_consumed()
    return common


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--make-shards", type=int, metavar="COUNT")
    parser.add_argument("--uncollapsed", action="store_true", help="minibatches instead of L-BFGS")
    parser.add_argument("--num-inducing", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=10, help="of ten iterations each")
    parser.add_argument("--checkpoint-every", type=int, default=1, metavar="ROUNDS")
    arguments = parser.parse_args()
    if arguments.make_shards:
        make_shards(arguments.folder, arguments.make_shards)
        return

    if "TF_CONFIG" in os.environ:  # before TensorFlow computes anything
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        cluster = strategy.cluster_resolver
        worker, num_workers = cluster.task_id, cluster.cluster_spec().num_tasks("worker")
    else:
        strategy = tf.distribute.MirroredStrategy()
        worker, num_workers = 0, 1
    rows = read_shards(arguments.folder, worker, num_workers)
    build = uncollapsed if arguments.uncollapsed else collapsed
    checkpoint, train = build(strategy, rows, arguments.num_inducing)
    model = checkpoint.model
    kind = f"{type(model).__name__}-{arguments.num_inducing}"
    directory = arguments.folder / f"{kind}-worker-{worker}-of-{num_workers}"
    manager = tf.train.CheckpointManager(
        checkpoint, str(directory), max_to_keep=2, checkpoint_name="checkpoint"
    )

    done = resume(strategy, manager, worker, num_workers)
    print(f"worker {worker} of {num_workers} starts after round {done}")
    for number in range(done + 1, arguments.rounds + 1):
        print(f"round {number} loss {train()!r}")
        if number % arguments.checkpoint_every == 0:
            manager.save(checkpoint_number=number)

    if not arguments.uncollapsed:
        share_statistics(model, strategy)  # now each worker's model knows all rows
    if worker == 0:
        if not arguments.uncollapsed:
            model.calibrate()
        save(model, arguments.folder / "model")
        test = np.load(arguments.folder / "test.npz")
        p = model.predict_y(test["X"])[0]
        accuracy = gi.metrics.accuracy(p, test["y"])
        nll = gi.metrics.negative_log_likelihood(p, test["y"])
        print(f"test accuracy {accuracy:.3f}  NLL {nll:.3f}")


if __name__ == "__main__":
    try:
        main()
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        raise SystemExit(
            f"{error.message}\nAnother worker has died: see above. Run the command on all of them "
            "again; it goes on from the last checkpoint that all have."
        ) from None
