"""The label of a label code: softmax(C f) with the code's own link C.

A model that is trained on a code's pseudo-targets predicts labels with it. There is one way from code
to likelihood: the link is read from the code at each call, never written down a second time.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gpflow_ilr.codes import LabelCode
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.likelihoods.base import SoftmaxOfLatents

__all__ = ["CodeSoftmax", "check_code"]


def check_code(code: Any) -> LabelCode:
    """``code``, if it is a label code.

    :param code: what a user passed.
    :raises TypeError: if it is anything else.
    """
    if not isinstance(code, LabelCode):
        raise TypeError(
            f"code must be a label code such as ILRCode(num_classes=3), but it is {code!r}."
        )
    return code


class CodeSoftmax(SoftmaxOfLatents):
    """p(y = k | f) = softmax(C f)_k with C the code's link, and f in the paper's units.

    The code's scale and noise do not enter: they belong to its pseudo-targets. In an SVGP without
    pseudo-targets a learned noise would have no gradient, so take a code with noise ``"fixed"``.

    :param code: the label code, kept as ``code``.
    :param nodes: the rule that chooses the nodes of expectations, kept as ``nodes`` for
        probabilities and as ``bound_nodes`` for the variational bound; by default
        :func:`gpflow_ilr.expectations.default_rule` for each.
    :raises TypeError: if ``code`` is not a label code or ``nodes`` not a node rule.
    """

    def __init__(self, code: LabelCode, nodes: NodeRule | None = None) -> None:
        code = check_code(code)
        super().__init__(code.num_classes, code.num_outputs, nodes)
        self.code = code

    @property
    def link(self) -> tf.Tensor:
        """C [K, P], the code's link."""
        return self.code.link
