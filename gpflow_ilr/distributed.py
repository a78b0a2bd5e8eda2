"""Training on many devices and many machines, with any ``tf.distribute`` strategy.

Each worker holds its own rows; its devices (replicas) divide them. :func:`training_loss_closure` is
the loss of *all* rows: value and gradient are summed over the replicas, so that they have the same
bits on every worker. Each worker then runs the same program with the same optimiser (``Scipy``, Adam,
natural gradients), and all take the same steps in lock-step.

- Collapsed models: with statistics s_r of the rows of replica r, the bound is b(Σ_r s_r(θ), θ). An
  all-reduce sums the statistics inside the gradient tape, each replica computes the bound of the sum
  and takes a share 1/R of it. The adjoint of an all-sum is an all-sum, which gives every replica the
  whole adjoint of its own statistics: the gradients of the replicas sum to the gradient of the bound.
- Minibatches: the ELBO of a batch is linear in its rows, so that replicas with n_r of n rows sum to
  the loss of the whole batch with weights n_r/n.

Models are built as on one machine. Outside ``strategy.scope()`` they have ordinary variables and can
be saved with :func:`gpflow_ilr.saving.save`; variables created inside the scope work as well.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf

from gpflow_ilr.collapsed.statistics import GroupStatistics, Rows
from gpflow_ilr.inputs.rows import LabelledData
from gpflow_ilr.models.collapsed import CollapsedClassifier
from gpflow_ilr.models.svgp import ClassifierSVGP

__all__ = ["training_loss_closure", "share_statistics", "synchronise", "sum_over_workers"]


def training_loss_closure(
    model: CollapsedClassifier | ClassifierSVGP,
    strategy: tf.distribute.Strategy,
    data: LabelledData | Iterator[LabelledData] | None = None,
    variables: Sequence[tf.Variable] | None = None,
    compile: bool = True,  # noqa: A002 - GPflow's name
) -> Callable[[], tf.Tensor]:
    """The training loss of the rows of all workers, for every optimiser that GPflow has.

    All workers must call it, and then the closure, equally often. The model starts from the first
    worker's values on all of them, as variables that a strategy creates do.

    :param model: a collapsed model of this worker's rows, or an uncollapsed one with ``num_data`` set
        to the number of rows of all workers.
    :param strategy: ``MirroredStrategy``, ``MultiWorkerMirroredStrategy``, or
        ``tf.distribute.get_strategy()`` for one device.
    :param data: for uncollapsed models, this worker's rows (X, y[, weights]), or an iterator over its
        batches, which need not have the same sizes on all workers.
    :param variables: what to differentiate with respect to; the model's trainable variables if None.
    :param compile: compile the closure with ``tf.function``.
    :raises TypeError: if the model is of another kind.
    :raises ValueError: if data are missing or given in vain, ``num_data`` is unknown, or the
        objective is leave-one-out.
    """
    _check(model, data)
    synchronise(strategy, model.variables)
    variables = tuple(model.trainable_variables if variables is None else variables)
    alone = strategy.num_replicas_in_sync == 1  # the model's own loss is that of all rows
    if isinstance(model, CollapsedClassifier):
        if alone:
            return model.training_loss_closure(compile=compile)
        loss = _sharded_loss(model, strategy, variables)
    else:
        if alone:
            return model.training_loss_closure(data, compile=compile)  # type: ignore[arg-type]
        loss = _minibatch_loss(model, strategy, data, variables)
    return tf.function(loss, autograph=False) if compile else loss


def share_statistics(model: CollapsedClassifier, strategy: tf.distribute.Strategy) -> None:
    """Give every worker's model the sums over the rows of all workers, with the present parameters.

    The model then predicts, is calibrated (on its own rows) and saved as one built on all rows.
    All workers must call it.

    :param model: a collapsed model that has been trained with :func:`training_loss_closure`, or has
        absorbed this worker's shards (``model.absorb``) with the same parameters on all workers.
    :param strategy: the strategy it was trained with.
    :raises TypeError: if the model is of another kind.
    :raises ValueError: if what the model absorbed has been shared already.
    """
    if not isinstance(model, CollapsedClassifier):
        raise TypeError(
            f"model must be a collapsed one, whose sums over rows are shared, but is of type "
            f"{type(model).__name__}. Use an ILRSGPR or a DirichletSGPR."
        )
    if len(_replicas(strategy)) == strategy.num_replicas_in_sync:
        return  # all rows are here
    own = _flat(model.own_statistics())
    model.adopt(_by_span(sum_over_workers(strategy, own)))


def synchronise(strategy: tf.distribute.Strategy, variables: Sequence[tf.Variable]) -> None:
    """Give the first worker's values to the variables of all workers, which must all call it.

    :param strategy: the strategy.
    :param variables: variables of the model or of an optimiser.
    """
    first = _replicas(strategy)[0] == 0
    _check_sequence("variables", variables, (tf.Variable,), "model.variables")
    values = [tf.convert_to_tensor(v) if first else tf.zeros_like(v) for v in variables]
    for variable, value in zip(variables, sum_over_workers(strategy, values), strict=True):
        variable.assign(value)


def sum_over_workers(
    strategy: tf.distribute.Strategy, values: Sequence[tf.Tensor]
) -> list[tf.Tensor]:
    """Sums over the workers, with the same bits on each of them.

    :param strategy: the strategy.
    :param values: this worker's tensors, of the same shapes on all workers.
    """
    replicas = _replicas(strategy)
    _check_sequence("values", values, (tf.Tensor, tf.Variable), "a list of tensors")
    mine = strategy.experimental_distribute_values_from_function(
        lambda context: [
            value if context.replica_id_in_sync_group == replicas[0] else tf.zeros_like(value)
            for value in values
        ]
    )
    reduce = tf.function(lambda: _first(strategy, strategy.run(_all_sum, (mine,))), autograph=False)
    return list(reduce())


def _check_sequence(name: str, values: Any, types: tuple[type, ...], example: str) -> None:
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, types) for v in values):
        raise TypeError(
            f"{name} must be a sequence of {types[0].__name__}s, but is {values!r}. Pass {example}."
        )


def _check(model: Any, data: Any) -> None:
    """Refuse what cannot be distributed, with what to do."""
    if isinstance(model, CollapsedClassifier):
        if data is not None:
            raise ValueError("A collapsed model has its rows already: leave out data.")
        if model.objective != "evidence":
            raise ValueError(
                f"objective={model.objective!r} cannot be distributed: use objective='evidence'."
            )
    elif isinstance(model, ClassifierSVGP):
        if data is None:
            raise ValueError(f"{type(model).__name__} needs data: this worker's rows or batches.")
        if model.num_data is None:
            raise ValueError("Build the model with num_data, the number of rows of all workers.")
    else:
        raise TypeError(
            f"A {type(model).__name__} cannot be distributed. Use a collapsed model (ILRSGPR, "
            "DirichletSGPR) or an uncollapsed one (ILRSVGP, SoftmaxSVGP, CodeSVGP)."
        )


def _sharded_loss(
    model: CollapsedClassifier, strategy: tf.distribute.Strategy, variables: Sequence[tf.Variable]
) -> Callable[[], tf.Tensor]:
    def rows(start: int, stop: int) -> Rows:
        return model.in_groups(model.labelled_rows.part(start, stop))

    def replica_loss(rows: Rows) -> tf.Tensor:
        """A replica's share of −(bound + log prior), from the statistics of all replicas."""
        bound = model.bound(_by_span(_all_sum(_flat(model.statistics(rows)))))
        return -(bound + model.log_prior_density()) / strategy.num_replicas_in_sync

    shards = _divide(strategy, model.num_data, rows)
    return lambda: _summed(strategy, replica_loss, shards, variables)


def _minibatch_loss(
    model: ClassifierSVGP,
    strategy: tf.distribute.Strategy,
    data: Any,
    variables: Sequence[tf.Variable],
) -> Callable[[], tf.Tensor]:
    def replica_loss(part: tuple[tf.Tensor, ...]) -> tf.Tensor:
        """A replica's share n_r/n of the loss."""
        *rows, num_rows = part
        own = tf.cast(num_rows, model.q_mu.dtype)
        (total,) = _all_sum([own])
        return model.training_loss(tuple(rows)) * own / total

    def loss() -> tf.Tensor:
        batch = next(data) if isinstance(data, Iterator) else data
        rows = [tf.convert_to_tensor(array) for array in batch]

        def part(start: tf.Tensor, stop: tf.Tensor) -> tuple[tf.Tensor, ...]:
            end = tf.maximum(stop, start + 1)  # a part without rows has one that does not count
            return *(tensor[start:end] for tensor in rows), stop - start

        shards = _divide(strategy, tf.shape(rows[0])[0], part)
        return _summed(strategy, replica_loss, shards, variables)

    return loss


def _flat(statistics: Sequence[GroupStatistics]) -> list[tf.Tensor]:
    """Statistics of all spans of outputs, one after the other."""
    return [value for sums in statistics for value in sums]


def _by_span(values: Sequence[tf.Tensor]) -> list[GroupStatistics]:
    """Undo :func:`_flat`."""
    width = len(GroupStatistics._fields)
    return [GroupStatistics(*values[i : i + width]) for i in range(0, len(values), width)]


def _summed(
    strategy: tf.distribute.Strategy,
    replica_loss: Callable[..., tf.Tensor],
    shards: tf.distribute.DistributedValues,
    variables: Sequence[tf.Variable],
) -> tf.Tensor:
    """Σ_r of the replicas' losses, with the sum of their gradients as its gradient."""

    def value_and_gradient(shard: Rows | LabelledData) -> list[tf.Tensor]:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(variables)
            loss = replica_loss(shard)
        gradients = tape.gradient(loss, variables, unconnected_gradients="zero")
        return _all_sum([loss, *map(tf.convert_to_tensor, gradients)])

    results = _first(strategy, strategy.run(value_and_gradient, (shards,)))
    value, *gradients = map(tf.stop_gradient, results)
    # Something with this value and this gradient, for any optimiser: l + Σ_i g_i · (v_i − v_i).
    for variable, gradient in zip(variables, gradients, strict=True):
        v = tf.convert_to_tensor(variable)
        value += tf.reduce_sum(gradient * (v - tf.stop_gradient(v)))
    return value


def _all_sum(values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """Sums over the replicas, called on each of them; one collective for each dtype."""
    context = tf.distribute.get_replica_context()
    sums: dict[int, tf.Tensor] = {}
    for dtype in dict.fromkeys(value.dtype for value in values):
        places = [i for i, value in enumerate(values) if value.dtype == dtype]
        reduced = context.all_reduce(tf.distribute.ReduceOp.SUM, [values[i] for i in places])
        sums.update(zip(places, reduced, strict=True))
    return [sums[i] for i in range(len(values))]


def _divide(
    strategy: tf.distribute.Strategy,
    num_rows: int | tf.Tensor,
    take: Callable[[tf.Tensor, tf.Tensor], Any],
) -> tf.distribute.DistributedValues:
    """For each replica of this worker ``take(start, stop)``, nearly equally many rows."""
    replicas = _replicas(strategy)

    def part(context: tf.distribute.experimental.ValueContext) -> Any:
        i = context.replica_id_in_sync_group - replicas[0]
        return take(num_rows * i // len(replicas), num_rows * (i + 1) // len(replicas))

    return strategy.experimental_distribute_values_from_function(part)


def _first(strategy: tf.distribute.Strategy, values: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    """What the first local replica has: the same as all others, after a sum."""
    return [strategy.experimental_local_results(value)[0] for value in values]


def _replicas(strategy: tf.distribute.Strategy) -> tuple[int, ...]:
    """Numbers of this worker's replicas, among those of all workers."""
    if not isinstance(strategy, tf.distribute.Strategy):
        raise TypeError(
            f"strategy must be a tf.distribute strategy, but is {strategy!r}. Pass, for example, "
            "tf.distribute.MirroredStrategy()."
        )
    return strategy.experimental_local_results(
        strategy.experimental_distribute_values_from_function(
            lambda context: context.replica_id_in_sync_group
        )
    )
