"""Claims about the search over settings."""

from __future__ import annotations

import numpy as np
import pytest

from gpflow_ilr.inputs.scaling import ONE_SCALE
from gpflow_ilr.training.settings import FAMILIES, LINEAR_FAMILIES, Setting, ranked_settings

SCALINGS = ["standardised", "normal quantiles"]
NOISE = np.tile([-1.0, 1.0], 200)


def scores(table: dict[Setting, float], spread: float = 0.0) -> tuple[dict, object]:
    """A score that is 1 unless the table says otherwise, and what has been asked for."""
    asked: list[Setting] = []

    def score(setting: Setting) -> np.ndarray:
        asked.append(setting)
        return table.get(setting, 1.0) + spread * NOISE * (1 + setting.ard)

    return asked, score


def test_scaling_lengthscales_and_family_are_chosen_in_turn() -> None:
    best = Setting("normal quantiles", "Matern32", ard=True)
    other = Setting("normal quantiles", "Matern52", ard=True)
    asked, score = scores({best: 0.5, other: 0.7})
    assert ranked_settings(score, 3, SCALINGS, FAMILIES, lambda: False)[:2] == [best, other]
    assert len(asked) == len(set(asked)) == 4 + len(FAMILIES) - 1


@pytest.mark.parametrize(("gain", "ard"), [(0.03, False), (0.08, True)])
def test_many_lengthscales_must_be_better_by_more_than_a_standard_error(
    gain: float, ard: bool
) -> None:
    # The differences have a standard deviation of 1, and their mean an error of 0.05.
    _, score = scores(
        {Setting("standardised", family, ard=True): 1.0 - gain for family in FAMILIES}, spread=1.0
    )
    assert ranked_settings(score, 3, SCALINGS, FAMILIES, lambda: False)[0].ard == ard


def test_one_scale_competes_where_columns_have_one_lengthscale_only() -> None:
    best = Setting(ONE_SCALE, "SquaredExponential", ard=False)
    first = Setting(ONE_SCALE, "Matern52", ard=False)
    asked, score = scores({best: 0.5, first: 0.7})
    assert ranked_settings(score, 3, [*SCALINGS, ONE_SCALE], FAMILIES, lambda: False)[0] == best
    assert len(asked) == 5 + len(FAMILIES) - 1
    assert not any(setting.ard for setting in asked if setting.scaling == ONE_SCALE)


def test_one_column_has_one_lengthscale() -> None:
    asked, score = scores({})
    ranked_settings(score, 1, SCALINGS, FAMILIES, lambda: False)
    assert not any(setting.ard for setting in asked)


def test_when_time_is_over_the_best_so_far_is_taken() -> None:
    best = Setting("normal quantiles", "Matern52", ard=False)
    asked, score = scores({best: 0.5})
    assert ranked_settings(score, 3, SCALINGS, FAMILIES, lambda: len(asked) >= 2)[0] == best
    assert len(asked) == 2


def test_a_fitted_setting_has_its_kernel_and_more_evidence_than_its_start(
    rng: np.random.Generator,
) -> None:
    X = rng.normal(size=(60, 2))
    y = (X[:, 0] > 0).astype(int)
    setting = Setting("standardised", "Matern32", ard=True)
    model = setting.fitted((X, y), 2, max_iterations=5)
    assert type(model.kernel) is FAMILIES["Matern32"]
    assert model.kernel.lengthscales.shape == [2]
    assert model.code.noise == "shared"
    start = setting.fitted((X, y), 2, max_iterations=1)
    assert float(model.log_evidence()) > float(start.log_evidence())
    assert str(setting) == "Matern32 ARD, standardised"


@pytest.mark.parametrize("family", LINEAR_FAMILIES)
def test_a_plane_has_no_lengthscales_of_its_own_and_a_constant(
    family: str, rng: np.random.Generator
) -> None:
    X = rng.normal(size=(30, 3))
    asked, score = scores({Setting("standardised", "Matern52", ard=True): 0.1})
    ranked_settings(score, 3, SCALINGS, ["Matern52", family], lambda: False)
    assert asked[-1] == Setting("standardised", family, ard=False)
    kernel = asked[-1].kernel(X, 3)
    # Second differences along a line: zero for a plane, which a curve is not.
    line = np.outer(np.arange(3.0), np.ones(3))
    K = kernel(line).numpy()
    curvature = np.array([1.0, -2.0, 1.0]) @ K @ np.array([1.0, -2.0, 1.0])
    assert (curvature > 1e-3) == (family != "Linear")
    assert kernel(np.zeros([1, 3])).numpy() > 0.0


@pytest.mark.parametrize("family", ["RationalQuadratic", *LINEAR_FAMILIES])
def test_several_sets_of_rows_are_fitted_by_one_trace_as_each_alone(
    family: str, rng: np.random.Generator
) -> None:
    X = rng.normal(size=(50, 2))
    y = (X[:, 0] + 0.3 * rng.normal(size=50) > 0).astype(int)
    setting = Setting("standardised", family, ard=False)
    parts = [(X[:20], y[:20]), (X[20:], y[20:])]
    models = setting.fitted_to_each(parts, 2, max_iterations=8)
    for model, part in zip(models, parts, strict=True):
        alone = setting.fitted(part, 2, max_iterations=8)
        assert model.num_data == len(part[0])
        np.testing.assert_allclose(model.log_evidence(), alone.log_evidence(), rtol=1e-8)
        for ours, theirs in zip(model.predict_y(X), alone.predict_y(X), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
