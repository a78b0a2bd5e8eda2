"""Working through rows in blocks, so that memory does not grow with their number.

:func:`map_rows` is for what has a result for every row, such as predictions; :func:`sum_rows` is for
sums over rows that are differentiated, such as a training objective: its gradient recomputes each
block instead of keeping all of them alive.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["map_rows", "sum_rows"]


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
