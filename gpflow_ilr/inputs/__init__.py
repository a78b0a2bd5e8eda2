"""What users pass in: the only room that reads it.

Inputs X, labels, weights and counts are read here, once, and leave as tensors of one kind; what cannot
be read in exactly one way is refused with a sentence that names the argument, the value and the fix.
"""

from gpflow_ilr.inputs.counts import check_count
from gpflow_ilr.inputs.keras_layers import refuse_keras_layers
from gpflow_ilr.inputs.labels import as_labels, check_simplex_rows, label_rows, membership
from gpflow_ilr.inputs.rows import (
    LabelledData,
    LabelledRows,
    as_column,
    as_inputs,
    as_rows,
    check_data,
)
from gpflow_ilr.inputs.weights import as_weights

__all__ = [
    "LabelledData",
    "LabelledRows",
    "as_column",
    "as_inputs",
    "as_labels",
    "as_rows",
    "as_weights",
    "check_count",
    "check_data",
    "check_simplex_rows",
    "label_rows",
    "membership",
    "refuse_keras_layers",
]
