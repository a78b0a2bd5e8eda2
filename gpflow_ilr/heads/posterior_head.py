"""A posterior as a layer that is not trained: the end of a network for predictions.

:class:`~gpflow_ilr.heads.closed_form.ClosedFormLogic` and ``GPHead`` make such layers; Keras rebuilds
them when a model is loaded. Whatever they learned is among the layer's variables, so that it goes into
``.keras`` and ``.weights.h5`` files and into exported models as the weights of any layer do.
"""

from __future__ import annotations

from typing import Any, Protocol

import tensorflow as tf

from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.heads.fixed_posterior import FixedPosterior, Snapshot
from gpflow_ilr.heads.gp_layer import GPLayerLogic, KernelSpec, make_kernel
from gpflow_ilr.heads.outputs import check_outputs, predicted, structure
from gpflow_ilr.inputs.counts import check_count

__all__ = ["Head", "PosteriorLogic"]


class Head(Protocol):
    """What a layer takes over from the head whose posterior it has."""

    kernel: KernelSpec
    nodes: NodeRule | None
    gp_dtype: str
    jitter: float

    @property
    def num_classes(self) -> int:
        """K."""
        ...


class PosteriorLogic(GPLayerLogic):
    """Class probabilities, and on request their uncertainty, from features [N, D].

    :param num_classes: number of classes K.
    :param num_inducing: number of inducing inputs M.
    :param kernel: as of ``ClosedFormHead``.
    :param num_latent_gps: number of latents; K − 1 if None.
    :param num_roots: 1 if the latents share their covariance, else as many as latents.
    :param mixing: whether there is a mixing matrix.
    :param outputs: one of :data:`gpflow_ilr.heads.outputs.OUTPUTS`, or several, which the layer
        returns as a dictionary.
    :param nodes: node rule of the predictive probabilities.
    :param gp_dtype: ``"float64"`` or ``"float32"``; GPflow's default float if None.
    :param jitter: GPflow's default if None.
    :param layer: arguments of every Keras layer.
    """

    def __init__(
        self,
        num_classes: int,
        num_inducing: int,
        *,
        kernel: KernelSpec = "SquaredExponential",
        num_latent_gps: int | None = None,
        num_roots: int = 1,
        mixing: bool = False,
        outputs: Any = "probabilities",
        nodes: NodeRule | None = None,
        gp_dtype: str | None = None,
        jitter: float | None = None,
        **layer: Any,
    ) -> None:
        super().__init__(**{"autocast": False, "trainable": False, **layer})
        self.num_classes = num_classes
        self.num_inducing = check_count("num_inducing", num_inducing)
        self.num_latent_gps = num_classes - 1
        if num_latent_gps is not None:
            self.num_latent_gps = check_count("num_latent_gps", num_latent_gps)
        self.num_roots = check_count("num_roots", num_roots)
        if num_roots not in (1, self.num_latent_gps):
            raise ValueError(
                f"num_roots must be 1 or {self.num_latent_gps}, the number of latents, but is "
                f"{num_roots}. Leave it out for latents that share their covariance."
            )
        self.mixing = mixing
        self.outputs = check_outputs(outputs)
        self._set_gp_options(kernel, nodes, gp_dtype, jitter)

    @classmethod
    def of(cls, head: Head, posterior: Snapshot, outputs: Any, **layer: Any) -> Any:
        """The layer of a head's posterior, with the head's kernel, nodes and precision.

        :param head: whose posterior it is.
        :param posterior: what the layer predicts from.
        :param outputs: as of the layer.
        :param layer: arguments of every Keras layer.
        """
        num_inducing, num_latent_gps = posterior.mean.shape
        made = cls(
            head.num_classes,
            int(num_inducing),
            kernel=head.kernel,
            num_latent_gps=int(num_latent_gps),
            num_roots=int(posterior.root.shape[0]),
            mixing=posterior.mixing is not None,
            outputs=outputs,
            nodes=head.nodes,
            gp_dtype=head.gp_dtype,
            jitter=head.jitter,
            **layer,
        )
        made.build((None, int(posterior.Z.shape[-1])))
        with made.precision():
            made.gp.assign(posterior)
        return made

    def _build_gp(self, input_shape: Any) -> FixedPosterior:
        num_features = self._num_features(input_shape)
        shape = (self.num_inducing, num_features, self.num_latent_gps, self.num_roots)
        with self.precision(), tf.init_scope():
            kernel = make_kernel(self.kernel, 1.0, 1.0)
            return FixedPosterior(kernel, self.num_classes, shape, self.mixing, self.nodes)

    @tf.autograph.experimental.do_not_convert
    def call(self, inputs: tf.Tensor, training: Any = None) -> Any:
        """What ``outputs`` asks for.

        :param inputs: features [N, D].
        :param training: makes no difference.
        """
        self._check_features(inputs)
        with self.precision():
            mean, variance = self.gp.predict_marginals(inputs)
            return predicted(mean, variance, self.gp.likelihood, self.outputs, self._output_dtype)

    def compute_output_shape(self, input_shape: Any) -> Any:
        """[N, K] for the probabilities, [N, L] for the latents, [N] for the rest."""
        widths = {
            "probabilities": (self.num_classes,),
            "mean": (self.num_latent_gps,),
            "variance": (self.num_latent_gps,),
        }
        return structure(self.outputs, lambda name: (input_shape[0], *widths.get(name, ())))

    def get_config(self) -> dict[str, Any]:
        """The arguments of the constructor, as plain data."""
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "num_inducing": self.num_inducing,
            "num_latent_gps": self.num_latent_gps,
            "num_roots": self.num_roots,
            "mixing": self.mixing,
            "outputs": self.outputs if isinstance(self.outputs, str) else list(self.outputs),
        }
