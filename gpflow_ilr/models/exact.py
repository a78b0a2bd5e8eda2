"""Exact conjugate classifiers: one N × N factor for all outputs that share their noise."""

from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance
from gpflow.config import default_float
from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction

from gpflow_ilr.calibration import calibrate, smoothing
from gpflow_ilr.calibration.criterion import LeftOutAtNoise, Marginals
from gpflow_ilr.codes import DirichletCode, ILRCode, NoiseOption
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.inputs.kernels import OutputSpan
from gpflow_ilr.inputs.rows import LabelledData, LabelledRows
from gpflow_ilr.linalg.conditionals import cross_covariance, prior_covariance, squared_norms
from gpflow_ilr.linalg.covariances import covariance
from gpflow_ilr.linalg.evidence import dense_log_evidence, spd_inverse
from gpflow_ilr.linalg.in_place import factor_and_solution, left_out_terms
from gpflow_ilr.linalg.jitter import least_noise
from gpflow_ilr.linalg.own_class_evidence import own_class_log_evidence
from gpflow_ilr.linalg.row_chunks import stack_over
from gpflow_ilr.linalg.substitution import substituted
from gpflow_ilr.models.conjugate import ConjugateClassifier, Objective

__all__ = ["ExactClassifier", "ILRGPR", "DirichletGPR"]


class ExactClassifier(ConjugateClassifier):
    """Exact GP regression on the pseudo-targets of any label code: O(N³), no approximation.

    The number of Cholesky factors is that of distinct noise columns: one for ILR with fixed, shared
    or per-class noise, P for per-output noise and for the Dirichlet code, whose evidence, however, has
    two (:mod:`gpflow_ilr.linalg.own_class_evidence`) unless its noise is per output.

    In eager mode on a CPU leave-one-out, calibration and the posterior take one N × N matrix of memory
    each (a posterior keeps its own, and P of them where there are P factors), and training by the
    evidence several. In graphs and on a GPU TensorFlow's own kernels do all of it. ``float32``
    (``gpflow.config.set_default_float``) halves memory and time; noise is then at least 1e-4 of the
    kernel's variance, and probabilities differ by 1.5e-4 at most (N = 5,000, ten classes).
    """

    def log_marginal_likelihood(self) -> tf.Tensor:
        """Log evidence of the paper's targets, [].

        Where one noise is shared, this is GPflow's ``GPR`` on those targets with kernel scale² k.
        """
        return self.log_evidence()

    def log_evidence(self) -> tf.Tensor:
        """Log evidence of the paper's targets, []."""
        return self.log_evidence_of(*self.labelled_rows.tensors)

    def log_evidence_of(
        self, X: tf.Tensor, labels: tf.Tensor, weights: tf.Tensor | None = None
    ) -> tf.Tensor:
        """Log evidence of the targets of any rows, at the present hyperparameters, [].

        w rows with one target t have Π N(t | f, V) = N(t | f, V/w) · √(2πV/w) / √(2πV)ʷ.

        :param X: [n, D]; in a graph n may be unknown, so that one trace serves many sets of rows.
        :param labels: class indices [n], or soft rows [n, K].
        :param weights: [n]; None where every row counts once.
        """
        rows = LabelledRows(X, labels, weights)
        evidences = []
        for span in self.output_spans:
            targets, V = self._regression(span, rows)
            K = covariance(span.kernel, X)
            if self.code.is_quieter_for_own_class and span.stop - span.start > 2:
                E = span.columns(self.code.features(labels))
                evidences.append(own_class_log_evidence(K, targets, V, E))
            else:
                evidences.append(dense_log_evidence(K, targets, V))
            if weights is not None:
                w = weights[:, None]  # and V is V/w
                terms = (1.0 - w) * tf.math.log(2.0 * np.pi * V) - w * tf.math.log(w)
                outputs = (span.stop - span.start) // V.shape[1]
                evidences.append(0.5 * outputs * tf.reduce_sum(terms))
        return self.in_paper_units(tf.add_n(evidences), rows.total_weight)

    def _regression(
        self, span: OutputSpan, rows: LabelledRows | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Targets less mean function [N, P], and noise V/w [N, 1 or P]; of own rows if None."""
        rows = self.labelled_rows if rows is None else rows
        X, labels = rows.X, rows.labels
        targets = tf.matmul(self.code.features(labels), span.columns(self.code.targets))
        mean = span.mean(self.mean_function, X)
        V = span.columns(self.code.noise_variance)
        V = tf.gather(V, labels) if self.code.depends_on_class else tf.repeat(V, tf.shape(X)[0], 0)
        V = V if rows.weights is None else V / rows.weights[:, None]
        V = tf.maximum(V, least_noise(span.kernel(X, full_cov=False)))
        return targets if mean is None else targets - mean, V

    def leave_one_out(self, rows: tf.Tensor | None = None) -> MeanAndVariance:
        """With C = (K + V)⁻¹: mean_−n = t_n − [C t]_n / C_nn, variance_−n = 1/C_nn − V_n.

        :param rows: which training rows; all of them if None.
        """
        parts = [self._left_out(span, *self._regression(span), rows) for span in self.output_spans]
        mean, variance = (tf.concat(results, axis=1) for results in zip(*parts, strict=True))
        return mean, variance

    def _left_out(
        self, span: OutputSpan, targets: tf.Tensor, V: tf.Tensor, rows: tf.Tensor | None
    ) -> MeanAndVariance:
        """:meth:`leave_one_out` of the outputs of a span, one after the other if noises differ."""
        X = self.data[0]
        columns = [targets] if V.shape[1] == 1 else tf.split(targets, V.shape[1], axis=1)
        means, variances = [], []
        for t, v in zip(columns, tf.split(V, V.shape[1], axis=1), strict=True):
            diagonal, alpha = left_out_terms(span.kernel, X, t, v[:, 0], rows)
            t, v = (t, v) if rows is None else (tf.gather(t, rows), tf.gather(v, rows))
            means.append(t - alpha / diagonal[:, None])
            variances.append(tf.maximum(1.0 / diagonal[:, None] - v, 0.0))
        offset = span.mean(self.mean_function, X if rows is None else tf.gather(X, rows))
        mean, variance = tf.concat(means, axis=1), tf.concat(variances, axis=1)
        return mean if offset is None else mean + offset, variance

    def leave_one_out_at(self, rows: tf.Tensor) -> Callable[[tf.Tensor], MeanAndVariance]:
        """Predictions for new rows by the model without each of some training rows, in turn.

        With C = (K + V)⁻¹: f_−n(x*) = f(x*) − [C k*]_n [C t]_n / C_nn, and its variance is larger by
        [C k*]_n² / C_nn. What is returned maps Xnew [m, D] to mean [m, n, P] and variance
        [m, n, P or 1], in the code's units.

        :param rows: which training rows, n of them.
        """
        X, solved = self.data[0], []
        for span in self.output_spans:
            targets, V = self._regression(span)
            K = covariance(span.kernel, X)
            A = tf.linalg.set_diag(
                tf.stack([K] * V.shape[1]), tf.linalg.diag_part(K) + tf.transpose(V)
            )
            C = spd_inverse(A)  # [U, N, N]
            t = targets[None] if V.shape[1] == 1 else tf.transpose(targets)[:, :, None]
            alpha = tf.concat(tf.unstack(tf.matmul(C, t)), axis=1)  # [N, P]
            diagonal = tf.gather(tf.transpose(tf.linalg.diag_part(C)), rows)  # [n, U]
            solved.append((span, C, alpha, tf.gather(alpha, rows) / diagonal, diagonal))

        def at(Xnew: tf.Tensor) -> MeanAndVariance:
            means, variances = [], []
            for span, C, alpha, ratio, diagonal in solved:
                k = covariance(span.kernel, X, Xnew)
                Ck = tf.transpose(tf.matmul(C, k))  # [m, N, U]
                mean = tf.matmul(k, alpha, transpose_a=True)
                explained = tf.reduce_sum(tf.transpose(k)[..., None] * Ck, axis=1)
                variance = prior_covariance(span.kernel, Xnew, full_cov=False) - explained
                gain = tf.gather(Ck, rows, axis=1)
                means.append(mean[:, None] - gain * ratio)
                variances.append(tf.maximum(variance[:, None] + tf.square(gain) / diagonal, 0.0))
            offset = self.mean_function(Xnew)[:, None]
            return tf.concat(means, axis=-1) + offset, tf.concat(variances, axis=-1)

        return at

    def loo_log_density(self) -> tf.Tensor:
        """Σ_n w_n log p(y_n | all other rows), in closed form, []."""
        return self.label_log_density(Marginals.of(self.labelled_rows, *self.leave_one_out()))

    def loo_at_noise(self, rows: tf.Tensor) -> LeftOutAtNoise:
        """Leave-one-out as a function of the noise, at one factorisation for each.

        The eigenbasis of K would serve every noise, but costs as much as 11 to 32 factorisations
        (measured for 100 to 2000 rows, one core).

        :param rows: which training rows.
        """
        (span,) = self.output_spans
        targets, _ = self._regression(span)
        least = least_noise(span.kernel(self.data[0], full_cov=False))
        left_out, weights = self.labelled_rows.take(rows), self.labelled_rows.known_weights

        def at(noise: float) -> Marginals:
            V = tf.maximum(tf.constant(noise, default_float()) / weights[:, None], least)
            return Marginals.of(left_out, *self._left_out(span, targets, V, rows))

        return lambda noises: [at(noise) for noise in noises]

    def precompute(self) -> list[tf.Tensor]:
        """X, and for each span α = (K + V)⁻¹ t, [N, P], and L for each noise, [U, N, N].

        L has its diagonal blocks inverted (:mod:`gpflow_ilr.linalg.substitution`).
        """
        X = self.data[0]
        cache = [X]
        for span in self.output_spans:
            targets, V = self._regression(span)

            def solved(
                p: tf.Tensor,
                span: OutputSpan = span,
                targets: tf.Tensor = targets,
                V: tf.Tensor = V,
            ) -> list[tf.Tensor]:
                columns = targets if V.shape[1] == 1 else targets[:, p, None]
                return list(factor_and_solution(span.kernel, X, columns, V[:, p]))

            if V.shape[1] == 1:  # and so no copy of the factor
                L, alpha = solved(tf.constant(0))
                cache += [alpha, tf.expand_dims(L, 0)]
            else:  # one after the other: P factorisations at once may not fit in memory
                L, alphas = stack_over(solved, V.shape[1])
                cache += [tf.transpose(alphas[..., 0]), L]
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
            alpha, L = cache[2 * i + 1 : 2 * i + 3]
            K = cross_covariance(covariance(span.kernel, cache[0], Xnew))
            means.append(tf.matmul(K, alpha, transpose_a=True))
            explained = squared_norms(substituted(L, K[..., None, :, :]), full_cov)
            variances.append(prior_covariance(span.kernel, Xnew, full_cov) - explained)
        return tf.concat(means, axis=-1), tf.concat(variances, axis=-3 if full_cov else -1)


class ILRGPR(ExactClassifier):
    """The paper's Exact-ILR: conjugate multiclass classification with K − 1 latent functions.

    :param data: X [N, D], labels ([N] or [N, 1] class indices, [N, K] one-hot or soft rows) and, if
        wanted, weights [N]: a row of weight w counts as w rows.
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
        data: LabelledData,
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

    :param data: X [N, D], hard labels and, if wanted, weights [N].
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
        data: LabelledData,
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
