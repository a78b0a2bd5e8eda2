"""Which method a model is trained by, and what its options may be."""

from __future__ import annotations

from typing import Any, Literal, cast

from gpflow.base import Parameter

from gpflow_ilr.inputs.counts import check_count, number_or_nan

__all__ = ["Method", "check_limits", "check_lengths", "chosen_method"]

Method = Literal["auto", "l-bfgs", "adam", "natural"]
_METHODS = ("auto", "l-bfgs", "adam", "natural")


def chosen_method(method: str, model: Any, has_minibatches: bool) -> Method:
    """The method, or the one that suits the model.

    :param method: its name, or ``"auto"``.
    :param model: the model.
    :param has_minibatches: whether its loss is of other rows at each step.
    :raises ValueError: if there is no such method, or it does not suit.
    """
    if method not in _METHODS:
        raise ValueError(f"method must be one of {', '.join(_METHODS)}, but is {method!r}.")
    if method == "l-bfgs" and has_minibatches:
        raise ValueError(
            "method='l-bfgs' needs the same rows at each step, but there are minibatches. Pass arrays "
            "without batch_size, or method='adam' or 'natural'."
        )
    q_mu, q_sqrt = (getattr(model, name, None) for name in ("q_mu", "q_sqrt"))
    has_q = isinstance(q_mu, Parameter) and isinstance(q_sqrt, Parameter)
    is_full = has_q and model.q_sqrt.shape.rank == 3
    if method == "natural" and not is_full:
        lack = "q_sqrt is diagonal: build it with q_diag=False" if has_q else "there is no q_mu"
        raise ValueError(
            f"method='natural' needs a full q(u), but in {type(model).__name__} {lack}. Else use "
            "method='adam'."
        )
    if method == "auto":
        method = ("natural" if is_full else "adam") if has_minibatches else "l-bfgs"
    return cast("Method", method)


def check_limits(
    max_iterations: int, check_every: int, patience: int, max_seconds: float | None
) -> None:
    """Refuse limits that cannot be.

    :param max_iterations: of the steps.
    :param check_every: steps between looks.
    :param patience: looks without a gain.
    :param max_seconds: None for no limit.
    :raises ValueError: if one is out of its range.
    """
    check_count("max_iterations", max_iterations)
    check_count("check_every", check_every)
    check_count("patience", patience)
    if max_seconds is not None and not number_or_nan(max_seconds) > 0.0:
        raise ValueError(
            f"max_seconds must be positive, or None for no limit, but is {max_seconds!r}."
        )


def check_lengths(natural_step: float, learning_rate: float) -> None:
    """Refuse steps that have no sensible length.

    :param natural_step: of natural gradients.
    :param learning_rate: of Adam.
    :raises ValueError: if one is out of its range.
    """
    if not 0.0 < number_or_nan(natural_step) <= 1.0:
        raise ValueError(f"natural_step must be in (0, 1], but is {natural_step!r}. Try 0.1.")
    if not number_or_nan(learning_rate) > 0.0:
        raise ValueError(f"learning_rate must be positive, but is {learning_rate!r}. Try 0.01.")
