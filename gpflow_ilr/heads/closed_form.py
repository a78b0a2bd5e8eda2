"""A GP on the features of a network that is trained already, put there in one pass over the data.

A head is an :class:`~gpflow_ilr.ILRSGPR` of the features. Kernel and inducing inputs come from a
sample; then the rows enter through sums that do not grow with their number, and everything else is
algebra of M × M matrices, whatever the number of classes. The network is left as it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf
from gpflow.kernels import Kernel
from gpflow.utilities import deepcopy, set_trainable

from gpflow_ilr.calibration import Calibration
from gpflow_ilr.calibration.criterion import Marginals, MeanNLL
from gpflow_ilr.calibration.search import choose_sharpness
from gpflow_ilr.codes import ILRCode
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.heads.collapsing import absorb_features, calibrate_on
from gpflow_ilr.heads.features import FeatureReader, model_inputs
from gpflow_ilr.heads.fixed_posterior import Snapshot, snapshot
from gpflow_ilr.heads.gp_layer import (
    LINEAR,
    KernelSpec,
    check_kernel,
    check_precision,
    gp_precision,
    make_kernel,
)
from gpflow_ilr.inputs.counts import check_count, check_seed, evenly_spaced
from gpflow_ilr.inputs.rows import as_rows, check_data
from gpflow_ilr.models import ILRSGPR, ILRSVGP
from gpflow_ilr.models.probabilities import Entropies
from gpflow_ilr.models.warm_start import variational_start
from gpflow_ilr.starting import kmeans_plusplus, starting_kernel
from gpflow_ilr.training.fit import fit as train
from gpflow_ilr.training.polish import Polish, polish

__all__ = ["ClosedFormLogic", "HeadFit"]

_OPTIMISTIC = (
    "λ and noise come from leave-one-out of rows that the network was trained on, which promises too "
    "much: pass validation=(X_val, y_val), rows that it has not seen."
)


@dataclass(frozen=True)
class HeadFit:
    """What ``ClosedFormHead.fit`` did; as a string, with what to beware of.

    :param num_rows: rows that were taken in.
    :param num_inducing: inducing inputs.
    :param seconds: what it took.
    :param calibration: how λ and noise were chosen.
    :param optimistic: whether the rows that chose them had trained the network.
    """

    num_rows: int
    num_inducing: int
    seconds: float
    calibration: Calibration
    optimistic: bool

    def __str__(self) -> str:
        rows = f"{self.num_rows} rows, {self.num_inducing} inducing inputs, {self.seconds:.1f} s."
        cautions = [_OPTIMISTIC] if self.optimistic else []
        return "\n".join([rows, str(self.calibration), *cautions])


class ClosedFormLogic:
    """The last layer of a trained network in closed form: calibrated, and aware of unknown inputs.

    ::

        head = ClosedFormHead(num_classes=10, network=features)
        print(head.fit((X, y), validation=(X_val, y_val)))
        network_with_head = head.attach()

    Datasets are pairs (X, y) of arrays, or a ``tf.data.Dataset`` of batches of such pairs, with what
    the network takes for X. Of a dataset kernel and inducing inputs see the first rows: shuffle it.

    :param num_classes: number of classes K.
    :param num_inducing: number of inducing inputs M; of kernel ``"Linear"`` it is the number of
        features plus one, at which nothing is approximated.
    :param network: a trained Keras model that ends with features [n, D] (``feature_network`` takes the
        last layer off a classifier); any other function from a batch of inputs to features; or None,
        where X are features already.
    :param kernel: the name of a stationary GPflow kernel; ``"Linear"``, a Bayesian last layer; or a
        function without arguments that returns a kernel, registered with Keras if the model is saved.
    :param sample_size: rows that choose the inducing inputs and train the kernel.
    :param max_iterations: L-BFGS steps of that training; 0 to leave the kernel as it starts.
    :param nodes: node rule of the predictive probabilities.
    :param gp_dtype: ``"float64"`` or ``"float32"``; GPflow's default float if None.
    :param jitter: GPflow's default if None.
    :param seed: of the inducing inputs.
    """

    model: ILRSGPR
    """The collapsed model of the features, after :meth:`fit`."""
    polished: ILRSVGP | None = None
    """The model that :meth:`polish` found better, or None."""
    _keras: ClassVar[Any]
    _layer: ClassVar[Any]

    def __init__(
        self,
        num_classes: int,
        num_inducing: int = 200,
        *,
        network: Any = None,
        kernel: KernelSpec = "SquaredExponential",
        sample_size: int = 4096,
        max_iterations: int = 50,
        nodes: NodeRule | None = None,
        gp_dtype: str | None = None,
        jitter: float | None = None,
        seed: int = 0,
    ) -> None:
        self._code = ILRCode(num_classes)
        self.num_inducing = check_count("num_inducing", num_inducing)
        self.kernel = check_kernel(kernel)
        self.sample_size = check_count("sample_size", sample_size)
        self.max_iterations = check_count("max_iterations", max_iterations, 0)
        self.nodes, self.seed = nodes, check_seed(seed)
        self.gp_dtype, self.jitter = check_precision(gp_dtype, jitter)
        self._reader = FeatureReader(network, self._keras)

    @property
    def num_classes(self) -> int:
        """K."""
        return int(
            self.model.code.num_classes if hasattr(self, "model") else self._code.num_classes
        )

    @contextmanager
    def precision(self) -> Iterator[None]:
        """GPflow's configuration of this head, for calls of ``head.model`` outside of it."""
        with gp_precision(self.gp_dtype, self.jitter):
            yield

    # Fitting

    def fit(
        self, dataset: Any, *, validation: Any = None, network_saw_rows: bool = True
    ) -> HeadFit:
        """Kernel and inducing inputs from a sample, all rows in one pass, then λ and noise.

        :param dataset: rows (X, y).
        :param validation: rows (X, y) that neither the network nor the head has seen, to choose λ and
            noise. Without them leave-one-out does, which is honest only for a network that was trained
            on other data.
        :param network_saw_rows: whether the network, or whatever computed the features, was trained on
            the rows of ``dataset``.
        """
        start = time.perf_counter()
        with self.precision():
            sample, is_all = self._sample(dataset)
            rows = check_data(sample, self._code.num_classes)
            kernel, Z = self._start(rows.X.numpy())
            self.model = ILRSGPR(
                (rows.X, rows.labels),
                kernel,
                Z,
                num_classes=self._code.num_classes,
                nodes=self.nodes,
            )
            if self.kernel == LINEAR:  # any points that span the features do
                set_trainable(self.model.inducing_variable, False)
            if self.max_iterations:
                train(self.model, max_iterations=self.max_iterations)
            num_rows = len(rows)
            if not is_all:
                num_rows = absorb_features(self.model, self._reader, dataset)
            self.num_rows, self.polished = num_rows, None
        calibration = self.calibrate(validation)
        return HeadFit(
            num_rows,
            len(Z),
            time.perf_counter() - start,
            calibration,
            network_saw_rows and validation is None,
        )

    def calibrate(self, validation: Any = None) -> Calibration:
        """Choose λ and noise again, for the closed form.

        :param validation: rows (X, y) that neither the network nor the head has seen; leave-one-out of
            training rows if None.
        """
        with self.precision():
            if validation is None:
                return self._fitted.calibrate(noise=True)
            return calibrate_on(self._fitted, self._reader.rows(validation))

    def update(self, X: Any, y: Any, *, num_classes: int | None = None) -> None:
        """Add rows, without touching the network; the result is that of all rows at once.

        Kernel, inducing inputs, λ and noise stay; what :meth:`polish` found is given up. Attach the
        head again afterwards.

        :param X: what the network takes, or features.
        :param y: their labels.
        :param num_classes: the number of classes, if there are new ones.
        """
        with self.precision():
            self._fitted.update(*self._reader.rows((X, y)), num_classes=num_classes)
        self.num_rows += len(y)
        self.polished = None

    def polish(self, dataset: Any, *, validation: Any = None, **options: Any) -> Polish:
        """Go on with the exact likelihood, for classes that overlap; kept if held-out NLL says so.

        Natural gradients of the ELBO on the features, which are kept in memory, from the closed form on
        (:func:`gpflow_ilr.training.polish`). The scale of the latents is chosen last.

        :param dataset: training rows (X, y).
        :param validation: rows (X, y) that neither the network nor the head has seen. Without them a
            tenth of ``dataset`` is held out, which the network has seen.
        :param options: other arguments of :func:`gpflow_ilr.training.polish`.
        """
        with self.precision():
            model, K = self._fitted, self.num_classes
            scale = float(model.code.scale)
            parts = {**variational_start(model, 1.0), "kernel": deepcopy(model.kernel)}
            # In the code's units, with L as a mixing matrix: the kernel keeps its structure.
            svgp = ILRSVGP(
                **parts,
                num_classes=K,
                mixing=scale * np.eye(K - 1),
                num_data=self.num_rows,
                nodes=self.nodes,
            )
            set_trainable(svgp.likelihood.W, False)
            if self.kernel == LINEAR:
                set_trainable(svgp.inducing_variable, False)
            rows = self._reader.rows(dataset)
            held_out = None if validation is None else self._reader.rows(validation)
            result = polish(svgp, rows, validation=held_out, seed=self.seed, **options)
            if result.best_step > 0:
                if held_out is not None:
                    unseen = check_data(held_out, K)
                    latents = Marginals.of(unseen, *svgp.predict_f(unseen.X))
                    factor, nll = choose_sharpness(MeanNLL(latents, svgp.likelihood.link))
                    if nll < result.nll_after:
                        svgp.likelihood.W.assign(factor * svgp.likelihood.W)
                self.polished = svgp
            return result

    # Predicting

    def predict(self, X: Any) -> np.ndarray:
        """Class probabilities, [N, K].

        :param X: what the network takes, or features.
        """
        with self.precision():
            return np.asarray(self._predictor().predict_y(self._features(X))[0])

    def predict_entropy(self, X: Any) -> Entropies:
        """Total, aleatoric and epistemic entropy of the label in nats, each [N].

        :param X: what the network takes, or features.
        """
        with self.precision():
            return self._predictor().predict_entropy(self._features(X))

    def layer(self, outputs: Any = "probabilities", **layer: Any) -> Any:
        """The head as a Keras layer of features, which is not trained.

        :param outputs: one of :data:`gpflow_ilr.heads.outputs.OUTPUTS`, or several, which the layer
            returns as a dictionary.
        :param layer: arguments of every Keras layer.
        """
        with self.precision():
            return self._layer.of(self, self._snapshot(), outputs, **layer)

    def attach(self, network: Any = None, outputs: Any = "probabilities") -> Any:
        """A Keras model that ends with this head: ``predict``, ``save``, ``export``.

        It has the head as it is now: after :meth:`update`, attach again.

        :param network: a Keras model that ends with the features; the head's own if None.
        :param outputs: as of :meth:`layer`.
        :raises TypeError: if the network is no Keras model.
        :raises ValueError: if it has another number of features.
        """
        keras, D = self._keras, self._fitted.num_columns
        network = self._reader.network if network is None else network
        if network is None:
            inputs = keras.layers.Input((D,), dtype=self.gp_dtype)
            return keras.Model(inputs, self.layer(outputs, dtype=self.gp_dtype)(inputs))
        if not isinstance(network, keras.layers.Layer):
            raise TypeError(
                f"network must be a model of {keras.__name__}, but is {network!r}. Use "
                "head.predict, or head.layer() as a layer of features."
            )
        if not getattr(network, "outputs", None):  # a subclassed model, whose shapes are its own
            return keras.Sequential([network, self.layer(outputs)])
        (features,) = network.outputs
        if features.shape[-1] != D:
            raise ValueError(
                f"network has {features.shape[-1]} features, but the head was fitted on {D}. "
                "Attach the network that it was fitted with."
            )
        dtype = tf.as_dtype(features.dtype)
        name = dtype.name if dtype.size >= 4 else "float32"
        return keras.Model(model_inputs(network), self.layer(outputs, dtype=name)(features))

    # Parts

    @property
    def _fitted(self) -> ILRSGPR:
        if not hasattr(self, "model"):
            raise ValueError("This head has seen no rows yet: call head.fit((X, y)) first.")
        return self.model

    def _features(self, X: Any) -> tf.Tensor:
        return as_rows(self._reader.all_features(X), self._fitted.num_columns, "features")

    def _predictor(self) -> Any:
        return self._fitted.posterior() if self.polished is None else self.polished

    def _snapshot(self) -> Snapshot:
        if self.polished is None:
            return snapshot(self._fitted)
        taken = snapshot(self.polished)
        assert taken.mixing is not None
        return taken._replace(scale=tf.convert_to_tensor(taken.mixing)[0, 0], mixing=None)

    def _sample(self, dataset: Any) -> tuple[tuple[np.ndarray, np.ndarray], bool]:
        """At most ``sample_size`` rows, and whether they are all."""
        if isinstance(dataset, (tuple, list)) and len(dataset) == 2:
            X, y = dataset[0], np.asarray(dataset[1])
            some = evenly_spaced(len(y), self.sample_size)
            is_all = len(some) == len(y)
            return self._reader.rows((X, y) if is_all else (np.asarray(X)[some], y[some])), is_all
        batches = self._reader.rebatched(dataset, self.sample_size)
        first = next(batches, None)
        if first is None:
            raise ValueError("dataset must have at least one row, but has none.")
        return first, len(first[0]) < self.sample_size

    def _start(self, F: np.ndarray) -> tuple[Kernel, np.ndarray]:
        """A kernel and inducing inputs that fit the features."""
        usual = starting_kernel(F, self._code)
        variance = float(usual.variance.numpy())
        if self.kernel == LINEAR:
            # hᵀh' and the bias with equal shares; points at the features' own scale, which span them.
            size = float(np.sqrt(np.mean(np.sum(np.square(F), axis=1)))) or 1.0
            kernel = make_kernel(LINEAR, variance, 1.0)
            kernel.kernels[0].variance.assign(variance / size**2)
            return kernel, np.vstack([size * np.eye(F.shape[1]), np.zeros([1, F.shape[1]])])
        kernel = make_kernel(self.kernel, variance, float(usual.lengthscales.numpy()))
        return kernel, kmeans_plusplus(F, min(self.num_inducing, len(F)), self.seed)
