"""A sparse GP classifier as the last layer of a network: what both generations of Keras share.

:mod:`gpflow_ilr.keras` (Keras 3) and :mod:`gpflow_ilr.tf_keras` (Keras 2) each join
:class:`HeadLogic` to their own ``Layer`` (and the loss of :mod:`gpflow_ilr.heads.elbo_loss` to
their own). Inside the layer is an :class:`~gpflow_ilr.ILRSVGP` on the features h that the network
before it computes. Per row of the data, the negative evidence lower bound is

    −ELBO/N = mean_n −E_q[log π_y(h_n)] + KL(q ‖ p)/N,

and Keras minimises the mean of a loss over the batch plus what a layer adds. The layer adds KL/N. What
it returns in training depends on ``objective``:

- ``"elbo"``: exp E_q[log π], which ``ELBOLoss`` turns into the first term. The predicted
  E_q[π] would not do: −log E_q[π_y] is another objective, without the price of uncertainty. Built-in
  cross-entropies would not do either, because they normalise what they are given.
- ``"draw"``: π of one draw from q, for which every built-in loss is an unbiased estimate.
- ``"code"``: exp E_q[log N(t_k | f, V)] for the pseudo-targets t_k of the classes, less a constant that
  is added with the KL term. Nothing is integrated numerically, a step costs little more than that of a
  softmax layer, and ``collapse`` replaces q by its optimum over all rows when training has ended.

In evaluation and prediction it returns the probabilities E_q[π], and adds nothing: ``evaluate`` reports
the NLL of the predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import gpflow
import numpy as np
import tensorflow as tf
from gpflow.base import MeanAndVariance
from gpflow.kernels import Stationary

from gpflow_ilr.codes import ILRCode
from gpflow_ilr.expectations import NodeRule, expected_log_softmax, expected_softmax
from gpflow_ilr.heads import after_training
from gpflow_ilr.heads.code_gp import SharedCodeGP
from gpflow_ilr.heads.elbo_loss import for_elbo_loss, for_prediction
from gpflow_ilr.heads.gp_layer import LINEAR, GPLayerLogic, KernelSpec, make_kernel
from gpflow_ilr.heads.outputs import predicted
from gpflow_ilr.heads.own_roots import latent_terms
from gpflow_ilr.heads.penalty import Note, refuse_forgotten
from gpflow_ilr.inputs.counts import check_count, check_seed, evenly_spaced
from gpflow_ilr.inputs.labels import check_num_classes
from gpflow_ilr.inputs.rows import as_inputs, as_rows
from gpflow_ilr.models import ILRSVGP
from gpflow_ilr.models.probabilities import Entropies
from gpflow_ilr.starting import kmeans_plusplus, starting_kernel

__all__ = ["HeadLogic"]

PARTS = {
    "kernel": ".kernel",
    "inducing": ".inducing_variable",
    "mixing": ".likelihood",
    "q": ".q",
}
"""What can be frozen, and how the paths of its parameters begin."""

OBJECTIVES = ("elbo", "draw", "code")
STARTING_VARIANCE = 10.0  # latents are logits, so their amplitude is of order ten
STARTING_SCALE = 0.1  # of the root of q's covariance: little noise in the first gradients
SPREADING = 3.0  # how much further apart a trained network takes rows than a fresh one
ADAPT_ROWS = 10_000


class HeadLogic(GPLayerLogic):
    """Class probabilities from features, by K − 1 latent GPs with M common inducing inputs.

    :param num_classes: number of classes K.
    :param num_inducing: number of inducing inputs M.
    :param num_data: number of rows of the training set, which weighs the KL term.
    :param kernel: the name of a stationary GPflow kernel, or a function without arguments that returns
        a kernel; register the function with Keras (``register_keras_serializable``) to save the model.
    :param num_latent_gps: number of latent GPs; by default K − 1, fewer make the mixing low-rank.
    :param mixing: whether to learn the matrix W that mixes the latents.
    :param objective: ``"elbo"`` or ``"code"``, to be compiled with this package's ``ELBOLoss``, or
        ``"draw"``, for built-in losses. After training with ``"code"`` call :meth:`collapse`.
    :param frozen: parts that are not trained, of ``"kernel"``, ``"inducing"``, ``"mixing"``, ``"q"``;
        by default none, and the kernel with ``"code"``, where a network that scales its features can
        do all that a lengthscale would.
    :param nodes: node rule of expectations; see :mod:`gpflow_ilr.expectations`.
    :param gp_dtype: ``"float64"`` or ``"float32"``, in which the GP computes, whatever the network's
        dtype; GPflow's default float if None. Where it is not the network's, a MirroredStrategy needs
        ``cross_device_ops=tf.distribute.ReductionToOneDevice()``: the default packs gradients together.
    :param jitter: added to the diagonal of K_uu; if None GPflow's default. See also
        :mod:`gpflow_ilr.linalg.jitter` for float32.
    :param seed: seed of the inducing inputs at the start.
    :param layer: arguments of every Keras layer: ``name``, ``dtype``, ``trainable``.
    :raises ValueError: if ``num_data`` is missing, or an argument is not one of its choices.
    :raises TypeError: if ``kernel`` is neither a name nor a function.
    """

    add_loss: Callable[[tf.Tensor], None]
    _posterior_layer: ClassVar[Any]
    gp: ILRSVGP | SharedCodeGP

    def __init__(
        self,
        num_classes: int,
        num_inducing: int,
        num_data: int | None = None,
        *,
        kernel: KernelSpec = "SquaredExponential",
        num_latent_gps: int | None = None,
        mixing: bool = True,
        objective: str = "elbo",
        frozen: Sequence[str] | None = None,
        nodes: NodeRule | None = None,
        gp_dtype: str | None = None,
        jitter: float | None = None,
        seed: int = 0,
        **layer: Any,
    ) -> None:
        # Features keep their precision: autocasting would round them to the policy's dtype.
        super().__init__(**{"autocast": False, **layer})
        self.num_classes = check_num_classes(num_classes)
        self.num_inducing = check_count("num_inducing", num_inducing)
        if num_data is None:
            raise ValueError(
                "num_data is missing: GPHead needs the number of rows of the training set, because "
                "KL/num_data is its share of the loss. Pass num_data=len(X_train)."
            )
        self.num_data = check_count("num_data", num_data)
        self.num_latent_gps = num_latent_gps
        self.mixing = mixing
        if objective not in OBJECTIVES:
            raise ValueError(f"objective must be one of {OBJECTIVES}, but it is {objective!r}.")
        self.objective = objective
        if frozen is None:
            frozen = ("kernel",) if objective == "code" else ()
        self._frozen = _parts(frozen)
        self._set_gp_options(kernel, nodes, gp_dtype, jitter)
        self.seed = check_seed(seed)
        self._note: Note | None = None
        if objective == "code" and num_latent_gps not in (None, num_classes - 1):
            raise ValueError(
                f"objective='code' has {num_classes - 1} latents, one less than classes, but "
                f"num_latent_gps is {num_latent_gps}. Leave it out."
            )

    # Building ---------------------------------------------------------------------------------------

    def _build_gp(self, input_shape: Any) -> ILRSVGP | SharedCodeGP:
        """The GP, before it has seen features: it expects them to be standard normal."""
        num_features = self._num_features(input_shape)
        if self.kernel == LINEAR:
            raise ValueError(
                "gpflow.kernels has no isotropic stationary kernel 'Linear'. Pass a function that "
                "returns a kernel, or use ClosedFormHead(kernel='Linear')."
            )
        # Reading a parameter is one operation with an exponential, and five with a softplus.
        positive = "exp" if self.objective == "code" else gpflow.config.default_positive_bijector()
        with self.precision(positive_bijector=positive), tf.init_scope():
            draws = np.random.default_rng(self.seed).normal(size=[self.num_inducing, num_features])
            Z = draws.astype(self.gp_dtype)
            lengthscale = SPREADING * np.sqrt(2.0 * num_features)  # the typical distance is √(2D)
            if self.objective == "code":
                amplitude = 1.0 / self.num_classes  # of the targets
                kernel = make_kernel(self.kernel, amplitude, lengthscale)
                return SharedCodeGP(kernel, Z, ILRCode(self.num_classes), self.nodes)
            gp = ILRSVGP(
                make_kernel(self.kernel, STARTING_VARIANCE, lengthscale),
                Z,
                num_classes=self.num_classes,
                num_latent_gps=self.num_latent_gps,
                mixing=self.mixing,
                num_data=self.num_data,
                nodes=self.nodes,
            )
            gp.q_sqrt.assign(STARTING_SCALE * gp.q_sqrt)
            # A factor of the latents in predictions, which calibrate chooses; never trained.
            gp.scale = tf.Variable(tf.ones([], Z.dtype), trainable=False)
            return gp

    def adapt(self, features: Any) -> None:
        """Start the inducing inputs and the lengthscales from features of training rows.

        Inducing inputs become rows drawn by k-means++, lengthscales three times the median distance of
        rows: training spreads the features, and a kernel that starts narrow fits rows one by one. Call
        it before ``fit``, with what the network before this layer computes.

        :param features: [N, D], or a ``tf.data.Dataset`` of batches of them; of more than 10 000 rows
            some are enough.
        :raises ValueError: if there are fewer distinct rows than inducing inputs.
        """
        with self.precision():
            X = _sample(features)
        if not self.built:
            self.build((None, X.shape[-1]))
        with self.precision():
            self.gp.inducing_variable.Z.assign(kmeans_plusplus(X, self.num_inducing, self.seed))
            lengthscale = (
                SPREADING * starting_kernel(X, self.gp.likelihood.num_classes).lengthscales
            )
            for part in (self.gp.kernel, *self.gp.kernel.submodules):
                if isinstance(part, Stationary):
                    part.lengthscales.assign(tf.broadcast_to(lengthscale, part.lengthscales.shape))

    # Calling ----------------------------------------------------------------------------------------

    @tf.autograph.experimental.do_not_convert  # which takes several times as long, for the same graph
    def call(self, inputs: tf.Tensor, training: Any = None) -> tf.Tensor:
        """Probabilities [N, K], or in training what the objective asks for.

        :param inputs: features [N, D].
        :param training: whether this is a training step.
        """
        self._check_features(inputs)
        refuse_forgotten(self._note)
        output_dtype = self._output_dtype
        with self.precision():
            if not _is_training(training):
                likelihood = self.gp.likelihood
                latents = self.predict_latents(inputs)
                probabilities = expected_softmax(*latents, likelihood.link, likelihood.nodes)
                return for_prediction(tf.cast(probabilities, output_dtype), training)
            q = self.gp.q if isinstance(self.gp, SharedCodeGP) else self.gp.q_mu
            self._note = note = Note(q.unconstrained_variable)
            priors = [p for p in self.gp.trainable_parameters if p.prior is not None]
            log_prior = sum(p.log_prior_density() for p in priors)
            if isinstance(self.gp, SharedCodeGP):
                expected, constant, kl = self.gp.bound(inputs)
                output = for_elbo_loss(tf.cast(note.of_output(expected), output_dtype))
            else:
                X = as_inputs(inputs, self.gp.num_columns, "features")
                mean, variance, kl = latent_terms(self.gp, X)
                constant = 0.0
                output = self._training_output(note.of_output(mean), variance, output_dtype)
            penalty = note.of_penalty(constant + (kl - log_prior) / self.num_data)
            self.add_loss(tf.cast(penalty, self._keras.backend.floatx()))
            return output

    def _training_output(
        self, mean: tf.Tensor, variance: tf.Tensor, output_dtype: tf.DType
    ) -> tf.Tensor:
        """What the loss turns into the rows' share of the objective."""
        likelihood = self.gp.likelihood
        if self.objective == "elbo":
            expected = expected_log_softmax(mean, variance, likelihood.link, likelihood.bound_nodes)
            return for_elbo_loss(tf.cast(expected, output_dtype))
        tiny = np.finfo(self.gp_dtype).eps  # the slope of √ is ∞ at 0
        noise = tf.random.normal(tf.shape(mean), dtype=mean.dtype)
        f = mean + tf.sqrt(tf.maximum(variance, tiny)) * noise
        # Keras' own softmax leaves a note of the logits, which its cross-entropies use.
        logits = tf.cast(tf.matmul(f, likelihood.link, transpose_b=True), output_dtype)
        return self._keras.activations.softmax(logits)

    def predict_latents(self, inputs: Any) -> MeanAndVariance:
        """Mean and variance of the latents as predictions use them, with the calibrated scale.

        :param inputs: features [N, D].
        :raises ValueError: if the head was never built.
        """
        after_training.check_built(self)
        mean, variance = self.gp.predict_marginals(inputs)
        if self.objective == "code":  # where the sharpness is part of the link
            return mean, variance
        return self.gp.scale * mean, tf.square(self.gp.scale) * variance

    def compute_output_shape(self, input_shape: Any) -> tuple[int | None, int]:
        """[N, K]."""
        return (input_shape[0], self.num_classes)

    # After training ---------------------------------------------------------------------------------

    calibrate = after_training.calibrate
    collapse = after_training.collapse
    posterior_layer = after_training.posterior_layer

    def predict_entropy(self, features: Any) -> Entropies:
        """Total, aleatoric and epistemic entropy of the label in nats, each [N].

        :param features: [N, D], what the network before this layer computes.
        """
        names = ("entropy", "aleatoric", "epistemic")
        after_training.check_built(self)
        with self.precision():
            likelihood, dtype = self.gp.likelihood, tf.as_dtype(self.gp_dtype)
            found = predicted(*self.predict_latents(features), likelihood, names, dtype)
            return Entropies(*(found[name] for name in names))

    # Training flags ---------------------------------------------------------------------------------

    @property
    def frozen(self) -> tuple[str, ...]:
        """The parts that are not trained; after a change, compile the model again."""
        return self._frozen

    @frozen.setter
    def frozen(self, parts: Sequence[str]) -> None:
        self._frozen = _parts(parts)
        self._flags_changed()

    def _is_trained(self, path: str, variable: tf.Variable) -> bool:
        """Whether a variable of the GP is trained when the layer is."""
        prefixes = tuple(PARTS[part] for part in self._frozen)
        return bool(variable.trainable) and not path.startswith(prefixes)

    # Saving -----------------------------------------------------------------------------------------

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, as plain data."""
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "num_inducing": self.num_inducing,
            "num_data": self.num_data,
            "num_latent_gps": self.num_latent_gps,
            "mixing": self.mixing,
            "objective": self.objective,
            "frozen": list(self._frozen),
            "seed": self.seed,
        }


def _parts(given: Sequence[str]) -> tuple[str, ...]:
    several = isinstance(given, Sequence) and not isinstance(given, str)
    parts: tuple[Any, ...] = tuple(given) if several else (given,)
    unknown = [part for part in parts if part not in tuple(PARTS)]
    if unknown:
        raise ValueError(f"frozen may hold {tuple(PARTS)}, but it holds {unknown[0]!r}.")
    return parts


def _is_training(training: Any) -> bool:
    """Whether this is a training step; Keras 2 draws functional models with a symbolic flag."""
    value = tf.get_static_value(training) if tf.is_tensor(training) else training
    return bool(value)


def _sample(features: Any) -> np.ndarray:
    """At most ADAPT_ROWS rows of the features."""
    if isinstance(features, tf.data.Dataset):
        spec = features.element_spec
        if not isinstance(spec, tf.TensorSpec) or spec.shape.rank not in (2, None):
            raise ValueError(
                f"features must be a dataset of batches [B, D], but its elements are {spec}. Map it to "
                "the features alone, and batch them."
            )
        batches, rows = [], 0
        for batch in features:
            batches.append(np.asarray(batch))
            rows += len(batches[-1])
            if rows >= ADAPT_ROWS:
                break
        features = np.concatenate(batches) if batches else np.empty([0, 0])
    X = as_rows(features, name="features").numpy()
    return X[evenly_spaced(len(X), ADAPT_ROWS)]
