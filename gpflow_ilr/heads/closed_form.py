"""A GP on the features of a network that is trained already, put there in one pass over the data.

A head is an :class:`~gpflow_ilr.ILRSGPR` of the features. Kernel and inducing inputs come from a
sample; then the rows enter through sums that do not grow with their number, and everything else is
algebra of M × M matrices, whatever the number of classes. The network is left as it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import numpy as np
import tensorflow as tf

from gpflow_ilr.calibration import Calibration
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.heads.collapsing import absorb_features, calibrate_on
from gpflow_ilr.heads.feature_model import feature_model
from gpflow_ilr.heads.features import FeatureReader
from gpflow_ilr.heads.fixed_posterior import snapshot
from gpflow_ilr.heads.gp_layer import KernelSpec, check_kernel, check_precision, gp_precision
from gpflow_ilr.heads.networks import check_one_output, model_inputs
from gpflow_ilr.heads.polishing import (
    ROW_WEIGHTS,
    HeadPolish,
    polish_features,
    polished_snapshot,
)
from gpflow_ilr.inputs.counts import check_count, check_seed
from gpflow_ilr.inputs.labels import as_labels, check_num_classes
from gpflow_ilr.inputs.rows import as_rows, check_data
from gpflow_ilr.models import ILRSGPR, ILRSVGP
from gpflow_ilr.models.probabilities import Entropies
from gpflow_ilr.training.fit import fit as train

__all__ = ["ClosedFormLogic", "HeadCalibration", "HeadFit"]

_OPTIMISTIC = (
    "λ and noise come from leave-one-out of rows that the network was trained on, which promises too "
    "much: pass validation=(X_val, y_val), rows that it has not seen."
)


@dataclass(frozen=True)
class HeadCalibration(Calibration):
    """What ``ClosedFormHead.calibrate`` did; as a string, with what to beware of.

    :param network_saw_rows: whether the rows that chose λ and noise had trained the network.
    """

    network_saw_rows: bool = False

    @property
    def optimistic(self) -> bool:
        """Whether the rows had trained the network, or are too few for the hyperparameters."""
        return self.network_saw_rows or super().optimistic

    @property
    def cautions(self) -> tuple[str, ...]:
        """What to beware of, a sentence each."""
        if not self.network_saw_rows:
            return super().cautions
        plain = Calibration(**{f.name: getattr(self, f.name) for f in fields(Calibration)})
        return (*plain.cautions, _OPTIMISTIC)


@dataclass(frozen=True)
class HeadFit:
    """What ``ClosedFormHead.fit`` did; as a string, with what to beware of.

    :param num_rows: rows that were taken in, those of weight zero not counted.
    :param num_inducing: inducing inputs.
    :param seconds: what it took.
    :param calibration: how λ and noise were chosen, and whether by rows that had trained the network.
    """

    num_rows: int
    num_inducing: int
    seconds: float
    calibration: HeadCalibration

    @property
    def optimistic(self) -> bool:
        """Whether the rows that chose λ and noise had trained the network."""
        return self.calibration.network_saw_rows

    def __str__(self) -> str:
        rows = f"{self.num_rows} rows, {self.num_inducing} inducing inputs, {self.seconds:.1f} s."
        return f"{rows}\n{self.calibration}"


class ClosedFormLogic:
    """The last layer of a trained network in closed form: calibrated, and aware of unknown inputs.

    ::

        head = ClosedFormHead(num_classes=10, network=features)
        print(head.fit((X, y), validation=(X_val, y_val)))
        network_with_head = head.attach()

    Datasets are arrays (X, y), or (X, y, weights), or a ``tf.data.Dataset`` of batches of them, with
    what the network takes for X: for a network with several inputs, a dictionary or tuple of arrays. A
    row of weight w counts as w rows. Of a ``tf.data.Dataset`` kernel
    and inducing inputs see the first rows: shuffle it.

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
    network_saw_rows: bool = True
    """Whether the network was trained on the rows of :meth:`fit`, as that was told."""
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
        self._num_classes = check_num_classes(num_classes)
        self.num_inducing = check_count("num_inducing", num_inducing)
        self.kernel = check_kernel(kernel)
        self.sample_size = check_count("sample_size", sample_size)
        self.max_iterations = check_count("max_iterations", max_iterations, 0)
        self.nodes, self.seed = nodes, check_seed(seed)
        self.gp_dtype, self.jitter = check_precision(gp_dtype, jitter)
        self._reader = FeatureReader(network, self._keras)

    @property
    def num_classes(self) -> int:
        """K, with the classes that :meth:`update` added."""
        return int(self.model.code.num_classes) if hasattr(self, "model") else self._num_classes

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

        A further ``fit`` begins anew, with the classes that the head has by then: those that
        :meth:`update` added remain, even if they have no rows. If it fails, the head is as it was.

        :param dataset: rows (X, y), or (X, y, weights). Where inducing inputs and the lengthscale
            start, each row that counts does so once.
        :param validation: rows that neither the network nor the head has seen, to choose λ and noise.
            Without them leave-one-out does, which is honest only for a network that was trained on
            other data.
        :param network_saw_rows: whether the network, or whatever computed the features, was trained on
            the rows of ``dataset``.
        """
        start = time.perf_counter()
        with self.precision():
            sample, is_all = self._reader.sample(dataset, self.sample_size)
            if not isinstance(dataset, tf.data.Dataset):
                as_labels(dataset[1], self.num_classes)  # whose errors name rows of the dataset
            rows = check_data(sample, self.num_classes)
            model = feature_model(
                rows, self.num_classes, self.kernel, self.num_inducing, self.nodes, self.seed
            )
            if self.max_iterations:
                train(model, max_iterations=self.max_iterations)
            num_rows = len(rows)
            if not is_all:
                num_rows = absorb_features(model, self._reader, dataset)
            calibration = self._calibrated(model, validation, network_saw_rows)
        self.model, self.num_rows, self.polished = model, num_rows, None
        self.network_saw_rows = network_saw_rows
        return HeadFit(
            num_rows,
            int(model.inducing_variable.num_inducing),
            time.perf_counter() - start,
            calibration,
        )

    def calibrate(self, validation: Any = None) -> HeadCalibration:
        """Choose λ and noise of the closed form again; what :meth:`polish` found stays as it is.

        :param validation: rows (X, y), or (X, y, weights), that neither the network nor the head has
            seen; leave-one-out of training rows if None, which promises too much, and says so, where
            the network was trained on them.
        """
        with self.precision():
            return self._calibrated(self._fitted, validation, self.network_saw_rows)

    def update(
        self, X: Any, y: Any, *, sample_weight: Any = None, num_classes: int | None = None
    ) -> None:
        """Add rows, without touching the network; the result is that of all rows at once.

        Kernel, inducing inputs, λ and noise stay; what :meth:`polish` found is given up. Attach the
        head again afterwards.

        :param X: what the network takes, or features.
        :param y: their labels.
        :param sample_weight: how often each row counts, [n]; None for once.
        :param num_classes: the number of classes, if there are new ones.
        """
        model = self._fitted
        with self.precision():
            F, labels, *weights = self._reader.rows((X, y, sample_weight))
            model.update(
                F, labels, sample_weight=weights[0] if weights else None, num_classes=num_classes
            )
        self.num_rows += int(np.count_nonzero(weights[0])) if weights else len(F)
        self.polished = None

    def polish(
        self,
        dataset: Any,
        *,
        validation: Any = None,
        row_weights: float | Sequence[float] = ROW_WEIGHTS,
        **options: Any,
    ) -> HeadPolish:
        """Go on with the exact likelihood, for classes that overlap; kept if held-out NLL says so.

        Natural gradients of the ELBO on the features, which are kept in memory with some K × M² numbers
        of q(u), from the closed form on (:func:`gpflow_ilr.training.polish`). With ``validation`` the
        scale of the latents is chosen last. It is kept if the held-out NLL falls by more than the
        standard error of that.

        :param dataset: training rows (X, y), or (X, y, weights).
        :param validation: rows that neither the network nor the head has seen. Without them a tenth of
            ``dataset`` is held out, which the network has seen.
        :param row_weights: how many rows each row counts for, at most 1: one that has trained the
            network says less than it seems to. Of several numbers held-out rows choose one, and each
            costs as much as the other; ``1.0`` for features that have not seen the rows.
        :param options: other arguments of :func:`gpflow_ilr.training.polish`.
        """
        model = self._fitted
        with self.precision():
            rows = check_data(self._reader.rows(dataset), self.num_classes)
            held_out = None
            if validation is not None:
                held_out = check_data(self._reader.rows(validation), self.num_classes)
            polished, result = polish_features(
                model,
                rows,
                held_out,
                self.num_rows,
                self.nodes,
                row_weights,
                seed=self.seed,
                **options,
            )
        if polished is not None:
            self.polished = polished
        return replace(result, network_saw_rows=validation is None and self.network_saw_rows)

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
            if self.polished is None:
                taken = snapshot(self._fitted)
            else:
                taken = polished_snapshot(self.polished)
            return self._layer.of(self, taken, outputs, **layer)

    def attach(self, network: Any = None, outputs: Any = "probabilities") -> Any:
        """A Keras model that ends with this head: ``predict``, ``save``, ``export``.

        It has the head as it is now: after :meth:`update`, attach again.

        :param network: a Keras model that ends with the features; the head's own if None.
        :param outputs: as of :meth:`layer`.
        :raises TypeError: if the network is no Keras model.
        :raises ValueError: if it has another number of features, or several outputs.
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
        check_one_output(network)
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

    def _calibrated(self, model: ILRSGPR, validation: Any, saw_rows: bool) -> HeadCalibration:
        """λ and noise of a model, chosen by other rows, or by its own, each left out in turn."""
        if validation is None:
            chosen = model.calibrate(noise=True)
        else:
            chosen = calibrate_on(model, self._reader.rows(validation))
        return HeadCalibration(**vars(chosen), network_saw_rows=validation is None and saw_rows)
