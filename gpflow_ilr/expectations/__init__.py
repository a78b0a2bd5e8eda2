"""Gaussian expectations of class probabilities and of their logarithms.

The latents of a classifier are Gaussian, its probabilities are softmax(C f), and what lies between
has a closed form for two classes only (:mod:`.two_classes`). For more it is a sum over nodes
(:mod:`.nodes`). Probabilities are plain averages
(:mod:`.softmax`); E[log π], which an optimiser would lead astray, has a control variate
(:mod:`.control_variate`). Logarithms of probabilities that vanish have one rule (:mod:`.logarithms`).
"""

from gpflow_ilr.expectations.logarithms import entropy, label_log_density
from gpflow_ilr.expectations.nodes import (
    GaussHermite,
    MonteCarlo,
    NodeRule,
    Sobol,
    default_rule,
    rule_or_default,
)
from gpflow_ilr.expectations.softmax import (
    expected_entropy,
    expected_log_softmax,
    expected_softmax,
    label_variance,
    logits_at_nodes,
    predictive_log_density,
    softmax_variance,
)

__all__ = [
    "NodeRule",
    "GaussHermite",
    "Sobol",
    "MonteCarlo",
    "default_rule",
    "rule_or_default",
    "entropy",
    "label_log_density",
    "label_variance",
    "expected_entropy",
    "expected_log_softmax",
    "expected_softmax",
    "logits_at_nodes",
    "predictive_log_density",
    "softmax_variance",
]
