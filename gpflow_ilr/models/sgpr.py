"""The collapsed sparse classifiers that users build: Collapsed-ILR and sparse GPD."""

from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction
from gpflow.models.util import InducingVariablesLike

from gpflow_ilr.calibration import calibrate, smoothing
from gpflow_ilr.codes import DirichletCode, ILRCode, NoiseOption
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.inputs.rows import LabelledData
from gpflow_ilr.models.collapsed import CollapsedClassifier
from gpflow_ilr.models.conjugate import Objective

__all__ = ["ILRSGPR", "DirichletSGPR"]


class ILRSGPR(CollapsedClassifier):
    """The paper's Collapsed-ILR: sparse conjugate classification with K − 1 latent functions.

    :param data: X [N, D] and labels ([N] or [N, 1] class indices, [N, K] one-hot or soft rows).
    :param kernel: kernel of f/L.
    :param inducing_variable: M inducing inputs: an array [M, D], GPflow inducing points, or a set
        for each output (``SeparateIndependentInducingVariables``).
    :param num_classes: K.
    :param smoothing: λ; may be changed, or chosen by :meth:`calibrate`, after training.
    :param tolerance: ε of Proposition 1, which sets the base noise.
    :param noise: what is learned on top of the base noise: ``"fixed"`` (nothing), ``"shared"``,
        ``"per_output"`` (the paper's sparse runs) or ``"per_class"`` (bounded, since it can collapse).
    :param noise_variance: explicit base noise σ²/L² instead of Proposition 1's; large data often
        want less.
    :param mean_function: mean of f/L.
    :param objective: ``"evidence"``, or ``"loo"``, which also learns λ; with trainable inducing inputs
        it over-fits (fix them with ``gpflow.set_trainable``).
    :param chunk_size: rows in memory at a time; None for a size that fits the processor's cache.
    :param nodes: node rule of the predictive probabilities.
    """

    code: ILRCode
    smoothing = smoothing
    calibrate = calibrate

    def __init__(
        self,
        data: LabelledData,
        kernel: Kernel,
        inducing_variable: InducingVariablesLike,
        *,
        num_classes: int,
        smoothing: float = 0.99,
        tolerance: float = 1e-6,
        noise: NoiseOption = "fixed",
        noise_variance: float | None = None,
        mean_function: MeanFunction | None = None,
        objective: Objective = "evidence",
        chunk_size: int | None = None,
        nodes: NodeRule | None = None,
    ) -> None:
        code = ILRCode(num_classes, smoothing, tolerance, noise, noise_variance)
        super().__init__(
            data, kernel, inducing_variable, code, mean_function, objective, chunk_size, nodes
        )


class DirichletSGPR(CollapsedClassifier):
    """Collapsed sparse Dirichlet-based GP classification (GPD; Milios et al., 2018), K latents.

    :param data: X [N, D] and hard labels.
    :param kernel: kernel of f.
    :param inducing_variable: M inducing inputs; see :class:`ILRSGPR`.
    :param num_classes: K.
    :param alpha_epsilon: α_ε of the Dirichlet code.
    :param noise: what is learned on top of the code's noise; the paper's runs use ``"per_output"``.
    :param mean_function: mean of f.
    :param objective: ``"evidence"`` or ``"loo"``.
    :param chunk_size: rows in memory at a time; None for a size that fits the processor's cache.
    :param nodes: node rule of the predictive probabilities.
    """

    def __init__(
        self,
        data: LabelledData,
        kernel: Kernel,
        inducing_variable: InducingVariablesLike,
        *,
        num_classes: int,
        alpha_epsilon: float = 0.01,
        noise: NoiseOption = "fixed",
        mean_function: MeanFunction | None = None,
        objective: Objective = "evidence",
        chunk_size: int | None = None,
        nodes: NodeRule | None = None,
    ) -> None:
        code = DirichletCode(num_classes, alpha_epsilon, noise)
        super().__init__(
            data, kernel, inducing_variable, code, mean_function, objective, chunk_size, nodes
        )
