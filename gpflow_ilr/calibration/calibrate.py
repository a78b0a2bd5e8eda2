"""The smoothing λ of a fitted ILR classifier: set by hand, or chosen by leave-one-out.

λ scales the latent at prediction and nothing else, so it can change after training; setting it
equals retraining at that value. :class:`TunableSmoothing` is what ILR models share about it.
"""

import abc
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
from gpflow.base import RegressionData

from gpflow_ilr.calibration.criterion import (
    Calibration,
    Marginals,
    MeanNLL,
    choose_noise,
    choose_sharpness,
)
from gpflow_ilr.codes import ILRCode
from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.rows import check_data
from gpflow_ilr.models.conjugate import ConjugateClassifier

__all__ = ["LOOAtNoise", "TunableSmoothing"]

_SOFT_ROUNDS = 20

LOOAtNoise = Callable[[float], Marginals]
"""Leave-one-out predictions in the code's units, as a function of the noise variance."""


class TunableSmoothing(ConjugateClassifier):
    """A conjugate classifier whose code is the ILR code."""

    code: ILRCode

    @property
    def smoothing(self) -> float:
        """λ. For hard labels, setting it after training equals retraining at that value."""
        return self.code.smoothing

    @smoothing.setter
    def smoothing(self, value: float) -> None:
        self.code.smoothing = value

    def calibrate(
        self,
        data: RegressionData | None = None,
        *,
        noise: bool = False,
        max_rows: int | None = 2048,
    ) -> Calibration:
        """Set the smoothing λ to the value with the smallest NLL of held-out labels.

        Without ``data`` the held-out predictions are closed-form leave-one-out predictions of the
        training rows, so no validation set is needed. Call it after training: one fit serves all λ.

        :param data: validation rows (X, y) to use instead of leave-one-out.
        :param noise: choose the noise ratio σ²/L² by the same criterion, below Proposition 1's
            value or above it. Needs leave-one-out and a noise that is ``"fixed"`` or ``"shared"``.
            With soft labels noise and λ take turns, and what they reach depends on the start.
        :param max_rows: at most this many evenly spaced training rows enter the criterion (all of
            them stay in the posterior); None for all.
        :raises ValueError: if ``noise`` is asked for where it cannot be chosen.
        """
        if noise:
            self._check_noise_can_be_chosen(data)
        if data is not None:
            X, _, labels = check_data(data, self.code.num_classes, self.data[0].shape[1])
            data = (X, labels)
        rows = self._spread_rows(max_rows)
        soft = self._labels.shape.rank == 2
        nll = _FollowingNLL(self, rows, data) if soft else self._held_out_nll(rows, data)
        before = after = nll(self.code.scale)
        # With soft labels the noise is chosen for the present λ, so the two take turns.
        for _ in range(_SOFT_ROUNDS if soft and noise else 1):
            present = [(variable, variable.numpy()) for variable in self.code.variables]
            if noise:
                reached = self._choose_noise(rows)
            if soft or not noise:
                sharpness, reached = choose_sharpness(nll)
                self.code.sharpness.assign(sharpness)
            if not reached < after:
                for variable, value in present:
                    variable.assign(value)
                break
            after = reached
        return Calibration(
            self.smoothing, before, after, float(tf.reduce_mean(self.code.noise_variance))
        )

    def _choose_noise(self, rows: tf.Tensor) -> float:
        """Set the noise and L; the NLL that they promise for predictions as now coded."""
        old = float(self.code.noise_variance[0, 0])
        new, sharpness, reached = choose_noise(self._loo_at_noise(rows), self.likelihood.link, old)
        self.code.rescale_noise(new / old)
        self.code.sharpness.assign(sharpness)
        return reached

    def _check_noise_can_be_chosen(self, data: RegressionData | None) -> None:
        if data is not None:
            raise ValueError(
                "calibrate(noise=True) uses leave-one-out and takes no data. Call calibrate("
                "noise=True) first, then calibrate(data) for the smoothing if you want it so."
            )
        if self.code.depends_on_class or self.code.depends_on_output:
            raise ValueError(
                f"calibrate(noise=True) needs one noise for all outputs, but noise="
                f"{self.code.noise!r}. Use noise='fixed' or 'shared'."
            )
        if len(self._output_blocks) > 1:
            raise ValueError(
                "calibrate(noise=True) needs one kernel and one set of inducing inputs for all "
                "outputs. Give the constructor a noise_variance instead."
            )

    def _spread_rows(self, max_rows: int | None) -> tf.Tensor:
        limit = self.num_data if max_rows is None else check_count("max_rows", max_rows)
        count = min(limit, self.num_data)
        return tf.constant(np.linspace(0, self.num_data - 1, count).round().astype(np.int32))

    def _held_out_nll(self, rows: tf.Tensor, data: RegressionData | None) -> MeanNLL:
        """NLL of validation data, or by leave-one-out of training rows, as a function of L."""
        if data is None:
            held_out = Marginals(*self._loo(rows), tf.gather(self._labels, rows))
            return MeanNLL(held_out, self.likelihood.link)
        X, labels = data
        mean, var = self._predict_marginals(X)
        scale = self.code.scale
        return MeanNLL(Marginals(mean / scale, var / scale**2, labels), self.likelihood.link)

    @abc.abstractmethod
    def _loo_at_noise(self, rows: tf.Tensor) -> LOOAtNoise:
        """Leave-one-out predictions of ``rows`` for any noise, from one eigendecomposition."""


class _FollowingNLL:
    """Mean NLL as a function of L where predictions follow L: soft targets are coded with it.

    What :class:`gpflow_ilr.calibration.criterion.MeanNLL` is for hard labels, at one prediction for
    each L. The model is left at the L that was asked for last.

    :param model: a model with soft labels.
    :param rows: training rows to leave out.
    :param data: validation rows to use instead, or None.
    """

    def __init__(
        self, model: TunableSmoothing, rows: tf.Tensor, data: RegressionData | None
    ) -> None:
        self._model, self._rows, self._data = model, rows, data

    def __call__(self, sharpness: float | tf.Tensor) -> float:
        self._model.code.sharpness.assign(sharpness)
        return self._model._held_out_nll(self._rows, self._data)(sharpness)

    def at(self, sharpness: Sequence[float]) -> np.ndarray:
        return np.array([self(L) for L in sharpness])

    @property
    def num_classes(self) -> int:
        return self._model.code.num_classes

    def of_few_rows(self) -> "_FollowingNLL":
        return self
