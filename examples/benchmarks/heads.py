"""Last layers of a network: accuracy, NLL, ECE, seconds, and how well unknown inputs are found.

Eight of ten classes are known; the unknown inputs are the two others, and known rows with shuffled
pixels. AUROC: the probability that an unknown row has a larger entropy (or epistemic entropy) than a
known one. Every setting of a contestant (``SETTINGS``) has the same number of tries, of which the NLL
of validation rows chooses; the same rows choose temperature, λ, noise and scales. Mean ± standard error
over seeds, each with its own split and networks. Last-layer Laplace is the full Gauss–Newton posterior,
written out in ``peers_of_heads.py``, and once more by laplace-torch where that is installed. Data:
scikit-learn's digits, or ``--fashion PATH`` of a subset of Fashion-MNIST (arrays X_train, y_train,
X_test, y_test). ``--json FILE`` keeps a line for each seed and contestant, and goes on where it was
stopped; ``--report FILE ...`` prints the tables of such files.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import keras
import laplace_torch
import numpy as np
from choosing import Found, Predict, Prediction, chosen, clock
from machine import machine, now
from peers_of_heads import (
    dropout,
    ensemble,
    laplace_by_torch,
    last_layer_laplace,
    of_logits,
    sngp,
    sngp_layer,
    softmax_network,
    temperature_of,
    trained,
    with_new_layer,
)
from scores_of_heads import kept, scores, tables
from sets_of_heads import K, Rows, split

from gpflow_ilr.heads.polishing import ROW_WEIGHTS
from gpflow_ilr.keras import ClosedFormHead, ELBOLoss, GPHead, with_earlier_layers

KINDS = {
    "softmax": ("softmax", "softmax, temperature"),
    "heads": (
        "ClosedFormHead",
        "ClosedFormHead, polished",
        "ClosedFormHead, earlier layers",
        "ClosedFormHead, earlier layers, polished",
    ),
    "laplace": ("last-layer Laplace", "last-layer Laplace, earlier layers"),
    "torch": ("last-layer Laplace, laplace-torch",),
    "sngp": ("SNGP", "SNGP, earlier layers"),
    "layers": ("GPHead, ELBO", "GPHead, ELBO, calibrated", "GPHead, code, collapsed"),
    "ensemble": ("ensemble of 5",),
    "dropout": ("MC dropout",),
    "draws": ("GPHead, draws", "GPHead, draws, calibrated"),
}
PACKAGES = ("gpflow_ilr", "gpflow", "tensorflow", "keras", "numpy", "scikit-learn", "torch")
RATES, SHARES = (3e-3, 1e-3, 1e-2), (1.0, 0.5, 2.0)
LAPLACE = {"precision": (1.0, 0.1, 10.0)}
SNGP = {"rate": RATES, "lengthscale": (1.0, 2.0, 0.5)}
BESIDE = {"share": SHARES, "rate": RATES}  # earlier layers, and a layer of logits on all features
SETTINGS: dict[str, dict[str, Sequence[float]]] = {
    "softmax": {"rate": RATES},
    "ClosedFormHead, earlier layers": {"share": SHARES},
    "last-layer Laplace": LAPLACE,
    "last-layer Laplace, earlier layers": {**BESIDE, **LAPLACE},
    "last-layer Laplace, laplace-torch": LAPLACE,
    "SNGP": SNGP,
    "SNGP, earlier layers": {**BESIDE, "lengthscale": SNGP["lengthscale"]},
    "MC dropout": {"drop": (0.2, 0.1, 0.4)},
    "GPHead, ELBO": {"rate": (5e-3, 2e-3, 1e-2)},
    "GPHead, code": {"rate": RATES},
    "GPHead, draws": {"rate": (5e-3, 2e-3, 1e-2)},
}
MODES = {"elbo": "GPHead, ELBO", "code": "GPHead, code", "draw": "GPHead, draws"}


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
        return _two_outputs(keras.Sequential([features, outputs]))

    name = MODES[objective]
    if objective == "code":
        head.collapse(train, features, validation=val)
        return {f"{name}, collapsed": layer()}
    found = {name: layer()}
    head.calibrate(val, features)
    return {**found, f"{name}, calibrated": layer()}


def closed_forms(features: Any, train: Rows, val: Rows, steps: int, tries: int) -> dict[str, Found]:
    """A head on trained features, also with earlier layers beside them; before and after polishing.

    Polishing tries weights of rows that trained the network. Seconds are from the features on.
    """

    def fitted(share: float | None = None) -> tuple[Predict, ClosedFormHead]:
        used = features if share is None else with_earlier_layers(features, train[0], share=share)
        head = ClosedFormHead(K, 200, network=used, max_iterations=30)
        head.fit(train, validation=val)
        return _attached(head), head

    found = {}
    for name in ("ClosedFormHead", "ClosedFormHead, earlier layers"):
        start = clock()
        found[name] = chosen(fitted, val, tries, **SETTINGS.get(name, {}))
        head = found[name].made
        weights = {"row_weights": ROW_WEIGHTS[:tries], "max_steps": steps, "batch_size": 512}
        done = head.polish(train, validation=val, **weights)
        print(done, flush=True)
        settings = {**found[name].settings, "row_weight": done.row_weight, "kept": done.kept}
        found[f"{name}, polished"] = Found(_attached(head), clock() - start, settings)
    return found


def _attached(head: ClosedFormHead) -> Predict:
    return _two_outputs(head.attach(outputs=("probabilities", "epistemic")))


def _two_outputs(model: Any) -> Predict:
    def predict(X: np.ndarray) -> Prediction:
        found = model.predict(X, verbose=0)
        return found["probabilities"], found["epistemic"]

    return predict


@dataclass(eq=False)
class Contest:
    """Contestants by kind, on one split. Each kind has random numbers of its own, whoever else runs."""

    body: Callable[..., Any]
    train: Rows
    val: Rows
    epochs: int
    steps: int
    tries: int
    seed: int = 0
    precisions: Sequence[float] = LAPLACE["precision"]

    def run(self, kind: str) -> dict[str, Found]:
        """The contestants of a kind, with all seconds that their training and their tries took."""
        runs: dict[str, Callable[[], dict[str, Found]]] = {
            "softmax": self._softmaxes,
            "heads": self._heads,
            "laplace": self._laplaces,
            "torch": self._laplace_torch,
            "sngp": self._sngps,
            "layers": lambda: {**self._gp_layers("elbo"), **self._gp_layers("code")},
            "ensemble": self._ensembles,
            "dropout": self._dropouts,
            "draws": lambda: self._gp_layers("draw"),
        }
        before = self._network.seconds  # which is trained by now
        keras.utils.set_random_seed(zlib.crc32(f"{self.seed} {kind}".encode()))
        found = runs[kind]()
        if kind in ("heads", "laplace", "torch", "ensemble", "dropout"):  # go on from its tries
            return {name: f._replace(seconds=f.seconds + before) for name, f in found.items()}
        return found

    def _choose(self, name: str, make: Callable[..., tuple[Predict, Any]]) -> Found:
        settings = dict(SETTINGS[name])
        if "precision" in settings:
            settings["precision"] = self.precisions
        return chosen(make, self.val, self.tries, **settings)

    @cached_property
    def _network(self) -> Found:
        keras.utils.set_random_seed(self.seed)

        def make(rate: float) -> tuple[Predict, Any]:
            network = softmax_network(self.body, *self.train, K, rate, self.epochs)
            return of_logits(network), network

        return self._choose("softmax", make)

    def _softmaxes(self) -> dict[str, Found]:
        network = self._network
        scaled = of_logits(network.made, temperature_of(network.made, *self.val))
        return {"softmax": network, "softmax, temperature": network._replace(predict=scaled)}

    def _heads(self) -> dict[str, Found]:
        features = self._network.made.layers[0]
        return closed_forms(features, self.train, self.val, self.steps, self.tries)

    def _laplaces(self) -> dict[str, Found]:
        @cache
        def on_both(share: float, rate: float) -> Any:
            both = with_earlier_layers(self._network.made.layers[0], self.train[0], share=share)
            return with_new_layer(both, *self.train, K, rate, self.epochs)

        def beside(share: float, rate: float, precision: float) -> tuple[Predict, None]:
            return last_layer_laplace(on_both(share, rate), *self.train, precision), None

        name = "last-layer Laplace, earlier layers"
        return {
            **self._laplace("last-layer Laplace", last_layer_laplace),
            name: self._choose(name, beside),
        }

    def _laplace_torch(self) -> dict[str, Found]:
        return self._laplace("last-layer Laplace, laplace-torch", laplace_by_torch)

    def _laplace(self, name: str, of: Callable[..., Predict]) -> dict[str, Found]:
        fixed = partial(of, self._network.made, *self.train)
        return {name: self._choose(name, lambda precision: (fixed(precision), None))}

    def _sngps(self) -> dict[str, Found]:
        def make(rate: float, lengthscale: float) -> tuple[Predict, Any]:
            return sngp(self.body, *self.train, K, rate, lengthscale, self.epochs)

        def beside(share: float, rate: float, lengthscale: float) -> tuple[Predict, None]:
            both = with_earlier_layers(alone.made, self.train[0], share=share)
            return sngp_layer(both, *self.train, K, rate, lengthscale, self.epochs), None

        alone = self._choose("SNGP", make)
        name = "SNGP, earlier layers"
        found = self._choose(name, beside)
        return {"SNGP": alone, name: found._replace(seconds=alone.seconds + found.seconds)}

    def _gp_layers(self, objective: str) -> dict[str, Found]:
        start, name = clock(), MODES[objective]

        @cache
        def layers(rate: float) -> dict[str, Predict]:
            return with_gp_layer(self.body, self.train, self.val, objective, rate, self.epochs)

        found = {
            each: self._choose(name, lambda rate, each=each: (layers(rate)[each], None))
            for each in layers(SETTINGS[name]["rate"][0])
        }
        return {each: f._replace(seconds=clock() - start) for each, f in found.items()}

    def _ensembles(self) -> dict[str, Found]:
        start, rate = clock(), self._network.settings["rate"]
        more = [softmax_network(self.body, *self.train, K, rate, self.epochs) for _ in range(4)]
        predict = ensemble([self._network.made, *more])
        return {"ensemble of 5": Found(predict, clock() - start, {"rate": rate})}

    def _dropouts(self) -> dict[str, Found]:
        rate = self._network.settings["rate"]

        def make(drop: float) -> tuple[Predict, None]:
            body = partial(self.body, rate=drop)
            return dropout(softmax_network(body, *self.train, K, rate, self.epochs)), None

        return {"MC dropout": self._choose("MC dropout", make)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rows, to see that it runs")
    parser.add_argument("--fashion", metavar="PATH", help="an .npz file instead of digits")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--spectral", action="store_true", help="spectral normalisation for all")
    parser.add_argument("--tries", type=int, default=3, help="of each setting, at most 3")
    parser.add_argument("--precisions", type=float, nargs="+", metavar="P", help="Laplace's tries")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS, help="of contestants")
    parser.add_argument("--json", type=Path, metavar="FILE", help="to keep results, and to go on")
    parser.add_argument(
        "--report", type=Path, nargs="+", metavar="FILE", help="print tables of these"
    )
    options = parser.parse_args()
    order = [name for names in KINDS.values() for name in names]
    if options.report:
        print(tables([line for path in options.report for line in kept(path).lines], order))
        return
    with tempfile.TemporaryDirectory() as nowhere:
        lines = kept(options.json or Path(nowhere) / "heads.jsonl")
        measure(options, lines)
        print("\n" + tables(lines.lines, order))


def measure(options: argparse.Namespace, lines: Any) -> None:
    """Add a line for each seed and contestant that has none, and print its scores."""
    epochs, steps = (2, 5) if options.quick else (40 if options.fashion is None else 12, 300)
    seeds, tries = (1, 1) if options.quick else (options.seeds, options.tries)
    precisions = options.precisions or ()
    name = "digits" if options.fashion is None else "Fashion-MNIST"
    for word, differs in {
        "quick": options.quick,
        "spectral normalisation": options.spectral,
        f"Laplace's precisions {', '.join(f'{p:g}' for p in precisions)}": precisions,
        f"{tries} tries": not options.quick and tries != 3,
    }.items():
        name += f", {word}" if differs else ""
    kinds = [k for k in options.only if k != "torch" or laplace_torch.is_installed()]
    measured_on = machine(PACKAGES)
    for seed in range(seeds):
        of = {"set": name, "seed": seed}
        left = [k for k in kinds if any({**of, "contestant": c} not in lines for c in KINDS[k])]
        if not left:
            continue
        body, train, val, test, unknown = split(options.fashion, seed, options.quick)
        body = partial(body, spectral=True) if options.spectral else body
        contest = Contest(body, train, val, epochs, steps, tries, seed)
        contest.precisions = precisions or contest.precisions
        for kind in left:
            for contestant, found in contest.run(kind).items():
                row = scores(found.predict, test, unknown)
                lines.add(
                    {**of, "contestant": contestant, **row, "seconds": round(found.seconds, 2)}
                    | {"settings": found.settings, "date": now()}
                    | {
                        key: measured_on[key]
                        for key in ("processor", "cores", "versions", "commit")
                    }
                )
                numbers = ("–" if x is None else f"{x:.4f}" for x in row.values())
                print(f"seed {seed} {contestant:<40}", *numbers, flush=True)


if __name__ == "__main__":
    main()
