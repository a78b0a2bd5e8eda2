# %% [markdown]
# # For users of Keras
#
# A GP at the end of a network: put there afterwards (`ClosedFormHead`), or trained with it
# (`GPHead`). Both are sparse GP classifiers on the features that the network computes, and know
# what they have not seen (`pip install -e '.[keras]'`; `gpflow_ilr.tf_keras` has the same names for
# tf_keras).

# %%
import keras
import numpy as np

from gpflow_ilr.keras import ClosedFormHead, ELBOLoss, GPHead, feature_network

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)


def rows(count):
    X = rng.normal(size=(count, 2)).astype("float32")
    return X, (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)  # classes 0, 1, 2


(X, y), (X_val, y_val), (X_test, y_test) = rows(200), rows(100), rows(500)


def body():
    return keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(16, activation="relu")])


# %% [markdown]
# ## A network that is trained already
#
# The network stays as it is. One pass over the rows collects sums of its features; λ and noise are
# chosen by rows that it has not seen.

# %%
network = keras.Sequential([body(), keras.layers.Dense(3, activation="softmax")])
network.compile(keras.optimizers.Adam(1e-2), loss="sparse_categorical_crossentropy")
network.fit(X, y, batch_size=50, epochs=20, verbose=0)

head = ClosedFormHead(3, num_inducing=20, network=feature_network(network))
print(head.fit((X, y), validation=(X_val, y_val)))

# %% [markdown]
# `attach` makes an ordinary Keras model: `predict`, `save`, `load_model`, `export`. On request it
# says where the uncertainty comes from; the epistemic part is large for inputs unlike those of the
# training.

# %%
with_head = head.attach(outputs=("probabilities", "epistemic"))
near, far = with_head.predict(X_test, verbose=0), with_head.predict(20.0 + X_test, verbose=0)
print(near["epistemic"].mean(), far["epistemic"].mean())

# %% [markdown]
# New rows are added without a new fit, and the result is that of all rows at once. Weights of rows go
# with them, `head.fit((X, y, weights))` and `head.update(X, y, sample_weight=...)`, also in batches of
# a `tf.data.Dataset` and for validation rows: a row of weight 2 counts as two rows, one of weight 0 as
# none. `head.update(X, y, num_classes=4)` adds a class, which a later `fit` keeps. Where classes
# overlap, `head.polish((X, y), validation=(X_val, y_val))` goes on with the exact likelihood. Rows
# that trained the network say less than they seem to, so it tries what each should count for
# (`row_weights`), and keeps the best only if the NLL of the validation rows gains more than its
# standard error: print what it returns. `network` may be any function from a batch to features;
# without one, rows are features; one with several inputs is given them as a dictionary or tuple.
# `kernel="Linear"` is a Bayesian last layer.
#
# A process that loads an attached model imports this package first, `import gpflow_ilr.keras`, or Keras
# does not know the class `PosteriorHead`. Such a model predicts, but has not the sums that `update`,
# `calibrate` and `polish` go on from: `head.save(path)` keeps those, and `ClosedFormHead.load(path,
# network=feature_network(network))` is the head again, with the network that Keras has saved.
#
# A network maps some inputs that are like nothing it knows among the features of its training rows:
# shuffled images, for example. `with_earlier_layers` puts averages of its earlier layers beside the
# features, and a head of both finds more of them: `ClosedFormHead(3,
# network=with_earlier_layers(feature_network(network), X))`, for networks with more than one layer
# before the last (`docs/measured.md` has what it does on images). Layers of a model inside, such as a
# backbone from `keras.applications`, are found as well; of a hundred of them name a few.

# %%
head.update(X_val[:50], y_val[:50])
network_with_head = head.attach()
network_with_head.predict(X_test[:3], verbose=0).round(3)

# %% [markdown]
# ## A layer that is trained
#
# `GPHead` is a layer. With `objective="code"` it is trained on pseudo-targets in closed form, and
# `collapse` replaces its posterior by the optimum over all rows.

# %%
features = body()
layer = GPHead(num_classes=3, num_inducing=20, num_data=len(X), objective="code")
layer.adapt(features.predict(X, verbose=0))  # inducing inputs and lengthscale
network = keras.Sequential([features, layer])
network.compile(keras.optimizers.Adam(5e-3), loss=ELBOLoss(), metrics=["accuracy"])
network.fit(X, y, batch_size=50, epochs=20, verbose=0)
layer.collapse((X, y), features, validation=(X_val, y_val))
network.evaluate(X_test, y_test, verbose=0, return_dict=True)

# %% [markdown]
# The default, `objective="elbo"`, has the exact likelihood. Its training loss is −ELBO/N;
# `evaluate` reports the NLL of the predicted probabilities. `calibrate` chooses the scale of its
# latents by validation rows, as temperature scaling does, but through the predictive integral.

# %%
features = body()
layer = GPHead(num_classes=3, num_inducing=20, num_data=len(X))
layer.adapt(features.predict(X, verbose=0))
network = keras.Sequential([features, layer])
network.compile(keras.optimizers.Adam(5e-3), loss=ELBOLoss(), metrics=["accuracy"])
network.fit(X, y, batch_size=50, epochs=20, verbose=0)
print(layer.calibrate((X_val, y_val), features))
print(layer.predict_entropy(features.predict(X_test[:3], verbose=0)))

# %% [markdown]
# On digits this layer, before it was calibrated, found unseen classes better than any other head of
# the features alone. `ClosedFormHead` had the better NLL, and with earlier layers beside the features
# it finds them as well (`docs/measured.md`, also of images, where Laplace with earlier layers finds
# more of them by epistemic entropy, at a worse NLL).
#
# `posterior_layer(outputs=...)` is the head as it is now, as a layer that is not trained and has
# further outputs. `sample_weight` and `class_weight` of `fit` count rows as often as they say.
# `compile(jit_compile=True)`, which is what Keras 3 chooses by itself on a GPU, changes no result;
# compiling a step of the ELBO of ten classes takes some five to nine seconds of processor time instead
# of one, and `jit_compile=False` spares them. With `objective="draw"` XLA has draws of its own.
#
# In these two modes any other loss than `ELBOLoss` is refused, because built-in cross-entropies
# normalise what they are given and so forget the uncertainty; `objective="draw"` works with
# built-in losses. A loop of your own needs `loss_fn(y, model(X, training=True)) +
# sum(model.losses)`: without the losses, which hold the KL term, the next call of the head refuses
# to go on.
