"""Working through rows in blocks, so that memory does not grow with their number.

:func:`map_rows` is for what has a result for every row, such as predictions; :func:`sum_rows` is for
sums over rows that are differentiated, such as a training objective: its gradient recomputes each
block instead of keeping all of them alive.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["map_rows", "stack_over", "sum_rows"]


def stack_over(
    function: Callable[[tf.Tensor], Sequence[tf.Tensor]], count: int | tf.Tensor
) -> list[tf.Tensor]:
    """``function(0), …, function(count − 1)``, one after the other, each result stacked.

    ``tf.map_fn`` would do, if it did not convert the function with autograph at every eager call.

    :param function: maps an index to a list of tensors, of the same shapes for every index.
    :param count: number of indices, at least one.
    """
    arrays = [
        tf.TensorArray(result.dtype, size=count, element_shape=result.shape).write(0, result)
        for result in function(tf.constant(0))
    ]

    def step(i: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
        return i + 1, *(a.write(i, r) for a, r in zip(arrays, function(i), strict=True))

    _, *arrays = tf.while_loop(lambda i, *_: i < count, step, (1, *arrays), parallel_iterations=1)
    return [array.stack() for array in arrays]


def map_rows(
    function: Callable[..., Sequence[tf.Tensor]], rows: Sequence[tf.Tensor], block: int
) -> list[tf.Tensor]:
    """``function(*rows)``, applied to ``block`` rows at a time; the results are joined again.

    :param function: maps tensors with n rows to tensors with n rows.
    :param rows: tensors with the same first dimension.
    :param block: rows at a time.
    """
    static = rows[0].shape[0]
    if static is not None and static <= block:
        return list(function(*rows))
    num_rows = tf.shape(rows[0])[0]
    # The first block tells how many results there are, and their dtypes and shapes.
    first = function(*(r[:block] for r in rows))
    arrays = [
        tf.TensorArray(
            result.dtype,
            size=0,
            dynamic_size=True,
            infer_shape=False,
            element_shape=tf.TensorShape([None]).concatenate(result.shape[1:]),
        ).write(0, result)
        for result in first
    ]

    def step(i: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
        results = function(*(r[i * block : (i + 1) * block] for r in rows))
        return i + 1, *(a.write(i, result) for a, result in zip(arrays, results, strict=True))

    _, *arrays = tf.while_loop(
        lambda i, *_: i * block < num_rows, step, (1, *arrays), parallel_iterations=1
    )
    joined = [a.concat() for a in arrays]
    for result, template in zip(joined, first, strict=True):
        result.set_shape(tf.TensorShape([static]).concatenate(template.shape[1:]))
    return joined


def sum_rows(
    function: Callable[..., tf.Tensor],
    tensors: Sequence[tf.Tensor],
    num_rows: int,
    block: int,
) -> tf.Tensor:
    """Σ of the scalars ``function(tensors, start, stop)`` over blocks of rows, differentiable.

    The gradient flows into ``tensors`` and into every variable that ``function`` reads.

    :param function: sums over rows ``start`` to ``stop``; other tensors it closes over are constants.
    :param tensors: what the result depends on beside variables.
    :param num_rows: number of rows.
    :param block: rows at a time.
    """

    def loop(visit: Callable[[tf.Tensor, tf.Tensor], list[tf.Tensor]], start: Any) -> Any:
        def step(i: tf.Tensor, *sums: tf.Tensor) -> tuple[Any, ...]:
            stop = tf.minimum(i + block, num_rows)
            return stop, *(a + b for a, b in zip(sums, visit(i, stop), strict=True))

        return tf.while_loop(lambda i, *_: i < num_rows, step, (0, *start), parallel_iterations=1)[
            1:
        ]

    @tf.custom_gradient
    def total(*tensors: tf.Tensor) -> tuple[tf.Tensor, Callable[..., Any]]:
        dtype = tensors[0].dtype

        def gradient(
            upstream: tf.Tensor, variables: Sequence[tf.Variable] = ()
        ) -> tuple[Any, list[tf.Tensor]]:
            sources = [*tensors, *variables]

            def visit(start: tf.Tensor, stop: tf.Tensor) -> list[tf.Tensor]:
                with tf.GradientTape(watch_accessed_variables=False) as tape:
                    tape.watch(sources)
                    value = function(tensors, start, stop)
                gradients = tape.gradient(value, sources, unconnected_gradients="zero")
                return [tf.convert_to_tensor(gradient) for gradient in gradients]

            zeros = [tf.zeros(source.shape, source.dtype) for source in sources]
            gradients = [upstream * g for g in loop(visit, zeros)]
            return tuple(gradients[: len(tensors)]), gradients[len(tensors) :]

        def visit(start: tf.Tensor, stop: tf.Tensor) -> list[tf.Tensor]:
            return [function(tensors, start, stop)]

        return loop(visit, [tf.zeros([], dtype)])[0], gradient

    return total(*tensors)
