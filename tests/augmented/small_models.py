"""The models of thirty rows that the tests sample, and where they predict."""

import gpflow
import numpy as np

from gpflow_ilr.augmented.models import BijectiveSoftmaxGP, LogisticSoftmaxGP
from tests.augmented.reference import three_blobs

MODELS = {"LSM": LogisticSoftmaxGP, "BSM": BijectiveSoftmaxGP}
VARIANCE, LENGTHSCALE = 6.0, 1.2
XNEW = np.random.default_rng(1).uniform(-2, 2, (9, 2))


def kernel():
    return gpflow.kernels.SquaredExponential(VARIANCE, LENGTHSCALE)


def build(name, **options):
    options = {"kernel": kernel(), "num_classes": 3} | options
    return MODELS[name](three_blobs(num_rows=30), **options)
