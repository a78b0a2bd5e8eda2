# %% [markdown]
# # Uncertainty: what the numbers mean
#
# A row may be hard to classify for two reasons: its label is a matter of chance, or nothing like it
# has been seen. The first does not go away with more data, the second does. This page shows both,
# in a problem with one column whose true probabilities are known: classes overlap on the left, and
# in the middle rows are missing.

# %%
import matplotlib.pyplot as plt
import numpy as np
import tensorflow as tf

import gpflow_ilr as gi
from gpflow_ilr import plotting
from gpflow_ilr.plotting.axes import BLUE, ORANGE, class_colours


def true_probabilities(x: np.ndarray) -> np.ndarray:
    logits = np.stack([-2.0 - x, 0.5 * x + 1.5, 4.0 * (x - 3.0)], axis=-1)
    return np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True)


def labelled(x: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    cumulative = true_probabilities(x).cumsum(axis=1)
    return x[:, None], (rng.random((len(x), 1)) > cumulative).sum(axis=1)


rng = np.random.default_rng(0)
train = labelled(np.concatenate([rng.uniform(-5, -1, 120), rng.uniform(2, 5, 60)]), rng)
model = gi.ILRGPR(train, gi.starting_kernel(train[0], 3), num_classes=3, noise="shared")
gi.training.fit(model)
print(model.calibrate())

# %% [markdown]
# ## Four numbers for each row
#
# The latent f at a row is Gaussian, so the class probabilities π = softmax(Hᵀf) are random, too.
# From their distribution come
#
# - `predict_y`: the probabilities to act on, $p = \mathbb{E}[\pi]$. (Its second result, $p(1-p)$,
#   is the variance of a one-hot *label*, as in every GPflow classifier.)
# - `predict_probability_variance`: the variance of π itself, which is what more data would shrink.
# - `predict_credible_interval`: where each probability lies with the probability `level`.
# - `predict_entropy`: how uncertain the label is, in nats, and why. The total is the entropy of the
#   predicted label, the *aleatoric* part is the entropy that would remain if π were known, and the
#   *epistemic* part is what the label would tell about π:
#
# $$
# \mathcal{H}(\mathbb{E}[\pi]) = \mathbb{E}[\mathcal{H}(\pi)] + \mathcal{I}(y; \pi) .
# $$

# %%
places = np.array([[-4.5], [-2.4], [0.5], [4.8], [30.0]])
posterior = model.posterior()  # predictions without work over the data
p, _ = posterior.predict_y(places)
deviation = np.sqrt(posterior.predict_probability_variance(places))
total, aleatoric, epistemic = posterior.predict_entropy(places)
print("    x   probabilities         their deviations      total = aleatoric + epistemic")
for i, x in enumerate(places[:, 0]):
    print(
        f"{x:5.1f}   {np.round(p[i], 3)}   {np.round(deviation[i], 3)}   "
        f"{total[i]:.3f} = {aleatoric[i]:.3f} + {epistemic[i]:.3f}"
    )

# %%
grid = np.linspace(-7.0, 8.0, 301)
p, _ = posterior.predict_y(grid[:, None])
lower, upper = posterior.predict_credible_interval(grid[:, None], level=0.9)
_, aleatoric, epistemic = posterior.predict_entropy(grid[:, None])

figure, (above, below) = plt.subplots(2, 1, figsize=(8, 5.6), layout="constrained", sharex=True)
for k, colour in enumerate(class_colours(3)):
    above.fill_between(grid, lower[:, k], upper[:, k], color=colour, alpha=0.2, linewidth=0.0)
    above.plot(grid, p[:, k], color=colour, label=f"class {k}")
    above.plot(grid, true_probabilities(grid)[:, k], color=colour, linewidth=0.8, linestyle=":")
    rows = train[0][train[1] == k, 0]
    above.plot(rows, np.full(len(rows), -0.06 - 0.04 * k), "|", color=colour, markersize=5)
above.set_ylabel("probability; dotted: the true one")
above.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
below.stackplot(
    grid, aleatoric, epistemic, colors=[BLUE, ORANGE], labels=["aleatoric", "epistemic"]
)
below.set(xlabel="x", ylabel="entropy (nats)")
below.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
plt.show()

# %% [markdown]
# Where the classes overlap the entropy is aleatoric: the model knows that the label is a matter of
# chance. In the gap, and beyond the rows, the epistemic part rises.
#
# The intervals are those of the model, and the model is an approximation: it regresses on targets,
# with one noise for all rows. Here the truth is known, so it can be counted how often they hold it,
# among the rows and where it is neither near zero nor near one:

# %%
truth = true_probabilities(grid)
among = ((grid > -5.0) & (grid < -1.0)) | ((grid > 2.0) & (grid < 5.0))
counted = among[:, None] & (truth > 0.05) & (truth < 0.95)
inside = (lower.numpy() <= truth) & (truth <= upper.numpy())
print(f"intervals of 0.9 that hold the truth: {inside[counted].mean():.2f}")
print(f"mean distance of prediction and truth: {np.abs(p.numpy() - truth)[counted].mean():.3f}")

# %% [markdown]
# They are too short here. Take them for a ranking of what the model knows well and what it does
# not, and not for a guarantee. On the triangle the same is a cloud: narrow where the model is sure
# of π, wide where it is not.

# %%
tf.random.set_seed(0)
figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for ax, x in zip(axes, (-2.4, 0.5, 4.8), strict=True):
    draws = model.predict_probability_samples([[x]], num_samples=300)
    plotting.plot_simplex(draws, ax=ax).set_title(f"x = {x}")
plt.show()

# %% [markdown]
# ## Are the probabilities right?
#
# Probabilities are calibrated if, of the rows that were given 0.8, eight in ten come true. The
# diagram compares the two, in bins of confidence. Few rows in a bin scatter by chance, so the band
# shows where a perfectly calibrated forecaster would be found with the same confidences, in nine
# cases of ten for each bin. A point outside of the band is evidence; one within it is none.
#
# The same fit at three λ. Too small a λ is timid, too large a λ boasts. Leave-one-out chose the one
# in the middle without seeing these rows; it has by far the smallest error and NLL of the three,
# and yet two of its bins lie below their bands: λ scales all probabilities alike, and cannot do
# more.

# %%
test = labelled(np.concatenate([rng.uniform(-5, -1, 800), rng.uniform(2, 5, 400)]), rng)
chosen = model.smoothing
figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", sharey=True)
for ax, smoothing in zip(axes, (0.3, chosen, 0.9999), strict=True):
    model.smoothing = smoothing
    p, _ = model.predict_y(test[0])
    plotting.plot_reliability(p, test[1], ax=ax)
    if ax.get_legend() is not None:
        ax.get_legend().remove()
    error = gi.metrics.expected_calibration_error(p, test[1])
    nll = gi.metrics.negative_log_likelihood(p, test[1])
    ax.set_title(f"λ = {smoothing:.4g}\nECE {error:.3f}, NLL {nll:.3f}")
model.smoothing = chosen
plt.show()

# %% [markdown]
# ## Where are the errors?
#
# Rows in the order of their entropy, and below zero the ones that were predicted wrongly. Errors
# belong to the right: a classifier that is wrong where it is certain has something to hide.

# %%
p, _ = model.predict_y(test[0])
ax = plotting.plot_entropies(
    model.predict_entropy(test[0]), correct=np.argmax(p, axis=1) == test[1]
)
ax.figure.set_size_inches(8, 3.4)
plt.show()

# %% [markdown]
# ## Sets of classes
#
# `predict_set` answers with all classes that the label may be: a set that holds the true class with
# the probability `level`. Unlike the intervals above it does not take the model's word for it. It
# looks at rows with known labels that the prediction has not seen, how ill their true class suited
# them, and leaves out of a new row's set the classes that suit it worse than that (conformal
# prediction). What is promised depends on where these rows come from:
#
# - `"split"`: from `data=(X, y)`, rows that neither training nor calibration has seen. The set holds
#   the true class with probability `level` at least, whatever the model, and with `level` + 1/(N + 1)
#   at most, if no two of the N rows have the same score.
# - `"jackknife+"`: from the training rows, each of which is left out of the model in turn (exact models
#   have that in closed form). At least 2 · `level` − 1; in practice about `level`.
# - `"jackknife"`, the default: from the training rows, each predicted without itself. About `level`, if
#   one row more or less matters little; no guarantee.
#
# All of it is for new rows from the same source as the known ones (*exchangeable* with them), and on
# average over such rows: a set of 0.9 may hold eight labels in ten among difficult rows and all of
# them among easy ones. `class_conditional=True` makes the same promise for the rows of each class
# alone, with larger sets. With N known rows, or N of a class, nothing can be promised above
# N/(N + 1): every class is in the set then.
#
# The jackknives keep the hyperparameters while they leave rows out. If these were trained on the same
# rows, leave-one-out is optimistic and sets may be too small: on Wine, with 90 rows, one lengthscale
# cost nothing, but with one for each of the 13 columns sets of 0.9 held .843 of the labels
# ({doc}`measured`). Where that matters, use `"split"`, or train the kernel on some of the rows and set
# `model.criterion_rows` to the others.
#
# There are two `score`s. `"adaptive"` takes classes in the order of their probability until enough is
# reached. Its sets hold the most probable class, and more than `level` of the labels where that class
# alone is right more often; with a `seed` some classes at the edge are left out by lot, so that
# exactly `level` is reached, and sets may be empty. `"plain"` takes all classes above one
# probability. Its sets are the smallest on average; an empty one says that no class is as probable as
# true ones usually are. Here the three methods are counted on the rows from above:

# %%
validation = labelled(np.concatenate([rng.uniform(-5, -1, 100), rng.uniform(2, 5, 50)]), rng)
print("                        coverage   mean size   share of sets with one class")
for method in ("jackknife", "jackknife+", "split"):
    for score in ("adaptive", "plain"):
        data = validation if method == "split" else None
        sets = posterior.predict_set(test[0], 0.9, method, data, score=score).numpy()
        size, covered = sets.sum(axis=1), sets[np.arange(len(sets)), test[1]]
        print(
            f"{method:>10}, {score:<10} {covered.mean():8.3f} {size.mean():11.2f} "
            f"{np.mean(size == 1):14.2f}"
        )

# %% [markdown]
# Every row of this table is one draw of 180 or 150 known rows, and the coverage of one draw scatters
# by some hundredths around what is promised for the mean of all draws.
#
# ## What they do not mean
#
# - **Calibrated is not accurate.** A forecaster that always says how frequent the classes are is
#   calibrated, and useless. Read the NLL (or the Brier score), which asks for both.
# - **The ECE of few rows is not zero** even for a perfect forecaster: it adds up absolute values of
#   chance. Compare models on the same rows, and look at the band.
# - **Intervals hold given the hyperparameters.** Kernel, noise and λ are point estimates; their own
#   uncertainty is not in the interval, nor is the error of the model itself, as counted above.
# - **A set of 0.9 is not a set for this row.** The promise is an average over rows, and fails with
#   the world: rows from another source may be covered less often.
# - **Far from all rows** the latent functions return to their prior mean, zero: all classes are
#   equally probable there, whatever their frequencies (the last row of the table above).
# - **Other rows than those trained on.** Calibration was checked for rows of the same source. If
#   the world changes, check again; the epistemic entropy warns only of inputs unlike the old ones,
#   not of labels that have come to mean something else.
