"""A model of any class, from awkward data and, where it is asked for, awkward options."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import gpflow_ilr as gi
from tests.fuzz import awkward
from tests.fuzz.answers import Draw, predicted

__all__ = ["KEEP_ROWS", "NEIGHBOURS", "SAMPLED", "SPARSE", "VARIATIONAL", "Built"]

NEIGHBOURS = [gi.ILRNNGPR, gi.DirichletNNGPR]
KEEP_ROWS = [gi.ILRGPR, gi.DirichletGPR, *NEIGHBOURS]
SPARSE = [gi.ILRSGPR, gi.DirichletSGPR]
VARIATIONAL = [gi.ILRSVGP, gi.SoftmaxSVGP, gi.CodeSVGP]
SAMPLED = [gi.LogisticSoftmaxGP, gi.BijectiveSoftmaxGP]
FAST = [gi.ILRGPR, gi.ILRSGPR, gi.ILRNNGPR, *VARIATIONAL]
"""Whose cost hardly grows with the number of classes."""
NOISES = st.sampled_from(["fixed", "fixed", "per_output", "per_class"])


class Built:
    """A model that could be built, with the sizes that its inputs are about.

    :param draw: draws from strategies.
    :param cls: which class.
    :param with_options: whether what has a default is given, too.
    """

    def __init__(self, draw: Draw, cls: Any, with_options: bool = False) -> None:
        self.draw, self.K = draw, draw(awkward.CLASSES)
        noise = draw(NOISES)
        if self.K == 1000 and (cls not in FAST or noise == "per_output"):
            self.K = 20  # a factor for each output, or a sweep for each class
        self.N, self.D = draw(awkward.SIZES), draw(st.sampled_from([1, 2, 2, 3]))
        kernel = draw(awkward.kernels(self.D))
        options = self._options(cls) if with_options else {}
        if cls in VARIATIONAL:
            self.model = self._variational(cls, kernel, options)
            return
        w = draw(awkward.weights(self.N))
        data = (*self.rows(), w) if w is not None else self.rows()
        if cls in SAMPLED:
            self.model = cls(data, kernel, num_classes=self.K, **options)
            self.model.sample(num_samples=2, num_burnin=1, num_chains=2)
            return
        options |= {"noise": noise, "num_classes": self.K}
        if cls in NEIGHBOURS:
            options["num_neighbours"] = draw(st.sampled_from([1, 2, 4, 64]))
        Z = [draw(awkward.inducing(self.D))] if cls in SPARSE else []
        self.model = cls(data, kernel, *Z, **options)

    def _variational(self, cls: Any, kernel: Any, options: dict[str, Any]) -> Any:
        draw, Z = self.draw, self.draw(awkward.inducing(self.D))
        options = {"num_data": self.N, "whiten": draw(st.booleans())} | options
        if cls is not gi.CodeSVGP:
            return cls(kernel, Z, num_classes=self.K, **options)
        code = draw(st.sampled_from([gi.ILRCode, gi.DirichletCode]))(self.K)
        return cls(kernel, Z, code, **options)

    def _options(self, cls: Any) -> dict[str, Any]:
        """What has a default, drawn; each is wrong now and then."""
        K = self.K if type(self.K) is int else 3
        latents = K - ("ILR" in cls.__name__ or cls is gi.BijectiveSoftmaxGP)
        options = {"mean_function": awkward.mean_functions(latents)}
        if cls in SAMPLED:
            scalings = [None, np.ones(max(K, 0)), [1.0, 1e30, 1.0], [1, 0, 1], [1.0], "a"]
            return self._drawn(options | {"class_scaling": st.sampled_from(scalings)})
        options["nodes"] = awkward.nodes()
        if cls in VARIATIONAL:
            options["q_diag"] = st.booleans()
            options["num_data"] = st.sampled_from([6, 6, 1, 10**9, None, 0, "6"])
            if cls is not gi.CodeSVGP:
                options["num_latent_gps"] = st.sampled_from([None, None, 1, 2, 0, 2.5, 2000])
                options["mixing"] = st.sampled_from([None, True, False, np.ones((2, 1)), "yes"])
            return self._drawn(options)
        if "Dirichlet" in cls.__name__:
            options["alpha_epsilon"] = awkward.NUMBERS
        else:
            options |= {"smoothing": awkward.NUMBERS, "tolerance": awkward.NUMBERS}
            options["noise_variance"] = st.one_of(st.none(), awkward.NUMBERS)
        if cls not in NEIGHBOURS:
            options["objective"] = st.sampled_from(["evidence", "loo", "loss", None])
        if cls in SPARSE:
            options["chunk_size"] = st.sampled_from([None, 1, 2, 1000, 0, "1"])
        return self._drawn(options)

    def _drawn(self, options: dict[str, Any]) -> dict[str, Any]:
        """One or two of the options: of more, nearly all would be refused."""
        names = self.draw(st.lists(st.sampled_from(sorted(options)), max_size=2, unique=True))
        return {name: self.draw(options[name]) for name in names}

    def rows(self) -> tuple[Any, Any]:
        """Rows and labels like those of the model, or not."""
        X = self.draw(awkward.rows(self.N, self.D))
        return X, self.draw(awkward.labels(self.N, self.K))

    def new(self) -> Any:
        """New rows, whose columns may be others."""
        D = self.draw(st.sampled_from([self.D, self.D, self.D, self.D, self.D + 1]))
        return self.draw(awkward.rows(self.draw(awkward.SIZES), D))

    def probabilities(self) -> Any:
        """What the model predicts for new rows."""
        return predicted(self.model.predict_y(self.new()))
