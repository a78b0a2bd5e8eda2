"""The nearest-neighbour classifiers that users build."""

from gpflow.kernels import Kernel
from gpflow.mean_functions import MeanFunction

from gpflow_ilr.calibration import calibrate, smoothing
from gpflow_ilr.codes import DirichletCode, ILRCode, NoiseOption
from gpflow_ilr.expectations import NodeRule
from gpflow_ilr.inputs.rows import LabelledData
from gpflow_ilr.models.neighbours import NeighboursClassifier

__all__ = ["ILRNNGPR", "DirichletNNGPR"]


class ILRNNGPR(NeighboursClassifier):
    """ILR classification from nearest neighbours: all rows count, whatever their number.

    For intricate boundaries and clean labels above a few thousand rows. Take the kernel from an
    :class:`~gpflow_ilr.ILRGPR` that was fitted to a sample of the rows, or train it here; then
    ``calibrate(noise=True, neighbours=True)``.

    :param data: X [N, D] and labels ([N] or [N, 1] class indices, [N, K] one-hot or soft rows).
    :param kernel: kernel of f/L.
    :param num_classes: K.
    :param num_neighbours: m; may be changed, or chosen by :meth:`calibrate`, after training.
    :param smoothing: λ; likewise, and training learns it.
    :param tolerance: ε of Proposition 1, which sets the base noise.
    :param noise: what is learned on top of the base noise: ``"fixed"`` (nothing), ``"shared"``,
        ``"per_output"`` (K − 1 times the work) or ``"per_class"``.
    :param noise_variance: explicit base noise σ²/L² instead of Proposition 1's.
    :param mean_function: mean of f/L.
    :param nodes: node rule of the predictive probabilities.
    """

    code: ILRCode
    smoothing = smoothing
    calibrate = calibrate

    def __init__(
        self,
        data: LabelledData,
        kernel: Kernel,
        *,
        num_classes: int,
        num_neighbours: int = 64,
        smoothing: float = 0.99,
        tolerance: float = 1e-6,
        noise: NoiseOption = "fixed",
        noise_variance: float | None = None,
        mean_function: MeanFunction | None = None,
        nodes: NodeRule | None = None,
    ) -> None:
        code = ILRCode(num_classes, smoothing, tolerance, noise, noise_variance)
        super().__init__(data, kernel, code, num_neighbours, mean_function, nodes)


class DirichletNNGPR(NeighboursClassifier):
    """Dirichlet-based classification (GPD) from nearest neighbours, at K times the work of ILR.

    :param data: X [N, D] and hard labels.
    :param kernel: kernel of f.
    :param num_classes: K.
    :param num_neighbours: m.
    :param alpha_epsilon: α_ε of the Dirichlet code.
    :param noise: what is learned on top of the code's noise; see :class:`ILRNNGPR`.
    :param mean_function: mean of f.
    :param nodes: node rule of the predictive probabilities.
    """

    def __init__(
        self,
        data: LabelledData,
        kernel: Kernel,
        *,
        num_classes: int,
        num_neighbours: int = 64,
        alpha_epsilon: float = 0.01,
        noise: NoiseOption = "fixed",
        mean_function: MeanFunction | None = None,
        nodes: NodeRule | None = None,
    ) -> None:
        code = DirichletCode(num_classes, alpha_epsilon, noise)
        super().__init__(data, kernel, code, num_neighbours, mean_function, nodes)
