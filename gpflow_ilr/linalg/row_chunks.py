"""Working through rows in chunks, so that memory does not grow with their number.

:func:`map_rows` is for what has a result for every row, such as predictions; :func:`sum_rows` is for
sums over rows that are differentiated, such as a training objective: its gradient recomputes each
chunk instead of keeping all of them alive.

Loops and arrays have their sizes from the start, because XLA cannot let them grow.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

__all__ = ["map_rows", "stack_over", "sum_rows"]


def stack_over(
    function: Callable[[tf.Tensor], Sequence[tf.Tensor]],
    count: int | tf.Tensor,
    like: Sequence[tf.Tensor | tf.TensorSpec] | None = None,
) -> list[tf.Tensor]:
    """``function(0), …, function(count − 1)``, one after the other, each result stacked.

    ``tf.map_fn`` would do, if it did not convert the function with autograph at every eager call.

    :param function: maps an index to a list of tensors, of the same shapes for every index.
    :param count: number of indices, at least one.
    :param like: shapes and dtypes of the results, if they are known: the function is traced once then.
    """
    if tf.executing_eagerly():
        results = zip(*(function(i) for i in tf.range(count)), strict=True)
        return [tf.stack(result) for result in results]
    if isinstance(count, int) and count == 1:  # no loop: half as long to trace
        return [result[None] for result in function(tf.constant(0))]
    if like is None:
        # From a graph apart, which is never run, so that the function is in this one once. To call
        # that graph in the loop would save the second trace, but then XLA cannot differentiate the
        # loop where the number of rows is unknown.
        apart = tf.function(function, autograph=False)
        like = apart.get_concrete_function(tf.TensorSpec([], tf.int32)).structured_outputs
    arrays = [tf.TensorArray(t.dtype, size=count, element_shape=t.shape) for t in like]

    def step(i: tf.Tensor, *arrays: tf.TensorArray) -> tuple[Any, ...]:
        return i + 1, *(a.write(i, r) for a, r in zip(arrays, function(i), strict=True))

    _, *arrays = tf.while_loop(
        lambda i, *_: i < count,
        step,
        (0, *arrays),
        parallel_iterations=1,
        maximum_iterations=count,
    )
    return [array.stack() for array in arrays]


def map_rows(
    function: Callable[..., Sequence[tf.Tensor]], rows: Sequence[tf.Tensor], chunk: int
) -> list[tf.Tensor]:
    """``function(*rows)``, applied to ``chunk`` rows at a time; the results are joined again.

    :param function: maps tensors with n rows to tensors with n rows.
    :param rows: tensors with the same first dimension.
    :param chunk: rows at a time, at most.
    """
    num_rows = rows[0].shape[0]
    if num_rows is not None and num_rows <= chunk:
        return list(function(*rows))
    if tf.executing_eagerly():
        starts = range(0, num_rows, chunk)
        chunks = [function(*(r[i : i + chunk] for r in rows)) for i in starts]
        return [tf.concat(results, axis=0) for results in zip(*chunks, strict=True)]
    # Chunks of one size, the last filled up with copies of the last row: of rows of zeros, say,
    # functions may have no gradient. No rows are one chunk of no rows.
    n = tf.shape(rows[0])[0] if num_rows is None else num_rows
    num_chunks = -(-n // chunk) if num_rows else tf.maximum(-(-n // chunk), 1)
    size = -(-n // num_chunks)
    taken = tf.minimum(tf.range(num_chunks * size), n - 1)

    def in_chunks(r: tf.Tensor) -> tf.Tensor:
        shape = tf.concat([[num_chunks, size], tf.shape(r)[1:]], axis=0)
        return tf.reshape(tf.gather(r, taken), shape)

    inputs = [in_chunks(r) for r in rows]
    results = stack_over(lambda i: function(*(x[i] for x in inputs)), num_chunks)
    joined = []
    for result in results:
        shape = tf.concat([[num_chunks * size], tf.shape(result)[2:]], axis=0)
        joined.append(tf.reshape(result, shape)[:n])
        joined[-1].set_shape([num_rows, *result.shape[2:]])
    return joined


def sum_rows(
    function: Callable[..., tf.Tensor],
    tensors: Sequence[tf.Tensor],
    num_rows: int | tf.Tensor,
    chunk: int,
) -> tf.Tensor:
    """Σ of the scalars ``function(tensors, start, stop)`` over chunks of rows, differentiable.

    The gradient flows into ``tensors`` and into every variable that ``function`` reads.

    :param function: sums over rows ``start`` to ``stop``; other tensors it closes over are constants.
    :param tensors: what the result depends on beside variables.
    :param num_rows: number of rows.
    :param chunk: rows at a time.
    """
    if isinstance(num_rows, int) and num_rows <= chunk:  # no loop to trace
        return function(tensors, tf.constant(0), tf.constant(num_rows))

    def loop(visit: Callable[[tf.Tensor, tf.Tensor], list[tf.Tensor]], start: Any) -> Any:
        def step(i: tf.Tensor, *sums: tf.Tensor) -> tuple[Any, ...]:
            stop = tf.minimum(i + chunk, num_rows)
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
