"""Serve a model where neither GPflow nor this package is installed: a TensorFlow SavedModel.

The client below runs in a Python process of its own, and needs nothing but TensorFlow. TensorFlow
Serving loads the same directory (``outputs/served``, which has versions by number).
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import gpflow_ilr as gi
from gpflow_ilr.saving import export_saved_model

CLIENT = """
import sys, time
import numpy as np
import tensorflow as tf
from absl import logging

logging.set_verbosity(logging.ERROR)  # it warns that gradients were not exported
predict = tf.saved_model.load(sys.argv[1]).signatures["predict_proba"]
X = tf.constant(np.load(sys.argv[2]))
p = predict(X=X)["probabilities"].numpy()
start = time.perf_counter()
predict(X=X)
milliseconds = 1e3 * (time.perf_counter() - start)
np.save(sys.argv[3], p)
print(f"client: {len(p)} rows in {milliseconds:.1f} ms, gpflow imported: {'gpflow' in sys.modules}")
"""

X, y = load_wine(return_X_y=True)
X, X_test, y, y_test = train_test_split(X, y, train_size=90, random_state=0, stratify=y)
scaler = StandardScaler().fit(
    X
)  # the SavedModel has the GP: what comes before it is yours to serve
X, X_test = scaler.transform(X), scaler.transform(X_test)
model = gi.ILRGPR((X, y), gi.starting_kernel(X, 3), num_classes=3, noise="shared")
gi.training.fit(model)
model.calibrate()

folder = Path("outputs") / "served"
folder.mkdir(parents=True, exist_ok=True)
print(f"exported {export_saved_model(model, folder / '1') / 1e3:.0f} kB to {folder / '1'}")

request, response = folder / "request.npy", folder / "response.npy"
np.save(request, X_test)
subprocess.run([sys.executable, "-c", CLIENT, folder / "1", request, response], check=True)
served, own = np.load(response), model.predict_y(X_test)[0].numpy()
print(f"largest difference from the model's own probabilities: {np.abs(served - own).max():.1e}")
print(f"test accuracy {gi.metrics.accuracy(served, y_test):.3f}", end="  ")
print(f"NLL {gi.metrics.negative_log_likelihood(served, y_test):.3f}")
