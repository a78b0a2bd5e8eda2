# %% [markdown]
# # For users of Keras
#
# `GPHead` is a layer: a sparse GP classifier on the features that the network before it computes
# (`pip install -e '.[keras]'`; `gpflow_ilr.tf_keras` has the same names for tf_keras).

# %%
import keras
import numpy as np

from gpflow_ilr.keras import ELBOLoss, GPHead

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
X = rng.normal(size=(200, 2))
y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)  # classes 0, 1, 2
X_test = rng.normal(size=(500, 2))
y_test = (X_test[:, 0] > 0).astype(int) + (X_test[:, 1] > 0)

features = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(16, activation="relu")])
head = GPHead(num_classes=3, num_inducing=20, num_data=len(X))
head.adapt(features.predict(X, verbose=0))  # inducing inputs and lengthscale
network = keras.Sequential([features, head])
network.compile(keras.optimizers.Adam(5e-3), loss=ELBOLoss(), metrics=["accuracy"])
history = network.fit(X, y, batch_size=50, epochs=40, verbose=0)
network.predict(X_test[:3], verbose=0).round(3)

# %% [markdown]
# The training loss is −ELBO/N; `evaluate` reports the NLL of the predicted probabilities:

# %%
network.evaluate(X_test, y_test, verbose=0, return_dict=True)

# %% [markdown]
# In ELBO mode any other loss than `ELBOLoss` is refused, because built-in cross-entropies normalise
# what they are given and so forget the uncertainty. `GPHead(objective="draw")` works with built-in
# losses.
