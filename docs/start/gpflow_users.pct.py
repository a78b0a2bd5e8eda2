# %% [markdown]
# # For users of GPflow
#
# Every model here is a GPflow model: `training_loss_closure`, `gpflow.optimizers`, `print_summary`,
# `set_trainable`, priors, `posterior()`, `predict_f` and `predict_y` work as you know them.
#
# In your own model, `ILRLikelihood(K)` stands where `Softmax(K)` stood, with one latent GP less:

# %%
import gpflow
import numpy as np

import gpflow_ilr as gi

rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)  # classes 0, 1, 2
X_test = rng.normal(size=(500, 2))
y_test = (X_test[:, 0] > 0).astype(int) + (X_test[:, 1] > 0)
Z = gi.kmeans_plusplus(X, 20)

svgp = gpflow.models.SVGP(
    gpflow.kernels.SquaredExponential(),
    gi.ILRLikelihood(num_classes=3),
    Z,
    num_latent_gps=2,
    num_data=len(X),
)
print(gi.training.fit(svgp, (X, y), max_iterations=50))

# %% [markdown]
# Or take a model in closed form. There is no q(u) to train, the objective is the evidence of a
# regression, and the smoothing λ is chosen afterwards, from the same fit:

# %%
model = gi.ILRGPR((X, y), gi.starting_kernel(X, 3), num_classes=3)
print(gi.training.fit(model))
print(model.calibrate())

# %%
for name, p in {"SVGP": svgp.predict_y(X_test)[0], "ILRGPR": model.predict_y(X_test)[0]}.items():
    print(f"{name:<7} NLL of test rows {gi.metrics.negative_log_likelihood(p, y_test):.3f}")

# %%
gpflow.utilities.print_summary(model, "notebook")

# %% [markdown]
# The kernel describes f/L, where L is the sharpness of the code, so `starting_kernel` gives it the
# variance 1/K and not that of logits ({doc}`../idea`). `num_classes` is always explicit; labels are
# [N] or [N, 1] integers, or rows [N, K]. `training.fit` also takes minibatches, natural gradients,
# validation rows, `gpflow.monitor` and a checkpoint, from which a killed training goes on: see
# {func}`gpflow_ilr.training.fit`.
