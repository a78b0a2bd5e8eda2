"""What follows the training of a ``GPHead``: its optimum over all rows, its scale, a layer that stays.

Each function is a method of the head by one line. Datasets are read as
:class:`~gpflow_ilr.heads.features.FeatureReader` does: arrays (X, y), or (X, y, weights), or a
``tf.data.Dataset`` of batches of them, with what the network before the head takes, or with features if
there is none.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpflow_ilr.calibration.criterion import Marginals, MeanNLL
from gpflow_ilr.calibration.search import choose_sharpness, sharpness_at_limit
from gpflow_ilr.heads.collapsing import absorb_features, calibrate_on
from gpflow_ilr.heads.features import FeatureReader
from gpflow_ilr.heads.fixed_posterior import snapshot
from gpflow_ilr.inputs.rows import check_data
from gpflow_ilr.models import ILRSGPR

if TYPE_CHECKING:
    from gpflow_ilr.heads.gp_head import HeadLogic

__all__ = ["ScaleChoice", "calibrate", "check_built", "collapse", "posterior_layer"]

_SOME_ROWS = 256  # which a collapsed model has until it takes in all


@dataclass(frozen=True)
class ScaleChoice:
    """What ``GPHead.calibrate`` did.

    :param scale: the factor of the latents, as now set; with ``objective="code"`` the sharpness L.
    :param nll_before: NLL of the rows at the old scale, in nats per row.
    :param nll_after: NLL of the rows at the new one.
    :param num_rows: number of rows whose weight is not zero.
    :param scale_at_limit: the scale is at the end of its range: the NLL would fall further.
    """

    scale: float
    nll_before: float
    nll_after: float
    num_rows: int
    scale_at_limit: bool = False

    def __str__(self) -> str:
        said = (
            f"Scale {self.scale:.4g}: NLL {self.nll_before:.4f} → {self.nll_after:.4f}, of "
            f"{self.num_rows} rows."
        )
        if self.scale_at_limit:
            said += (
                f"\nThe scale {self.scale:.4g} is at the end of its range: the labels of these rows "
                "are separable, or pure noise, and do not determine it. Calibrate with more of them."
            )
        return said


def calibrate(self: HeadLogic, dataset: Any, network: Any = None) -> ScaleChoice:
    """Choose the scale of the latents by rows that were not trained on.

    As temperature scaling does, but through the predictive integral: mean and standard deviation of
    the latents are multiplied, and E[π] follows. Training, and the ELBO, are not affected.

    :param dataset: validation rows (X, y), or (X, y, weights).
    :param network: what computes the features; None if X are features.
    :raises ValueError: if the head was never built.
    """
    check_built(self)
    with self.precision():
        rows = FeatureReader(network, self._keras).rows(dataset)
        checked = check_data(rows, self.num_classes)
        if self.objective == "code":
            code = self.gp.likelihood.code
            link, scale = code.link, code.sharpness
        else:
            link, scale = self.gp.likelihood.link, self.gp.scale
        nll = MeanNLL(Marginals.of(checked, *self.gp.predict_marginals(checked.X)), link)
        before = after = nll(float(scale.numpy()))
        chosen, smallest = choose_sharpness(nll)
        if smallest < before:
            scale.assign(chosen)
            after = smallest
        now = float(scale.numpy())
        at_limit = smallest <= after and sharpness_at_limit(chosen, self.num_classes)
        return ScaleChoice(now, before, after, len(checked), at_limit)


def collapse(
    self: HeadLogic, dataset: Any, network: Any = None, *, validation: Any = None
) -> ILRSGPR:
    """Replace q by its optimum over all rows, in one pass; for ``objective="code"``.

    Training by minibatches leaves q near its optimum, which is known in closed form: that of an
    :class:`~gpflow_ilr.ILRSGPR` with the head's kernel and inducing inputs on the features.

    :param dataset: training rows (X, y), or (X, y, weights): a row of weight w counts as w rows.
    :param network: what computes the features; None if X are features.
    :param validation: rows that were not trained on, to choose noise and λ; both stay if None.
    :returns: the collapsed model.
    :raises ValueError: for another objective, whose optimum has no closed form, and if the head was
        never built.
    """
    if self.objective != "code":
        raise ValueError(
            f"collapse needs GPHead(objective='code'), but objective is {self.objective!r}: its "
            "optimum has no closed form. Put a ClosedFormHead on the trained features instead."
        )
    check_built(self)
    reader = FeatureReader(network, self._keras)
    with self.precision():
        some, _ = reader.sample(dataset, _SOME_ROWS)
        code = self.gp.likelihood.code
        model = ILRSGPR(
            some,
            self.gp.kernel,
            self.gp.inducing_variable,
            num_classes=self.num_classes,
            smoothing=code.smoothing,
            noise_variance=float(code.noise_variance[0, 0]),
            nodes=self.nodes,
        )
        absorb_features(model, reader, dataset)
        if validation is not None:
            calibrate_on(model, reader.rows(validation))
        self.gp.collapse(model)
        return model


def posterior_layer(self: HeadLogic, outputs: Any = "probabilities", **layer: Any) -> Any:
    """The head as it is now, as a layer that is not trained, and says more on request.

    It factorises nothing when it predicts, so it is also the faster one to serve.

    :param outputs: one of :data:`gpflow_ilr.heads.outputs.OUTPUTS`, or several, which the layer returns
        as a dictionary.
    :param layer: arguments of every Keras layer.
    :raises ValueError: if the head was never built.
    """
    check_built(self)
    with self.precision():
        is_code = self.objective == "code"
        taken = self.gp.snapshot() if is_code else snapshot(self.gp, self.gp.scale)
        return self._posterior_layer.of(
            self, taken, outputs, **{"dtype": self.compute_dtype, **layer}
        )


def check_built(head: HeadLogic) -> None:
    """Refuse a head that has no GP yet.

    :param head: a GPHead.
    :raises ValueError: with what comes first.
    """
    if not head.built:
        raise ValueError(
            f"This GPHead (name={head.name!r}) has no GP yet, because it has seen no features. Call "
            "head.adapt(features), and fit the model, first."
        )
