"""Exact conjugate classifiers: one N × N factor for all outputs that share their noise."""

from collections.abc import Callable, Sequence

import tensorflow as tf
from gpflow.base import MeanAndVariance, RegressionData
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction

from gpflow_ilr.calibration import Marginals, calibrate, smoothing
from gpflow_ilr.codes import DirichletCode, ILRCode, NoiseOption
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.inputs.kernels import OutputSpan
from gpflow_ilr.linalg.conditionals import cross_covariance, prior_covariance, squared_norms
from gpflow_ilr.linalg.covariances import covariance
from gpflow_ilr.linalg.evidence import dense_log_evidence, inverse_diagonal_and_solution
from gpflow_ilr.linalg.inverse_factors import inverse_cholesky
from gpflow_ilr.linalg.jitter import least_noise
from gpflow_ilr.linalg.row_chunks import stack_over
from gpflow_ilr.models.conjugate import ConjugateClassifier, Objective

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
        return self.log_evidence()

    def log_evidence(self) -> tf.Tensor:
        """Log evidence of the paper's targets, []."""
        evidences = [dense_log_evidence(*self._regression(span)) for span in self.output_spans]
        return self.in_paper_units(tf.add_n(evidences), self.num_data)

    def _regression(self, span: OutputSpan) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """K [N, N], targets less mean function [N, P], and noise variances [N, 1 or P]."""
        X = self.data[0]
        K = covariance(span.kernel, X)
        targets = tf.matmul(self.code.features(self.labels), span.columns(self.code.targets))
        mean = span.mean(self.mean_function, X)
        V = span.columns(self.code.noise_variance)
        V = tf.gather(V, self.labels) if self.code.depends_on_class else tf.repeat(V, len(X), 0)
        V = tf.maximum(V, least_noise(tf.linalg.diag_part(K)))
        return K, targets if mean is None else targets - mean, V

    def leave_one_out(self, rows: tf.Tensor | None = None) -> MeanAndVariance:
        """With C = (K + V)⁻¹: mean_−n = t_n − [C t]_n / C_nn, variance_−n = 1/C_nn − V_n.

        :param rows: which training rows; all of them if None.
        """
        means, variances = [], []
        for span in self.output_spans:
            K, targets, V = self._regression(span)
            offset = span.mean(self.mean_function, self.data[0])
            columns = [targets] if V.shape[1] == 1 else tf.split(targets, V.shape[1], axis=1)
            left_out = []
            for t, v in zip(columns, tf.split(V, V.shape[1], axis=1), strict=True):
                noisy = tf.linalg.set_diag(K, tf.linalg.diag_part(K) + v[:, 0])
                diagonal, alpha = inverse_diagonal_and_solution(noisy, t)
                left_out.append(t - alpha / diagonal[:, None])
                variances.append(tf.maximum(1.0 / diagonal[:, None] - v, 0.0))
            mean = tf.concat(left_out, axis=1)
            means.append(mean if offset is None else mean + offset)
        results = tf.concat(means, axis=1), tf.concat(variances, axis=1)
        return results if rows is None else tuple(tf.gather(x, rows) for x in results)

    def loo_log_density(self) -> tf.Tensor:
        """Σ_n log p(y_n | all other rows), in closed form, []."""
        return self.label_log_density(Marginals(*self.leave_one_out(), self.labels))

    def loo_at_noise(self, rows: tf.Tensor) -> Callable[[float], Marginals]:
        """Leave-one-out in the eigenbasis K = U diag(g) Uᵀ, where every noise level is diagonal.

        :param rows: which training rows.
        """
        (span,) = self.output_spans
        K, targets, _ = self._regression(span)
        g, U = tf.linalg.eigh(K)
        g = tf.maximum(g, 0.0)
        least = least_noise(tf.linalg.diag_part(K))
        rotated = tf.matmul(U, targets, transpose_a=True)
        U, targets, labels = (tf.gather(x, rows) for x in (U, targets, self.labels))
        offset = span.mean(self.mean_function, tf.gather(self.data[0], rows))

        def at(noise: float) -> Marginals:
            v = tf.maximum(tf.constant(noise, default_float()), least)
            w = 1.0 / (g + v)
            diagonal = tf.linalg.matvec(tf.square(U), w)[:, None]
            mean = targets - tf.matmul(U, w[:, None] * rotated) / diagonal
            mean = mean if offset is None else mean + offset
            return Marginals(mean, tf.maximum(1.0 / diagonal - v, 0.0), labels)

        return at

    def precompute(self) -> list[tf.Tensor]:
        """X, and for each span α = (K + V)⁻¹ t, [N, P], and L⁻¹ for each noise, [U, N, N]."""
        cache = [self.data[0]]
        for span in self.output_spans:
            K, targets, V = self._regression(span)

            def inverse_factor(p: tf.Tensor, K: tf.Tensor = K, V: tf.Tensor = V) -> list[tf.Tensor]:
                noisy = tf.linalg.set_diag(K, tf.linalg.diag_part(K) + V[:, p])
                return [inverse_cholesky(noisy, "K + V").dense()]

            # One after the other: P factorisations at once may not fit in memory.
            (L_inv,) = stack_over(inverse_factor, V.shape[1], [K])
            columns = targets[None] if V.shape[1] == 1 else tf.transpose(targets)[:, :, None]
            alpha = tf.matmul(L_inv, tf.matmul(L_inv, columns), transpose_a=True)
            alpha = alpha[0] if V.shape[1] == 1 else tf.transpose(alpha[..., 0])
            cache += [alpha, L_inv]
        return cache

    def conditional(
        self, cache: Sequence[tf.Tensor], Xnew: tf.Tensor, full_cov: bool
    ) -> MeanAndVariance:
        """k*ᵀ α and k** − |L⁻¹ k*|², in the code's units.

        :param cache: what :meth:`precompute` returned.
        :param Xnew: [..., n, D].
        :param full_cov: whether to keep covariances between rows.
        """
        means, variances = [], []
        for i, span in enumerate(self.output_spans):
            alpha, L_inv = cache[2 * i + 1 : 2 * i + 3]
            K = cross_covariance(covariance(span.kernel, cache[0], Xnew))
            means.append(tf.matmul(K, alpha, transpose_a=True))
            explained = squared_norms(tf.matmul(L_inv, K[..., None, :, :]), full_cov)
            variances.append(prior_covariance(span.kernel, Xnew, full_cov) - explained)
        return tf.concat(means, axis=-1), tf.concat(variances, axis=-3 if full_cov else -1)


class ILRGPR(ExactClassifier):
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

    code: ILRCode
    smoothing = smoothing
    calibrate = calibrate

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
        super().__init__(data, kernel, code, mean_function, objective, nodes)


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
        super().__init__(data, kernel, code, mean_function, objective, nodes)
