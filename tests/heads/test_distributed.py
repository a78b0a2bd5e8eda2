"""GPHead under tf.distribute: two replicas train as one device does."""

import json
from pathlib import Path

import pytest

from tests.distributed.local_cluster import LocalCluster


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "dtype", "kind", "tolerance"),
    [
        ("keras", "float64", "mirrored", 1e-10),
        ("keras", "float32", "mirrored", 1e-6),
        ("tf_keras", "float64", "mirrored", 1e-10),
        # Keras 3 cannot: its fit fails for any layer there (keras-team/keras#20585).
        ("tf_keras", "float64", "workers", 1e-10),
    ],
)
def test_two_replicas_train_as_one_device(
    package: str, dtype: str, kind: str, tolerance: float, tmp_path: Path
) -> None:
    program = ["-m", "tests.distributed.programs.head", package, dtype, kind]
    with LocalCluster(program, 1 if kind == "mirrored" else 2, tmp_path) as cluster:
        cluster.finish()
    for worker in range(cluster.num_workers):
        expected, reported = json.loads(cluster.output(worker).splitlines()[-1])
        assert expected[1] < expected[0]
        assert reported == pytest.approx(expected, rel=tolerance)
