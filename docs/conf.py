"""The documentation site: guides are executed as it is built, nothing is fetched from the network.

``sphinx-build -W --keep-going -b html docs docs/_build`` builds it. Guides are ``.pct.py`` scripts that
Jupytext reads as notebooks; a cell that fails, or whose training stops early, fails the build.
Formulas become MathML, which browsers draw without scripts or fonts of ours.
"""

import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["PYTHONWARNINGS"] = (
    "error::RuntimeWarning"  # in guides: training that stops early is one
)

ROOT = Path(__file__).parents[1]

project = "gpflow_ilr"
author = "the gpflow_ilr maintainers"
copyright = "the gpflow_ilr maintainers, Apache-2.0"  # noqa: A001 - Sphinx' name
version_file = (ROOT / "gpflow_ilr" / "version.py").read_text()
release = re.search(r'^__version__ = "(.+)"$', version_file, re.MULTILINE).group(1)

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.viewcode"]
templates_path = ["_templates"]
exclude_patterns = ["_build", "jupyter_execute"]
suppress_warnings = ["config.cache"]  # the reader of guides is a function, which cannot be pickled

# Guides
nb_custom_formats = {".pct.py": ["jupytext.reads", {"fmt": "py:percent"}]}
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
nb_output_stderr = "remove"  # TensorFlow writes there as it is imported
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
html_math_renderer = "mathml"

# Reference
autosummary_generate = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the :param: lines say it shorter than GPflow's unions
autodoc_preserve_defaults = True
autodoc_default_options = {"members": True, "inherited-members": True}

# Pages
html_theme = "furo"
html_title = f"gpflow_ilr {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False


def _as_mathml(self: Any, node: nodes.Node) -> None:
    """Write a formula as MathML, by docutils' own translator."""
    as_block = isinstance(node, nodes.math_block)
    formula = tex2mathml(node.astext(), as_block)
    self.body.append(f'<div class="math">{formula}</div>' if as_block else formula)
    raise nodes.SkipNode


def _as_meant(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Norms in docstrings, |x|, are no substitutions of reST, and "K." begins no list."""
    del app, what, name, obj, options
    for i, line in enumerate(lines):
        parts = re.split(r"(``.*?``)", line)
        line = "".join(p if p.startswith("``") else p.replace("|", r"\|") for p in parts)
        lines[i] = re.sub(r"^(\s*(?::param \w+: )?)(\w\.)$", r"\1\\\2", line)


def _skip_hosts(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what GPflow, Keras, scikit-learn or Python itself define: they document it."""
    del app, what, name, skip, options
    function = getattr(obj, "fget", None) or getattr(obj, "__objclass__", None) or obj
    module = getattr(function, "__module__", None)
    return True if isinstance(module, str) and not module.startswith("gpflow_ilr") else None


def setup(app: Any) -> None:
    """Tell Sphinx of the functions above."""
    app.add_html_math_renderer("mathml", (_as_mathml, None), (_as_mathml, None))
    app.connect("autodoc-process-docstring", _as_meant)
    app.connect("autodoc-skip-member", _skip_hosts)
