# %% [markdown]
# # The idea: from labels to a plane, and back
#
# A Gaussian process predicts numbers that may be anything. Class probabilities may not: they are
# positive and sum to one. This page walks the way from one to the other, with three classes, so
# that everything can be drawn.

# %%
import gpflow
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr import plotting, simplex
from gpflow_ilr.codes import sharpness_of
from gpflow_ilr.plotting.axes import class_colours
from gpflow_ilr.plotting.triangle import on_triangle

# %% [markdown]
# ## Probabilities are ratios
#
# The probabilities of K classes are a point of the simplex; for K = 3 it is a triangle. Ordinary
# distance is a poor guide there. From 0.1 to 0.01 is a factor of ten, and so is from 0.01 to 0.001,
# but a ruler sees the first step only. Aitchison's distance compares ratios,
#
# $$
# d(x, y)^2 = \frac{1}{2K} \sum_{i,j} \left( \log\frac{x_i}{x_j} - \log\frac{y_i}{y_j} \right)^2 .
# $$

# %%
p = np.array([[0.8, 0.1, 0.1], [0.98, 0.01, 0.01], [0.998, 0.001, 0.001]])
print("by a ruler:", np.linalg.norm(np.diff(p, axis=0), axis=1).round(3))
print("Aitchison: ", simplex.aitchison_distance(p[:-1], p[1:]).numpy().round(3))

# %% [markdown]
# ## The simplex is a plane
#
# With this distance the simplex is a Euclidean space of D = K − 1 dimensions. Helmert's matrix $H$
# has orthonormal rows that are orthogonal to the constants, $H H^\top = I$ and $H 1 = 0$, and gives
# it coordinates, the isometric log-ratio (ILR):
#
# $$
# z = \varphi(y) = H \log y, \qquad y = \varphi^{-1}(z) = \operatorname{softmax}(H^\top z) .
# $$

# %%
H = simplex.helmert(3).numpy()
ilr = gi.ILR(num_classes=3)
print(H.round(3))
print("H Hᵀ =", (H @ H.T).round(12).tolist(), " H 1 =", H.sum(axis=1).round(12))
print("lengths of φ(y) − φ(y′):", np.linalg.norm(np.diff(ilr.inverse(p), axis=0), axis=1).round(3))

# %% [markdown]
# Circles of the plane, and what they are on the triangle. Far out they all lie near the edges:
# certainty is at infinity.

# %%
angle = np.linspace(0.0, 2.0 * np.pi, 241)
circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
plotting.plot_simplex([[1 / 3, 1 / 3, 1 / 3]], ax=left)
for radius in (1.0, 2.0, 4.0):
    right.plot(*(radius * circle).T, label=f"radius {radius:g}")
    left.plot(*on_triangle(ilr.forward(radius * circle).numpy()).T)
right.plot(0.0, 0.0, ".", color="0.2")
right.set(aspect="equal", xlabel="$z_1$", ylabel="$z_2$", title="the plane")
left.set_title("the simplex")
right.legend(loc="upper right", fontsize="small")
plt.show()

# %% [markdown]
# ## A label becomes a target
#
# A label says that one probability is one. That is a corner, which the plane has not. The smoothing
# λ moves it inwards, $\mu^{(k)} = \lambda e_k + (1-\lambda)/K$, and the target of class k is
#
# $$
# m^{(k)} = \varphi(\mu^{(k)}) = L \, H e_k, \qquad
# L = \log\left(1 + \frac{K\lambda}{1-\lambda}\right) .
# $$
#
# So the K targets are the corners of a regular simplex of edge $\sqrt{2} L$, whatever λ is: λ is no
# more than their scale. L, the *sharpness*, is the log-odds of the true class against any other
# one.

# %%
for smoothing in (0.5, 0.9, 0.99, 0.9999):
    print(f"λ = {smoothing:<7} L = {sharpness_of(smoothing, 3):.2f}")

# %% [markdown]
# Around its target a label is Gaussian noise of variance σ². Proposition 1 of the paper says how
# large σ may be so that a noisy target is taken for another class with a probability of at most ε:
# $\sigma = L / (\sqrt{2} z)$ with $z = \Phi^{-1}(1 - \varepsilon/D)$. It is proportional to L, too.
# The circles are three σ wide, at ε = 10⁻⁶.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
colours = class_colours(3)
shown = (0.5, 0.9, 0.99)
for smoothing in shown:
    code = gi.ILRCode(3, smoothing)
    L, sigma = float(code.scale), float(code.scale) * np.sqrt(code.noise_variance.numpy()[0, 0])
    for k, target in enumerate(L * code.targets.numpy()):
        noise = target + 3.0 * sigma * circle
        right.plot(*target, ".", color=colours[k])
        right.plot(*noise.T, color=colours[k], linewidth=0.8)
        left.plot(*on_triangle(ilr.forward(noise).numpy()).T, color=colours[k], linewidth=0.8)
targets = np.concatenate([ilr.forward(gi.ILRCode(3, s).scale * H.T) for s in shown])
plotting.plot_simplex(targets, np.tile([0, 1, 2], len(shown)), ax=left)
right.set(aspect="equal", xlabel="$z_1$", ylabel="$z_2$", title="targets at λ = 0.5, 0.9, 0.99")
plt.show()

# %% [markdown]
# ## Classification is regression
#
# Three overlapping classes. The exact model, `ILRGPR`, is GP regression on these targets, in closed
# form: GPflow's own `GPR`, given the targets $m^{(k)}$ and the noise σ², has the same evidence.
# (Inside, everything is divided by L: the kernel describes f/L.)

# %%
rng = np.random.default_rng(1)
y = rng.integers(3, size=150)
X = np.array([[0.0, 1.2], [-1.0, -0.6], [1.0, -0.6]])[y] + 0.7 * rng.normal(size=(150, 2))

model = gi.ILRGPR((X, y), gi.starting_kernel(X, 3), num_classes=3, noise="shared")
print(gi.training.fit(model))

L = model.code.scale
same = gpflow.models.GPR(
    (X, L * tf.gather(model.code.targets, y)),
    gpflow.kernels.SquaredExponential(L**2 * model.kernel.variance, model.kernel.lengthscales),
    noise_variance=L**2 * model.code.noise_variance[0, 0],
)
print(
    f"evidence {model.log_marginal_likelihood():.6f}, GPflow's {same.log_marginal_likelihood():.6f}"
)

# %% [markdown]
# ## And back
#
# At a new row the latent f is Gaussian, and the predicted probabilities are its mean on the
# simplex, $p = \mathbb{E}[\operatorname{softmax}(H^\top f)]$. The picture has the most probable
# class, paler where it is less so.

# %%
ax = plotting.plot_decision_regions(model, X, y)
ax.figure.set_size_inches(5.5, 4)
plt.show()

# %% [markdown]
# Draws of the probabilities at three rows (faint), and their mean: within class 0, between classes
# 1 and 2, and far from all rows. How far a cloud spreads is what the model does not know.

# %%
tf.random.set_seed(0)
places = {"within": [0.0, 1.6], "between": [0.0, -0.8], "far": [6.0, 6.0]}
figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for ax, (name, place) in zip(axes, places.items(), strict=True):
    draws = model.predict_probability_samples([place], num_samples=300)
    plotting.plot_simplex(draws, ax=ax).set_title(f"{name}: {place}")
plt.show()

# %% [markdown]
# ## One fit for every λ
#
# Targets and noise are proportional to L. Where the amplitude of the kernel is free, a fit at
# another λ is therefore the same fit, times another L:

# %%
for smoothing in (0.9, 0.9999):
    other = gi.ILRGPR(
        (X, y), gi.starting_kernel(X, 3), num_classes=3, noise="shared", smoothing=smoothing
    )
    gi.training.fit(other)
    print(
        f"λ = {smoothing}: lengthscale {other.kernel.lengthscales.numpy():.5f}, "
        f"variance of f/L {other.kernel.variance.numpy():.5f}"
    )

# %% [markdown]
# So λ is chosen after training. Each row is predicted from all others, in closed form, and λ is set
# where the labels are most probable. No validation rows are lost, and no grid of fits is needed:

# %%
print(model.calibrate())
plotting.plot_smoothing(model).figure.set_size_inches(7, 3.6)
plt.show()

# %% [markdown]
# The paper's notation and the names in the code are side by side in {doc}`paper_and_code`. How to
# choose the rest is in {doc}`choosing`.
