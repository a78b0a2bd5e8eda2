"""Another likelihood in a GPflow model: three lines of GPflow's notebook on multiclass classification.

    - invlink = gpflow.likelihoods.RobustMax(C)
    - likelihood = gpflow.likelihoods.MultiClass(C, invlink=invlink)
    + likelihood = gpflow_ilr.ILRLikelihood(C)
    ...
    -     num_latent_gps=C,
    +     num_latent_gps=C - 1,

Everything else is the notebook's: data, kernel, inducing inputs, optimiser. Its labels have no noise,
as RobustMax assumes; then one label in five is drawn anew, in the test rows, too.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import sys

import gpflow
import numpy as np

from gpflow_ilr import ILRLikelihood, metrics

C, N, ITERATIONS = 3, 100, 100 if "--quick" in sys.argv else 1000  # --quick: to see that it runs
rng = np.random.default_rng(0)
X = rng.uniform(size=(10 * N, 1))  # the notebook's 100 rows, and 900 to test on
K = gpflow.kernels.SquaredExponential(lengthscales=0.1)(X).numpy() + 1e-6 * np.eye(len(X))
f = np.linalg.cholesky(K) @ rng.normal(size=(len(X), C))
Y = np.argmax(f, axis=1)[:, None]
noisy = np.where(rng.random(Y.shape) < 0.2, rng.integers(C, size=Y.shape), Y)


def fitted(
    X: np.ndarray, Y: np.ndarray, likelihood: gpflow.likelihoods.Likelihood
) -> gpflow.models.SVGP:
    """The model of the notebook."""
    model = gpflow.models.SVGP(
        kernel=gpflow.kernels.Matern32() + gpflow.kernels.White(variance=0.01),
        likelihood=likelihood,
        inducing_variable=X[::5].copy(),
        num_latent_gps=likelihood.latent_dim,  # C, or C - 1
        whiten=True,
        q_diag=True,
    )
    gpflow.set_trainable(model.kernel.kernels[1].variance, False)
    gpflow.set_trainable(model.inducing_variable, False)
    loss = model.training_loss_closure((X, Y))
    gpflow.optimizers.Scipy().minimize(
        loss, model.trainable_variables, options={"maxiter": ITERATIONS}
    )
    return model


robust_max = gpflow.likelihoods.MultiClass(C, invlink=gpflow.likelihoods.RobustMax(C))
for data, labels in {"the notebook's labels": Y, "one in five drawn anew": noisy}.items():
    for name, likelihood in {"RobustMax": robust_max, "ILR": ILRLikelihood(C)}.items():
        p, _ = fitted(X[:N], labels[:N], likelihood).predict_y(X[N:])
        p = p / np.sum(p, axis=1, keepdims=True)  # those of RobustMax sum to one within 1e-3
        print(
            f"{data:<22}  {name:<9}  accuracy {metrics.accuracy(p, labels[N:]):.3f}"
            f"  NLL {metrics.negative_log_likelihood(p, labels[N:]):.3f}"
            f"  ECE {metrics.expected_calibration_error(p, labels[N:]):.3f}"
        )
