"""From a closed form on features to the exact likelihood, by natural gradients on features in memory.

The model that is trained stays in the units of the label code, with the sharpness L as the factor of a
mixing matrix L·I: so its kernel has the structure of the closed form's, and one number calibrates it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from gpflow.utilities import deepcopy, set_trainable

from gpflow_ilr.calibration.criterion import Marginals, MeanNLL
from gpflow_ilr.calibration.search import choose_sharpness
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.heads.fixed_posterior import Snapshot, snapshot
from gpflow_ilr.inputs.rows import LabelledRows
from gpflow_ilr.models import ILRSGPR, ILRSVGP
from gpflow_ilr.models.warm_start import variational_start
from gpflow_ilr.training.polish import Polish, polish

__all__ = ["polish_features", "polished_snapshot"]


def polish_features(
    model: ILRSGPR,
    rows: LabelledRows,
    held_out: LabelledRows | None,
    num_data: int,
    nodes: NodeRule | None = None,
    **options: Any,
) -> tuple[ILRSVGP | None, Polish]:
    """The polished model, or None if held-out rows prefer the closed form, and what was done.

    :param model: the closed form; its inducing inputs are trained if they are trainable.
    :param rows: training rows, all of which count.
    :param held_out: rows that say when to stop, and choose the scale last; a tenth of ``rows`` if None,
        and the scale stays.
    :param num_data: number of rows of the closed form, whatever their weights.
    :param nodes: node rule of expectations.
    :param options: other arguments of :func:`gpflow_ilr.training.polish`.
    """
    svgp = _in_code_units(model, num_data, nodes)
    validation = None if held_out is None else tuple(held_out.tensors)
    result = polish(svgp, tuple(rows.tensors), validation=validation, **options)
    if result.best_step == 0:
        return None, result
    if held_out is not None:
        latents = Marginals.of(held_out, *svgp.predict_f(held_out.X))
        factor, nll = choose_sharpness(MeanNLL(latents, svgp.likelihood.link))
        if nll < result.nll_after:
            svgp.likelihood.W.assign(factor * svgp.likelihood.W)
    return svgp, result


def polished_snapshot(svgp: ILRSVGP) -> Snapshot:
    """What predictions need of a polished model: its mixing matrix is a multiple of the identity.

    :param svgp: what :func:`polish_features` returned.
    """
    taken = snapshot(svgp)
    assert taken.mixing is not None
    return taken._replace(scale=tf.convert_to_tensor(taken.mixing)[0, 0], mixing=None)


def _in_code_units(model: ILRSGPR, num_data: int, nodes: NodeRule | None) -> ILRSVGP:
    """The uncollapsed model that predicts as the closed form does."""
    K, scale = model.code.num_classes, float(model.code.scale)
    svgp = ILRSVGP(
        **{**variational_start(model, 1.0), "kernel": deepcopy(model.kernel)},
        num_classes=K,
        mixing=scale * np.eye(K - 1),
        num_data=num_data,
        nodes=nodes,
    )
    set_trainable(svgp.likelihood.W, False)
    return svgp
