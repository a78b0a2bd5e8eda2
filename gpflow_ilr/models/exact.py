"""Exact conjugate classifiers: one N × N factor for all outputs that share their noise."""

from collections.abc import Sequence

import tensorflow as tf
from gpflow.base import MeanAndVariance, RegressionData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction
from gpflow.posteriors import PrecomputedValue

from gpflow_ilr.calibration.calibrate import LOOAtNoise, TunableSmoothing
from gpflow_ilr.calibration.criterion import Marginals
from gpflow_ilr.codes import DirichletCode, ILRCode, NoiseOption
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.likelihoods import ILRLikelihood, SoftmaxLikelihood
from gpflow_ilr.linalg.covariances import covariance
from gpflow_ilr.linalg.evidence import dense_log_evidence, inverse_diagonal_and_solution
from gpflow_ilr.linalg.inverse_factors import inverse_cholesky
from gpflow_ilr.linalg.jitter import least_noise
from gpflow_ilr.linalg.row_chunks import stack_over
from gpflow_ilr.models.conjugate import (
    ConjugateClassifier,
    Objective,
    OutputBlock,
    cross_covariance,
    prior_covariance,
    squared_norms,
)

__all__ = ["ExactClassifier", "ILRGPR", "DirichletGPR"]


class ExactClassifier(ConjugateClassifier):
    """Exact GP regression on the pseudo-targets of any label code: O(N³), no approximation.

    The number of Cholesky factors is that of distinct noise columns: one for ILR with fixed, shared
    or per-class noise, P for per-output noise and for the Dirichlet code.
    """

    def log_marginal_likelihood(self) -> tf.Tensor:
        """Log evidence of the paper's targets, [].

        Where one noise is shared, this is GPflow's ``GPR`` on those targets with kernel scale² k.
        """
        return self._log_evidence()

    def _regression(self, block: OutputBlock) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """K [N, N], targets less mean function [N, P], and noise variances [N, 1 or P]."""
        X = self.data[0]
        K = covariance(block.kernel, X)
        targets = tf.matmul(self.code.features(self._labels), block.columns(self.code.targets))
        mean = self._mean_columns(X, block)
        V = block.columns(self.code.noise_variance)
        V = tf.gather(V, self._labels) if self.code.depends_on_class else tf.repeat(V, len(X), 0)
        V = tf.maximum(V, least_noise(tf.linalg.diag_part(K)))
        return K, targets if mean is None else targets - mean, V

    def _log_evidence(self) -> tf.Tensor:
        evidences = [dense_log_evidence(*self._regression(b)) for b in self._output_blocks]
        return self._in_paper_units(tf.add_n(evidences), self.num_data)

    def _loo(self, rows: tf.Tensor | None = None) -> MeanAndVariance:
        """With C = (K + V)⁻¹: mean_−n = t_n − [C t]_n / C_nn, variance_−n = 1/C_nn − V_n."""
        means, variances = [], []
        for block in self._output_blocks:
            K, targets, V = self._regression(block)
            offset = self._mean_columns(self.data[0], block)
            columns = [targets] if V.shape[1] == 1 else tf.split(targets, V.shape[1], axis=1)
            for t, v in zip(columns, tf.split(V, V.shape[1], axis=1), strict=True):
                noisy = tf.linalg.set_diag(K, tf.linalg.diag_part(K) + v[:, 0])
                diagonal, alpha = inverse_diagonal_and_solution(noisy, t)
                means.append(t - alpha / diagonal[:, None])
                variances.append(tf.maximum(1.0 / diagonal[:, None] - v, 0.0))
            if offset is not None:
                means[-len(columns) :] = [tf.concat(means[-len(columns) :], axis=1) + offset]
        mean, variance = tf.concat(means, axis=1), tf.concat(variances, axis=1)
        if rows is None:
            return mean, variance
        return tf.gather(mean, rows), tf.gather(variance, rows)

    def loo_log_density(self) -> tf.Tensor:
        """Σ_n log p(y_n | all other rows), in closed form, []."""
        return self._label_log_density(*self._loo(), self._labels)

    def _precompute(self) -> list[PrecomputedValue]:
        """X, and for each block α = (K + V)⁻¹ t, [N, P], and L⁻¹ for each noise, [U, N, N]."""
        cache = [PrecomputedValue(self.data[0], (False, False))]
        for block in self._output_blocks:
            K, targets, V = self._regression(block)

            def inverse_factor(p: tf.Tensor, K: tf.Tensor = K, V: tf.Tensor = V) -> list[tf.Tensor]:
                noisy = tf.linalg.set_diag(K, tf.linalg.diag_part(K) + V[:, p])
                return [inverse_cholesky(noisy, "K + V").dense()]

            # One after the other: P factorisations at once may not fit in memory.
            (L_inv,) = stack_over(inverse_factor, V.shape[1])
            columns = targets[None] if V.shape[1] == 1 else tf.transpose(targets)[:, :, None]
            alpha = tf.matmul(L_inv, tf.matmul(L_inv, columns), transpose_a=True)
            alpha = alpha[0] if V.shape[1] == 1 else tf.transpose(alpha[..., 0])
            cache.append(PrecomputedValue(alpha, (False, False)))
            cache.append(PrecomputedValue(L_inv, (False, False, False)))
        return cache

    def _conditional(
        self, cache: Sequence[tf.Tensor], Xnew: tf.Tensor, full_cov: bool
    ) -> MeanAndVariance:
        """k*ᵀ α and k** − |L⁻¹ k*|²."""
        means, variances = [], []
        for i, block in enumerate(self._output_blocks):
            alpha, L_inv = cache[2 * i + 1 : 2 * i + 3]
            K = cross_covariance(covariance(block.kernel, cache[0], Xnew))
            means.append(tf.matmul(K, alpha, transpose_a=True))
            explained = squared_norms(tf.matmul(L_inv, K[..., None, :, :]), full_cov)
            variances.append(prior_covariance(block.kernel, Xnew, full_cov) - explained)
        return tf.concat(means, axis=-1), tf.concat(variances, axis=-3 if full_cov else -1)


class ILRGPR(TunableSmoothing, ExactClassifier):
    """The paper's Exact-ILR: conjugate multiclass classification with K − 1 latent functions.

    :param data: X [N, D] and labels ([N] or [N, 1] class indices, [N, K] one-hot or soft rows).
    :param kernel: kernel of f/L; see :func:`gpflow_ilr.starting.starting_kernel` for a start.
    :param num_classes: K.
    :param smoothing: λ; may be changed, or chosen by :meth:`calibrate`, after training.
    :param tolerance: ε of Proposition 1, which sets the base noise.
    :param noise: what is learned on top of the base noise: ``"fixed"`` (nothing), ``"shared"``,
        ``"per_output"`` (needs K − 1 factorisations) or ``"per_class"``.
    :param noise_variance: explicit base noise σ²/L² instead of Proposition 1's.
    :param mean_function: mean of f/L.
    :param objective: ``"evidence"`` or ``"loo"``, which also learns λ and suits isotropic kernels
        (it over-fits with ARD).
    :param nodes: node rule of the predictive probabilities.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        *,
        num_classes: int,
        smoothing: float = 0.99,
        tolerance: float = 1e-6,
        noise: NoiseOption = "fixed",
        noise_variance: float | None = None,
        mean_function: MeanFunction | None = None,
        objective: Objective = "evidence",
        nodes: NodeRule | None = None,
    ) -> None:
        code = ILRCode(num_classes, smoothing, tolerance, noise, noise_variance)
        likelihood = ILRLikelihood(num_classes, mixing=False, nodes=nodes)
        super().__init__(data, kernel, code, likelihood, mean_function, objective)

    def _loo_at_noise(self, rows: tf.Tensor) -> LOOAtNoise:
        """Leave-one-out in the eigenbasis K = U diag(g) Uᵀ, where every noise level is diagonal."""
        (block,) = self._output_blocks
        K, targets, _ = self._regression(block)
        g, U = tf.linalg.eigh(K)
        g = tf.maximum(g, 0.0)
        least = least_noise(tf.linalg.diag_part(K))
        rotated = tf.matmul(U, targets, transpose_a=True)
        U, targets, labels = (tf.gather(x, rows) for x in (U, targets, self._labels))
        offset = self._mean_columns(tf.gather(self.data[0], rows), block)

        def at(noise: float) -> Marginals:
            v = tf.maximum(tf.constant(noise, default_float()), least)
            w = 1.0 / (g + v)
            diagonal = tf.linalg.matvec(tf.square(U), w)[:, None]
            mean = targets - tf.matmul(U, w[:, None] * rotated) / diagonal
            mean = mean if offset is None else mean + offset
            return Marginals(mean, tf.maximum(1.0 / diagonal - v, 0.0), labels)

        return at


class DirichletGPR(ExactClassifier):
    """Exact Dirichlet-based GP classification (GPD; Milios et al., 2018), with K latent functions.

    :param data: X [N, D] and hard labels.
    :param kernel: kernel of f.
    :param num_classes: K.
    :param alpha_epsilon: α_ε of the Dirichlet code.
    :param noise: what is learned on top of the code's noise; see :class:`ILRGPR`.
    :param mean_function: mean of f.
    :param objective: ``"evidence"`` or ``"loo"``.
    :param nodes: node rule of the predictive probabilities.
    """

    def __init__(
        self,
        data: RegressionData,
        kernel: Kernel,
        *,
        num_classes: int,
        alpha_epsilon: float = 0.01,
        noise: NoiseOption = "fixed",
        mean_function: MeanFunction | None = None,
        objective: Objective = "evidence",
        nodes: NodeRule | None = None,
    ) -> None:
        code = DirichletCode(num_classes, alpha_epsilon, noise)
        likelihood = SoftmaxLikelihood(num_classes, mixing=False, nodes=nodes)
        super().__init__(data, kernel, code, likelihood, mean_function, objective)
