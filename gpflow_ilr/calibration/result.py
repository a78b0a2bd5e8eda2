"""What ``calibrate`` did, and how far its promise can be trusted."""

from __future__ import annotations

from dataclasses import dataclass

from gpflow_ilr.calibration.search import FLAT_NLL

__all__ = ["ROWS_PER_HYPERPARAMETER", "Calibration"]

ROWS_PER_HYPERPARAMETER = 20
"""With fewer rows leave-one-out, which keeps the hyperparameters, promises too much. Wine, 89 rows and
14 hyperparameters: promised NLL 0.055, on test rows 0.186; breast cancer, 284 and 31: 0.055, 0.194.
With one lengthscale for all columns both promises held."""


@dataclass(frozen=True)
class Calibration:
    """What ``calibrate`` did; as a string, with what to beware of.

    :param smoothing: λ, as now set.
    :param nll_before: NLL of the held-out labels at the old λ (and noise), in nats per row.
    :param nll_after: NLL of the held-out labels at the new λ (and noise).
    :param noise_variance: mean noise variance in units of L², as now set.
    :param num_rows: number of held-out rows.
    :param leave_one_out: whether the held-out rows are training rows, each left out in turn.
    :param num_training_rows: number of rows that the model was trained on.
    :param num_hyperparameters: numbers that they have trained, and that leave-one-out keeps.
    :param smoothing_at_limit: λ is at the end of its range: the NLL would fall further.
    :param noise_at_limit: the noise is at the end of its range.
    :param num_neighbours: number of neighbours, as now set; None for a model without.
    :param noise_is_flat: less noise would change the NLL by less than 0.001.
    """

    smoothing: float
    nll_before: float
    nll_after: float
    noise_variance: float
    num_rows: int
    leave_one_out: bool
    num_training_rows: int
    num_hyperparameters: int
    smoothing_at_limit: bool = False
    noise_at_limit: bool = False
    num_neighbours: int | None = None
    noise_is_flat: bool = False

    @property
    def optimistic(self) -> bool:
        """Whether there are too few rows for the hyperparameters to trust ``nll_after``."""
        needed = ROWS_PER_HYPERPARAMETER * self.num_hyperparameters
        return self.leave_one_out and self.num_training_rows < needed

    @property
    def cautions(self) -> tuple[str, ...]:
        """What to beware of, a sentence each."""
        cautions = []
        if self.smoothing_at_limit:
            cautions.append(
                f"λ = {self.smoothing!r} is at the end of its range: the held-out labels are "
                "separable, or pure noise, and do not determine it."
            )
        if self.noise_at_limit:
            cautions.append(
                f"The noise {self.noise_variance:.3g} is at the end of its range, a factor of 100 "
                "from where it was: calibrate(noise=True) again may go on."
            )
        if self.noise_is_flat:
            cautions.append(
                f"Less noise than {self.noise_variance:.3g} is as good, within {FLAT_NLL} nats: the "
                "rows determine the latent functions without it."
            )
        if self.optimistic:
            cautions.append(
                f"Leave-one-out keeps the {self.num_hyperparameters} hyperparameters that the "
                f"{self.num_training_rows} rows have trained, so its NLL is optimistic: compare "
                "kernels by validation rows or folds, or use one lengthscale for all columns."
            )
        return tuple(cautions)

    def __str__(self) -> str:
        kind = "leave-one-out of" if self.leave_one_out else "of"
        count = "" if self.num_neighbours is None else f", {self.num_neighbours} neighbours"
        done = (
            f"λ = {self.smoothing:.6g}, noise {self.noise_variance:.3g}{count}: "
            f"NLL {self.nll_before:.4f} → {self.nll_after:.4f}, {kind} {self.num_rows} rows."
        )
        return "\n".join([done, *self.cautions])
