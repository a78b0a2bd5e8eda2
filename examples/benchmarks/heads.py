"""Last layers of a network: accuracy, NLL, ECE, seconds, and how well unknown inputs are found.

Eight of ten classes are known; the unknown inputs are the two others, and known rows with shuffled
pixels. AUROC: the probability that an unknown row has a larger entropy (or epistemic entropy) than a
known one. Every contestant has the same number of tries, of which the NLL of validation rows chooses;
the same rows choose temperature, λ, noise and scales. Mean ± standard error over seeds, each with its
own split and networks. Last-layer Laplace is the full Gauss–Newton posterior, written out in
``peers_of_heads.py``, and once more by laplace-torch where that is installed. Data: scikit-learn's
digits, or ``--fashion PATH`` of a subset of Fashion-MNIST (arrays X_train, y_train, X_test, y_test).
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import keras
import laplace_torch
import numpy as np
from peers_of_heads import (
    Predict,
    Prediction,
    dropout,
    ensemble,
    entropy,
    laplace_by_torch,
    last_layer_laplace,
    nll,
    of_logits,
    sngp,
    softmax_network,
    temperature_of,
    trained,
)
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from gpflow_ilr import metrics
from gpflow_ilr.heads.polishing import ROW_WEIGHTS
from gpflow_ilr.keras import ClosedFormHead, ELBOLoss, GPHead, with_earlier_layers

K = 8
KINDS = ("softmax", "ensemble", "dropout", "sngp", "laplace", "layers", "draws", "heads")
MODES = {"elbo": "ELBO", "draw": "draws"}
Rows = tuple[np.ndarray, np.ndarray]


def mlp(spectral: bool = False, rate: float = 0.0) -> Any:
    wrap = keras.layers.SpectralNormalization if spectral else lambda layer: layer
    layers: list[Any] = [keras.layers.Input((64,))]
    for units in (64, 32):
        layers.append(wrap(keras.layers.Dense(units, activation="relu")))
        if rate:
            layers.append(keras.layers.Dropout(rate))
    return keras.Sequential(layers)


def cnn(spectral: bool = False, rate: float = 0.0) -> Any:
    wrap = keras.layers.SpectralNormalization if spectral else lambda layer: layer
    layers: list[Any] = [keras.layers.Input((28, 28, 1))]
    for filters in (16, 32):
        convolution = keras.layers.Conv2D(filters, 3, strides=2, activation="relu", padding="same")
        layers.append(wrap(convolution))
    layers += [keras.layers.Flatten(), wrap(keras.layers.Dense(64, activation="relu"))]
    if rate:
        layers.append(keras.layers.Dropout(rate))
    return keras.Sequential(layers)


def with_gp_layer(
    body: Callable[..., Any], train: Rows, val: Rows, objective: str, rate: float, epochs: int
) -> dict[str, Predict]:
    """A GPHead trained with the network: as it is, or collapsed, then with its scale calibrated."""
    features = body()
    dtype = "float64" if objective == "code" else "float32"
    options = {"num_data": len(train[0]), "gp_dtype": dtype, "objective": objective}
    head = GPHead(K, 50, **options)
    head.adapt(features.predict(train[0], verbose=0))
    model = keras.Sequential([features, head])
    builtin = keras.losses.SparseCategoricalCrossentropy()
    trained(model, *train, rate, epochs, builtin if objective == "draw" else ELBOLoss())

    def layer() -> Predict:
        outputs = head.posterior_layer(("probabilities", "epistemic"))
        whole = keras.Sequential([features, outputs])

        def predict(X: np.ndarray) -> Prediction:
            found = whole.predict(X, verbose=0)
            return found["probabilities"], found["epistemic"]

        return predict

    if objective == "code":
        head.collapse(train, features, validation=val)
        return {"GPHead, code, collapsed": layer()}
    name = f"GPHead, {MODES[objective]}"
    found = {name: layer()}
    head.calibrate(val, features)
    return {**found, f"{name}, calibrated": layer()}


def closed_forms(
    network: Any, train: Rows, val: Rows, steps: int, num_tries: int
) -> dict[str, tuple[Predict, float]]:
    """A head on the trained features, also with earlier layers beside them; seconds of each.

    Each before and after it is polished; the tries are weights of rows that trained the network.
    """
    found = {}
    tries = {"row_weights": ROW_WEIGHTS[:num_tries], "max_steps": steps, "batch_size": 512}
    features = network.layers[0]
    for name, used in {
        "ClosedFormHead": lambda: features,
        "ClosedFormHead, earlier layers": lambda: with_earlier_layers(features, train[0]),
    }.items():
        start = time.perf_counter()
        head = ClosedFormHead(K, 200, network=used(), max_iterations=30)
        head.fit(train, validation=val)
        found[name] = (_attached(head), time.perf_counter() - start)
        print(head.polish(train, validation=val, **tries), flush=True)
        found[f"{name}, polished"] = (_attached(head), time.perf_counter() - start)
    return found


def _attached(head: ClosedFormHead) -> Predict:
    model = head.attach(outputs=("probabilities", "epistemic"))

    def predict(X: np.ndarray) -> Prediction:
        found = model.predict(X, verbose=0)
        return found["probabilities"], found["epistemic"]

    return predict


def best(tries: list[tuple[Predict, float]], val: Rows) -> tuple[Predict, float]:
    """The try with the smallest NLL of the validation rows, and the seconds of all."""
    chosen = min((t[0] for t in tries), key=lambda predict: nll(predict(val[0])[0], val[1]))
    return chosen, sum(t[1] for t in tries)


def contestants(
    body: Callable[..., Any],
    train: Rows,
    val: Rows,
    epochs: int,
    steps: int,
    num_tries: int,
    kinds: Sequence[str],
) -> dict[str, tuple[Predict, float]]:
    """Every contestant of some kinds with the seconds that its training and its tries took."""

    def timed(run: Callable[[], Any]) -> tuple[Any, float]:
        start = time.perf_counter()
        return run(), time.perf_counter() - start

    def best_of(make: Callable[[float], Predict], values: Sequence[float]) -> tuple[Predict, float]:
        return best([timed(lambda value=value: make(value)) for value in values[:num_tries]], val)

    rates = (3e-3, 1e-3, 1e-2)[:num_tries]
    networks = [timed(lambda r=r: softmax_network(body, *train, K, r, epochs)) for r in rates]
    judged = [nll(of_logits(n)(val[0])[0], val[1]) for n, _ in networks]
    network, rate = networks[int(np.argmin(judged))][0], rates[int(np.argmin(judged))]
    seconds = sum(s for _, s in networks)

    def softmaxes() -> dict[str, tuple[Predict, float]]:
        scaled = of_logits(network, temperature_of(network, *val))
        return {
            "softmax": (of_logits(network), seconds),
            "softmax, temperature": (scaled, seconds),
        }

    def ensembles() -> dict[str, tuple[Predict, float]]:
        others, more = timed(
            lambda: [softmax_network(body, *train, K, rate, epochs) for _ in range(4)]
        )
        return {"ensemble of 5": (ensemble([network, *others]), seconds + more)}

    def dropouts() -> dict[str, tuple[Predict, float]]:
        def make(r: float) -> Predict:
            return dropout(softmax_network(lambda: body(rate=r), *train, K, rate, epochs))

        return {"MC dropout": best_of(make, (0.2, 0.1, 0.4))}

    def sngps() -> dict[str, tuple[Predict, float]]:
        return {"SNGP": best_of(lambda s: sngp(body, *train, K, s, epochs), (1.0, 2.0, 0.5))}

    def laplaces() -> dict[str, tuple[Predict, float]]:
        posteriors = {"last-layer Laplace": last_layer_laplace}
        if laplace_torch.is_installed():
            posteriors["last-layer Laplace, laplace-torch"] = laplace_by_torch
        found = {}
        for name, laplace in posteriors.items():
            predict, more = best_of(lambda s, of=laplace: of(network, *train, s), (1.0, 10.0, 3.0))
            found[name] = (predict, seconds + more)
        return found

    def gp_layers(rates_of: dict[str, Sequence[float]]) -> dict[str, tuple[Predict, float]]:
        found = {}
        for objective, values in rates_of.items():
            tries = [
                timed(lambda r=r, o=objective: with_gp_layer(body, train, val, o, r, epochs))
                for r in values[:num_tries]
            ]
            for name in tries[0][0]:
                found[name] = best([(t[name], s) for t, s in tries], val)
        return found

    def layers() -> dict[str, tuple[Predict, float]]:
        return gp_layers({"elbo": (5e-3, 2e-3, 1e-2), "code": (3e-3, 1e-3, 1e-2)})

    def draws() -> dict[str, tuple[Predict, float]]:
        return gp_layers({"draw": (5e-3, 2e-3, 1e-2)})

    def heads() -> dict[str, tuple[Predict, float]]:
        found = closed_forms(network, train, val, steps, num_tries)
        return {name: (predict, seconds + more) for name, (predict, more) in found.items()}

    runs = {
        "softmax": softmaxes,
        "ensemble": ensembles,
        "dropout": dropouts,
        "sngp": sngps,
        "laplace": laplaces,
        "layers": layers,
        "draws": draws,
        "heads": heads,
    }
    found: dict[str, tuple[Predict, float]] = {}
    for kind in kinds:
        found |= runs[kind]()
    return found


def scores(predict: Predict, test: Rows, unknown: dict[str, np.ndarray]) -> list[float]:
    p, epistemic = predict(test[0])
    row = [
        metrics.accuracy(p, test[1]),
        nll(p, test[1]),  # a probability that float32 cannot hold costs 69 nats
        metrics.expected_calibration_error(p, test[1]),
    ]
    for rows in unknown.values():
        q, other = predict(rows)
        is_unknown = np.repeat([0, 1], [len(p), len(q)])
        row.append(roc_auc_score(is_unknown, np.concatenate([entropy(p), entropy(q)])))
        both = None if epistemic is None else np.concatenate([epistemic, other])
        row.append(np.nan if both is None else roc_auc_score(is_unknown, both))
    return row


def split(path: str | None, seed: int, quick: bool) -> tuple[Any, ...]:
    """Training, validation and test rows of the known classes, the unknown ones, and the body."""
    if path is None:
        X, y = load_digits(return_X_y=True)
        X, body = (X / 16.0).astype("float32"), mlp
        known = y < K
        sizes = (160, 80) if quick else (700, 250)
        rest, X_test, y_rest, y_test = train_test_split(
            X[known], y[known], train_size=sum(sizes), random_state=seed, stratify=y[known]
        )
        others = X[~known]
    else:
        with np.load(path) as arrays:
            X, y, X_new, y_new = (arrays[k] for k in ("X_train", "y_train", "X_test", "y_test"))
        X, X_new = (x[..., None].astype("float32") / 255.0 for x in (X, X_new))
        body, sizes = cnn, (300, 100) if quick else (5400, 1200)
        rest, y_rest = X[y < K], y[y < K]
        chosen = np.random.default_rng(seed).permutation(len(rest))[: sum(sizes)]
        rest, y_rest = rest[chosen], y_rest[chosen]
        X_test, y_test, others = X_new[y_new < K], y_new[y_new < K], X_new[y_new >= K]
    X_train, X_val, y_train, y_val = train_test_split(
        rest, y_rest, train_size=sizes[0], random_state=seed, stratify=y_rest
    )
    flat = X_test.reshape(len(X_test), -1)
    shuffled = np.random.default_rng(seed).permuted(flat, axis=1).reshape(X_test.shape)
    unknown = {"unseen classes": others, "shuffled pixels": shuffled}
    return body, (X_train, y_train), (X_val, y_val), (X_test, y_test), unknown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows, to see that it runs")
    parser.add_argument("--fashion", metavar="PATH", help="an .npz file instead of digits")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--spectral", action="store_true", help="spectral normalisation for all")
    parser.add_argument("--tries", type=int, default=3, help="of each contestant, at most 3")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="of contestants")
    options = parser.parse_args()
    epochs, steps = (2, 5) if options.quick else (40 if options.fashion is None else 12, 300)
    seeds, num_tries = (1, 1) if options.quick else (options.seeds, options.tries)
    results: dict[str, list[list[float]]] = {}
    for seed in range(seeds):
        keras.utils.set_random_seed(seed)
        body, train, val, test, unknown = split(options.fashion, seed, options.quick)
        body = partial(body, spectral=True) if options.spectral else body
        for name, (predict, seconds) in contestants(
            body, train, val, epochs, steps, num_tries, options.only
        ).items():
            row = [*scores(predict, test, unknown), seconds]
            results.setdefault(name, []).append(row)
            print(f"seed {seed} {name:<26}", *(f"{x:.4f}" for x in row), flush=True)
    print("\n| last layer | accuracy | NLL | ECE | AUROC unseen: entropy, epistemic | "
          "AUROC noise: entropy, epistemic | seconds |\n|---|---|---|---|---|---|---|")  # fmt: skip
    for name, rows in results.items():
        mean = np.mean(rows, axis=0)
        error = np.std(rows, axis=0, ddof=1 if seeds > 1 else 0) / np.sqrt(seeds)
        cells = [f"{m:.3f} ± {e:.3f}" for m, e in zip(mean[:3], error[:3], strict=True)]
        pairs = [f"{mean[i]:.3f} ± {error[i]:.3f}, {mean[i + 1]:.3f}" for i in (3, 5)]
        print(f"| {name} | " + " | ".join([*cells, *pairs]) + f" | {mean[-1]:.0f} |")


if __name__ == "__main__":
    main()
