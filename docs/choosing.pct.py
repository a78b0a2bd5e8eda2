# %% [markdown]
# # Choosing noise, λ, M and kernels
#
# If you would rather not choose, `training.fit_auto` (or `ILRClassifier`) does, by held-out labels.
# This page says what there is to choose, what each choice does, and how to tell that it was wrong.

# %%
import gpflow
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

import gpflow_ilr as gi
from gpflow_ilr import plotting
from gpflow_ilr.calibration import balanced_class_weights, undo_class_weights


def blobs(num_rows: int, spread: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three classes in the plane, around the corners of a triangle."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=num_rows)
    centres = np.array([[0.0, 1.2], [-1.0, -0.6], [1.0, -0.6]])
    return centres[y] + spread * rng.normal(size=(num_rows, 2)), y


def nll(model, data) -> float:
    return gi.metrics.negative_log_likelihood(model.predict_y(data[0])[0], data[1])


train, test = blobs(150, 0.9, seed=0), blobs(2000, 0.9, seed=1)

# %% [markdown]
# ## Noise
#
# The noise σ²/L² says how far a latent function may miss a label. `noise="fixed"` is Proposition
# 1's value: so little that classes hardly overlap. `"shared"` learns one number on top of it,
# `"per_output"` one for each latent function (the paper's sparse runs), `"per_class"` one for each
# class.
#
# Where classes overlap, as here, a model without noise must bend to every label. Few rows with
# overlapping classes want `"shared"`; many rows with clean labels want Proposition 1's noise, or
# less:

# %%
models = {}
for noise in ("fixed", "shared"):
    models[noise] = gi.ILRGPR(train, gi.starting_kernel(train[0], 3), num_classes=3, noise=noise)
    gi.training.fit(models[noise])
    models[noise].calibrate()
    code, scale = models[noise].code, models[noise].kernel.lengthscales.numpy()
    print(
        f"{noise:<7} noise {code.noise_variance.numpy().item():.3f}, lengthscale {scale:.2f}, "
        f"λ = {models[noise].smoothing:.3f}, test NLL {nll(models[noise], test):.3f}"
    )

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained", sharey=True)
for ax, (noise, model) in zip(axes, models.items(), strict=True):
    plotting.plot_decision_regions(model, *train, resolution=100, ax=ax)
    ax.set_title(f'noise="{noise}"')
plt.show()

# %% [markdown]
# `calibrate(noise=True)` chooses noise and λ together, by leave-one-out, after training: above
# Proposition 1's value or below it. It changes the noise, not the kernel: a lengthscale that was
# bent to single labels, as with `"fixed"` above, is beyond its repair. Here the kernel is the
# better one, and the noise starts too small:

# %%
model = gi.ILRGPR(train, gpflow.utilities.deepcopy(models["shared"].kernel), num_classes=3)
for noise in (False, True):
    print(model.calibrate(noise=noise))
    print(f"test NLL {nll(model, test):.3f}")

# %% [markdown]
# The message also says when the noise is at the end of its range, and when less would be as good.
#
# Per-class noise tilts decisions towards the class with less of it, so the classes' noises are kept
# within a factor of 1.5 of each other; prefer the others.
#
# ## λ
#
# λ is chosen by `calibrate()` after training, from that one fit ({doc}`idea`). Look at the curve
# where you doubt it: a valley is an answer, a slope to the right is none. Classes that do not
# overlap give a slope, since leave-one-out finds nothing that a sharper model would do wrong, and
# the message says so:

# %%
apart = blobs(60, 0.1, seed=2)
clean = gi.ILRGPR(apart, gi.starting_kernel(apart[0], 3), num_classes=3)
gi.training.fit(clean)
print(clean.calibrate())

figure, axes = plt.subplots(2, 1, figsize=(7, 5.6), layout="constrained")
for ax, model, title in zip(
    axes, (models["shared"], clean), ("overlapping", "separable"), strict=True
):
    plotting.plot_smoothing(model, ax=ax).set_title(title)
plt.show()

# %% [markdown]
# There, set λ by hand (`model.smoothing = 0.999`) as high as you are ready to believe, or give
# `calibrate` other rows, `calibrate((X_val, y_val))`. For hard labels, setting λ equals retraining
# at that value.
#
# ## M, the inducing inputs
#
# The collapsed bound of `ILRSGPR` reaches the exact evidence as M grows, so M is enough where the
# bound stops rising. Time grows with N M². Here the kernel is that of the exact model, and only M
# changes:

# %%
exact = models["shared"]
print(f"exact: evidence {exact.log_marginal_likelihood():8.2f}, test NLL {nll(exact, test):.3f}")
for M in (3, 6, 12, 24):
    sparse = gi.ILRSGPR(
        train,
        gpflow.utilities.deepcopy(exact.kernel),
        gi.greedy_variance(train[0], M, exact.kernel),
        num_classes=3,
        noise_variance=exact.code.noise_variance.numpy().item(),
        smoothing=exact.smoothing,
    )
    print(f"M = {M:<3} bound   {sparse.elbo():8.2f}, test NLL {nll(sparse, test):.3f}")

# %% [markdown]
# `kmeans_plusplus` spreads inducing inputs by distance, `greedy_variance` puts each where the
# kernel predicts worst from those before. If a sparse model explains nothing, with all
# probabilities near the frequencies of the classes, learned noise has let it give up: take more
# inducing inputs, or `noise="fixed"`.
#
# ## Kernels, and when not to trust leave-one-out
#
# Leave-one-out leaves out a row, but keeps the hyperparameters that this row has trained. With one
# lengthscale that is no matter. With one for each column (`ard=True`) and few rows it is: Wine has
# 13 columns, and here 89 rows to train on.

# %%
X, y = load_wine(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, train_size=89, stratify=y, random_state=0)
centre, spread = X.mean(axis=0), X.std(axis=0)
X, X_test = (X - centre) / spread, (X_test - centre) / spread
for ard in (False, True):
    model = gi.ILRGPR((X, y), gi.starting_kernel(X, 3, ard=ard), num_classes=3)
    gi.training.fit(model)
    calibration = model.calibrate()
    print(f"{'one for each column' if ard else 'one lengthscale'}:\n{calibration}")
    print(
        f"promised {calibration.nll_after:.3f}, on test rows {nll(model, (X_test, y_test)):.3f}\n"
    )

# %% [markdown]
# `calibration.optimistic` is that caution as a boolean: fewer than 20 rows for each hyperparameter.
# Compare kernels then by rows that have trained nothing: by validation rows or folds, or leave it
# to `fit_auto`, which does it ({doc}`start/sklearn_users`). Start with one lengthscale and
# standardised columns, and give each column its own where there are rows enough. Of kernels, the
# squared exponential suits smooth boundaries and Matérn-3/2 or 5/2
# (`kernel_class=gpflow.kernels.Matern52`) rougher ones.
#
# ## Weights
#
# `data=(X, y, weights)` works wherever `(X, y)` does: in every model but the sampled ones, in
# `update(..., sample_weight=)` and `forget`, in streams and minibatches, in `calibrate` and
# `fit(validation=)`. A row of weight w counts as w rows: its label has the noise σ²/w, its
# expectations count w times, and leave-one-out leaves out all of it. Rows of weight zero are absent.
#
# That is also what the evidence believes: w rows at one place with one label. Weights that stand for
# importance, such as those that balance classes, are no such rows, and the evidence then finds a kernel
# too short and a noise too small. Train first, and give the weights afterwards:

# %%
rng = np.random.default_rng(0)
y = (rng.uniform(size=4400) < 0.08).astype(int)  # a rare class, inside the other
X = rng.normal(size=(4400, 2)) * np.where(y == 1, 0.8, 1.5)[:, None]
(X, X_test), (y, y_test) = np.split(X, [400]), np.split(y, [400])
weights = balanced_class_weights(y, 2)
for name in ("no weights", "weights in training", "weights afterwards"):
    data = (X, y, weights[y]) if name == "weights in training" else (X, y)
    kernel = gi.starting_kernel(X, 2, gpflow.kernels.Matern52)
    model = gi.ILRGPR(data, kernel, num_classes=2, noise="shared")
    gi.training.fit(model, max_iterations=30)
    if name == "weights afterwards":
        model.data = (X, y, weights[y])
    model.calibrate()
    p = model.predict_y(X_test)[0].numpy()
    found = np.mean(p[y_test == 1, 1] > 0.5)
    print(
        f"{name:<20} lengthscale {model.kernel.lengthscales.numpy():.2f}, recall {found:.2f}, "
        f"NLL {gi.metrics.negative_log_likelihood(p, y_test):.3f}"
    )
corrected = undo_class_weights(p, weights)
print(f"corrected: NLL {gi.metrics.negative_log_likelihood(corrected, y_test):.3f}")

# %% [markdown]
# Balanced weights find more of the rare class, and their probabilities are those of a world in which
# both classes are as frequent: in this one they are not calibrated. `undo_class_weights` goes back.
# `ILRClassifier(class_weight="balanced", correct_prior=...)` does all of this, and its weights count
# relative to each other. If you only want more of the rare class, keep the probabilities as they are
# and divide by the frequencies when you decide (`examples/imbalance.py`).
