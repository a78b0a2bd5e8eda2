"""scikit-learn's Gaussian process."""

from collections.abc import Callable

from problems import problem
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF

__all__ = ["gaussian_process"]


def gaussian_process(N: int, D: int, K: int) -> Callable[[], object]:
    """Value and gradient of its evidence: Laplace's method for each class against the rest."""
    X, y, *_ = problem(N, D, K)
    model = GaussianProcessClassifier(1.0 * RBF(D**0.5), optimizer=None).fit(X, y)
    theta = model.base_estimator_.estimators_[0].kernel_.theta
    return lambda: [
        one.log_marginal_likelihood(theta, eval_gradient=True, clone_kernel=False)
        for one in model.base_estimator_.estimators_
    ]
