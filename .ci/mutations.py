"""What ``.ci/mutants`` changes: the modules, and the small errors it makes in them, one at a time.

Operators, comparisons and functions are swapped, numbers are raised by one, signs, negations,
transpositions and second terms are left out, and what is true becomes false. Docstrings, annotations,
decorators, messages and the raising of errors stay as they are.
"""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["CORE", "ROOT", "Mutant", "mutants_of", "source_of", "why_equivalent"]

ROOT = Path(__file__).resolve().parent.parent

LOO = "leave_one_out _left_out leave_one_out_at loo_at_noise loo_at_counts loo_log_density"
CORE = {  # module: further test files beside its mirror, functions (all of them if none is named)
    "simplex": ("", ""),
    "codes/base": ("codes/test_ilr codes/test_dirichlet models/test_class_noise", ""),
    "codes/dirichlet": ("codes/test_base models/test_classes", ""),
    "codes/ilr": ("codes/test_base", ""),
    "expectations/control_variate": ("expectations/test_softmax", ""),
    "expectations/logarithms": ("", ""),
    "expectations/nodes": ("", ""),
    "expectations/softmax": ("expectations/test_control_variate likelihoods/test_base", ""),
    "expectations/two_classes": ("", ""),
    "collapsed/statistics": ("models/test_class_noise models/test_weights", ""),
    "collapsed/bound": ("", "leave_one_out"),
    "collapsed/span": ("models/test_collapsed models/test_weights", "row_terms"),
    "linalg/in_place": ("models/test_exact_in_place", "left_out_terms _inverse_diagonal_at"),
    "linalg/local_regression": ("", ""),
    "models/exact": ("models/test_prediction_sets models/test_weights", LOO),
    "models/collapsed": ("models/test_weights", LOO),
    "models/neighbours": ("models/test_neighbour_training models/test_weights", LOO),
}

OPERATORS = {
    ast.Add: [ast.Sub], ast.Sub: [ast.Add], ast.Mult: [ast.Div], ast.Div: [ast.Mult],
    ast.Pow: [ast.Mult], ast.MatMult: [ast.Mult], ast.FloorDiv: [ast.Mult], ast.Mod: [ast.FloorDiv],
    ast.Lt: [ast.LtE, ast.GtE], ast.LtE: [ast.Lt, ast.Gt], ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt], ast.Eq: [ast.NotEq], ast.NotEq: [ast.Eq], ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is], ast.In: [ast.NotIn], ast.NotIn: [ast.In], ast.And: [ast.Or], ast.Or: [ast.And],
}  # fmt: skip
FUNCTIONS = {
    "reduce_sum": "reduce_mean", "reduce_mean": "reduce_sum", "reduce_max": "reduce_min",
    "maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "sum": "mean",
    "log": "log1p", "log1p": "log", "exp": "expm1", "expm1": "exp", "square": "abs", "sqrt": "square",
    "softmax": "log_softmax", "log_softmax": "softmax", "softplus": "relu", "ones": "zeros",
    "zeros": "ones", "ones_like": "zeros_like", "zeros_like": "ones_like", "argmax": "argmin",
    "ceil": "floor", "sign": "abs", "erfc": "erf", "rsqrt": "sqrt",
}  # fmt: skip
DROPPED = {"transpose", "matrix_transpose", "stop_gradient", "relu", "abs", "identity"}
EQUIVALENT = {  # what a line has: why errors there may make no difference that a test should notice
    "_ELEMENTS = 2**": "how much is worked off, or kept, at a time: no result depends on it",
    "max(1, ": "rows at a time: no result depends on them",
    "3 * len(wanted) < len(L)": "where both ways take as long",
    "tolerance = ": "rounding is far below it, and a wrong sum far above",
    "MAX_NOISE_RATIO: Final": "a choice, to which tests hold the noise",
    "_LOG_SCALES = ": "further scales, whose weights are nearly zero",
    "tf.where(u > -30.0": "both forms are right there",
    "series = 1.0": "2e-12 of a logarithm of −485, as far as the mixture is right",
    "first_is_smaller = m >= 0.0": "right for either class where neither is much smaller",
    "mean.shape[-1]": "the last axis, of two",
    "var * tf.square(c), axis=-1": "the last axis, of two",
    "L_inv.shape[-1]": "a square matrix",
    "groups.offsets[-1]": "of one group, which has two offsets",
    "matrix_transpose(outer)": "of the adjoint of a symmetric matrix, its symmetric part counts",
    "if self.nodes is None": "the longer way to the same sum",
    "if known is not None and": "the longer way to the same gradient",
    "if not leading.is_fully_defined()": "rows that have their shape are broadcast to it",
}
PRECAUTIONS = ("strict", "parallel_iterations")  # arguments that change no result
UNTOUCHED = (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)


class Mutant(NamedTuple):
    """One change of a module: ``text`` for the bytes of its source from ``start`` to ``stop``."""

    module: str
    line: int
    start: int
    stop: int
    before: str
    after: str
    text: str

    def of(self, source: bytes) -> bytes:
        """The source with the change."""
        return source[: self.start] + self.text.encode() + source[self.stop :]

    def __str__(self) -> str:
        return f"gpflow_ilr/{self.module}.py:{self.line}: `{self.before}` -> `{self.after}`"


def expressions(node: ast.AST, functions: set[str], inside: bool) -> Iterator[ast.AST]:
    """What may be changed: all but annotations, decorators, messages and errors."""
    inside = inside or (isinstance(node, ast.FunctionDef) and node.name in functions)
    if inside:
        yield node
    if isinstance(node, ast.keyword) and node.arg in PRECAUTIONS:
        return
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not isinstance(child, UNTOUCHED):
                    yield from expressions(child, functions, inside)


def changes(node: ast.AST) -> Iterator[str]:
    """The text of each expression, or statement, that may stand in the place of ``node``."""

    def like(**fields: object) -> str:
        return ast.unparse(type(node)(**{**dict(ast.iter_fields(node)), **fields}))

    match node:
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp():
            yield from (like(op=other()) for other in OPERATORS.get(type(node.op), []))
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
                yield ast.unparse(node.left)  # without the second term
        case ast.Compare(ops=[op, *rest]):
            yield from (like(ops=[other(), *rest]) for other in OPERATORS[type(op)])
        case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
            yield ast.unparse(node.operand)
        case ast.Constant(value=bool()):
            yield repr(not node.value)
        case ast.Constant(value=int() | float()):
            yield repr(node.value + 1)
        case ast.Call(func=ast.Attribute(attr=name), args=[first, *_]) if name in DROPPED:
            yield ast.unparse(first)
        case ast.Call(func=ast.Attribute(attr=name) as function) if name in FUNCTIONS:
            yield like(func=ast.Attribute(function.value, FUNCTIONS[name]))
        case ast.Call(func=ast.Name(id=name)) if name in FUNCTIONS:
            yield like(func=ast.Name(FUNCTIONS[name]))


def why_equivalent(mutant: Mutant) -> str:
    """Why a mutant that survives may do so; empty if no reason is known."""
    line = source_of(mutant.module).decode().splitlines()[mutant.line - 1]
    return "; ".join(reason for part, reason in EQUIVALENT.items() if part in line)


def source_of(module: str) -> bytes:
    """What is in the module's file."""
    return (ROOT / "gpflow_ilr" / f"{module}.py").read_bytes()


def mutants_of(module: str) -> list[Mutant]:
    """All mutants of a module, in the order of its source."""
    source, functions = source_of(module), set(CORE[module][1].split())
    lines = [0, *(i + 1 for i, byte in enumerate(source) if byte == ord("\n"))]
    found = []
    for node in expressions(ast.parse(source), functions, not functions):
        for after in changes(node):
            start = lines[node.lineno - 1] + node.col_offset
            stop = lines[node.end_lineno - 1] + node.end_col_offset
            text = after if isinstance(node, ast.stmt) else f"({after})"
            place = module, node.lineno, start, stop
            found.append(Mutant(*place, ast.unparse(node), after, text))
    return sorted(found, key=lambda mutant: mutant.start)
