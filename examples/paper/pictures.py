"""The paper's pictures of the idea itself: drawn, not measured."""

import dataclasses
from typing import Any

import figures
import matplotlib.pyplot as plt
import numpy as np
from published import published
from runner import Options
from toys import ADAM_STEPS, TRAINING, exact_ilr, mixture

import gpflow_ilr as gi
from gpflow_ilr import plotting
from gpflow_ilr.codes import ILRCode
from gpflow_ilr.plotting.axes import class_colours
from gpflow_ilr.plotting.regions import region_colours

__all__ = ["decision_boundaries", "likelihood", "visual_abstract"]

_COLOURS = class_colours(3)
_AT = (-0.6, 0.0, 0.55)
"""The three inputs at which the visual abstract looks closer."""


def decision_boundaries(options: Options) -> bool:
    """What Exact-ILR believes about three overlapping classes, near the rows and far from them.

    :param options: what the command line says.
    """
    settings = published()["decision-boundaries"]["settings"]
    rows = mixture(60 if options.quick else TRAINING, np.sqrt(settings["variance"]), 0)
    figure, axes = plt.subplots(1, 2, figsize=(11, 5), layout="constrained", sharey=True)
    as_paper, ours = (dataclasses.replace(options, protocol=name) for name in ("paper", "ours"))
    fixed = exact_ilr(rows, 3, as_paper, smoothing=settings["smoothing"])
    learned = exact_ilr(rows, 3, ours, noise="shared")
    learned.calibrate()
    titles = (
        f"λ = {settings['smoothing']}, Proposition 1's noise, {ADAM_STEPS} steps of Adam",
        f"noise learned, λ = {learned.smoothing:.2f} by leave-one-out",
    )
    reach = 5.0  # so that the picture shows where no rows are
    x = np.linspace(-reach, reach, 40 if options.quick else 160)
    grid = np.stack(np.meshgrid(x, x), axis=-1).reshape(-1, 2)
    for ax, model, title in zip(axes, (fixed, learned), titles, strict=True):
        image = region_colours(model.predict_y(grid)[0].numpy()).reshape(len(x), len(x), 3)
        ax.imshow(image, extent=[-reach, reach] * 2, origin="lower", interpolation="bilinear")
        for k, colour in enumerate(_COLOURS):
            ax.scatter(*rows[0][rows[1] == k].T, color=colour, s=6, lw=0)
        ax.set_title(title)
    figures.save(figure, options.out / "figures" / "decision-boundaries.png")
    p = fixed.predict_y(np.array([[-60.0, -60.0], [60.0, 60.0]]))[0].numpy()
    print(f"largest probability far from all rows: {np.max(p):.4f} (uniform: {1 / 3:.4f})")
    return True


def likelihood(options: Options) -> bool:
    """The mixture of Gaussians at the codewords, in Euclidean space and pushed onto the simplex.

    :param options: what the command line says.
    """
    code = ILRCode(3, smoothing=0.9)
    L, sigma = float(code.scale), float(np.sqrt(code.noise_variance[0, 0]) * code.scale)
    means = L * code.targets.numpy()
    size = 80 if options.quick else 240
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained")

    def density(z: np.ndarray) -> np.ndarray:
        squares = np.sum(np.square(z[..., None, :] - means), axis=-1)
        return np.mean(np.exp(-0.5 * squares / sigma**2), axis=-1) / (2.0 * np.pi * sigma**2)

    a, b = np.meshgrid(np.linspace(0.0, 1.0, size), np.linspace(0.0, 1.0, size))
    inside = (a + b < 1.0 - 1e-3) & (a > 1e-3) & (b > 1e-3)
    p = np.stack([a, b, 1.0 - a - b], axis=-1)[inside]
    z = gi.ILR(3).inverse(p).numpy()
    # dz = dp / (√K Π p): the volume that φ gives to a piece of the simplex.
    on_simplex = np.full(a.shape, np.nan)
    on_simplex[inside] = density(z) / (np.sqrt(3.0) * np.prod(p, axis=1))
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    at = np.stack([a, b, 1.0 - a - b], axis=-1) @ corners
    left.pcolormesh(at[..., 0], at[..., 1], np.log1p(on_simplex), cmap="magma_r", shading="gouraud")
    left.plot(*np.concatenate([corners, corners[:1]]).T, color="0.3", lw=1)
    for k, corner in enumerate(corners):
        left.annotate(f"class {k + 1}", corner, ha="center", va="bottom" if k == 2 else "top")
    left.set(xlim=(-0.08, 1.08), ylim=(-0.08, 0.95), aspect="equal")
    left.axis("off")
    left.set_title("on the simplex (log scale)", pad=14)
    reach = 1.6 * L
    x = np.linspace(-reach, reach, size)
    grid = np.stack(np.meshgrid(x, x), axis=-1)
    right.pcolormesh(x, x, density(grid), cmap="magma_r", shading="gouraud")
    right.scatter(*means.T, color="white", edgecolor="black", s=25, zorder=3)
    for k, mean in enumerate(means):
        right.annotate(f"$m^{{({k + 1})}}$", (mean[0], mean[1] + 1.0), ha="center")
    right.set(title=f"in Euclidean space, λ = 0.9, σ = {sigma:.2f}", xlabel="$z_1$", ylabel="$z_2$")
    right.set_aspect("equal")
    figures.save(figure, options.out / "figures" / "likelihood-figure.png")
    return True


def true_probabilities(x: np.ndarray) -> np.ndarray:
    logits = np.stack([-4.0 * x, 2.0 - 8.0 * x**2, 4.0 * x + 0.5 * np.sin(6.0 * x)], axis=1)
    return np.exp(logits) / np.sum(np.exp(logits), axis=1, keepdims=True)


def visual_abstract(options: Options) -> bool:
    """Data, likelihood and posterior of a problem with one input and three classes.

    :param options: what the command line says.
    """
    rng = np.random.default_rng(1)
    num_rows = 40 if options.quick else 120
    x = np.sort(rng.uniform(-1.0, 1.0, num_rows))
    p = true_probabilities(x)
    y = np.sum(rng.random([num_rows, 1]) > np.cumsum(p, axis=1), axis=1)
    model = exact_ilr((x[:, None], y), 3, options, noise="shared")
    model.calibrate()
    figure = plt.figure(figsize=(10, 13), layout="constrained")
    grid = figure.add_gridspec(5, 3, height_ratios=[1.1, 1.1, 1.25, 0.9, 0.9])
    dense = np.linspace(-1.0, 1.0, 200)
    _draw_data(figure.add_subplot(grid[0, :]), dense, x, y)
    for i, at in enumerate(_AT):
        _draw_likelihood(figure.add_subplot(grid[1, i]), model, at)
        _draw_posterior(figure.add_subplot(grid[2, i]), model, at)
    mean, variance = (moment.numpy() for moment in model.predict_f(dense[:, None]))
    targets = float(model.code.scale) * model.code.targets.numpy()
    for d in range(2):
        ax = figure.add_subplot(grid[3 + d, :])
        spread = 2.0 * np.sqrt(variance[:, d])
        ax.plot(dense, mean[:, d], color="black")
        ax.fill_between(dense, mean[:, d] - spread, mean[:, d] + spread, color="0.85")
        for k, colour in enumerate(_COLOURS):
            ax.scatter(x[y == k], np.full(np.sum(y == k), targets[k, d]), color=colour, s=8)
        for at in _AT:
            ax.axvline(at, color="0.6", ls=":", lw=1)
        ax.set(ylabel=f"$f_{d + 1}(x)$", xlim=(-1, 1))
    ax.set_xlabel("x")
    figures.save(figure, options.out / "figures" / "visual-abstract.png")
    return True


def _draw_data(ax: Any, dense: np.ndarray, x: np.ndarray, y: np.ndarray) -> None:
    for k, colour in enumerate(_COLOURS):
        ax.plot(dense, true_probabilities(dense)[:, k], color=colour, label=f"$\\pi_{k + 1}(x)$")
        ax.scatter(x[y == k], np.full(np.sum(y == k), -0.06 - 0.04 * k), color=colour, s=6)
    for i, at in enumerate(_AT):
        ax.axvline(at, color="0.6", ls=":", lw=1)
        place = {"xytext": (4, 0), "textcoords": "offset points"}  # beside the line, not on it
        ax.annotate(f"$x_*^{{({i + 1})}}$", (at, 1.1), ha="left", **place)
    ax.set(title="data: true class probabilities and labels", xlim=(-1, 1), ylim=(-0.2, 1.3))
    ax.legend(loc="center right", fontsize=8)


def _draw_likelihood(ax: Any, model: gi.ILRGPR, at: float) -> None:
    L = float(model.code.scale)
    means = L * model.code.targets.numpy()
    sigma = L * float(np.sqrt(model.code.base_noise.numpy()[0, 0]))
    weights = true_probabilities(np.array([at]))[0]
    x = np.linspace(-1.6 * L, 1.6 * L, 120)
    squares = np.sum(np.square(np.stack(np.meshgrid(x, x), -1)[..., None, :] - means), axis=-1)
    density = np.exp(-0.5 * squares / sigma**2) @ weights
    ax.pcolormesh(x, x, density, cmap="magma_r", vmin=0.0, vmax=1.0)
    ax.set(title=f"likelihood at x = {at}", xlabel="$z_1$", ylabel="$z_2$")
    ax.set_aspect("equal")


def _draw_posterior(ax: Any, model: gi.ILRGPR, at: float) -> None:
    samples = model.predict_probability_samples(np.array([[at]]), 400).numpy().reshape(-1, 3)
    names = [f"$\\pi_{k + 1}$" for k in range(3)]
    plotting.plot_simplex(samples, np.argmax(samples, axis=1), class_names=names, ax=ax)
    average = samples.mean(axis=0)
    ax.set_title("posterior: mean " + ", ".join(f"{value:.2f}" for value in average), fontsize=9)
