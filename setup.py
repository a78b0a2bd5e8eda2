"""Metadata of gpflow_ilr; the version is read from ``gpflow_ilr/version.py``, its only home."""

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent

VERSION = re.search(
    r'^__version__ = "(.+)"$', (HERE / "gpflow_ilr" / "version.py").read_text(), re.MULTILINE
).group(1)

EXTRAS = {
    "plot": ["matplotlib>=3.8"],
    "sklearn": ["scikit-learn>=1.7"],
    "keras": ["keras>=3.10", "tf-keras>=2.18"],
    "neighbours": ["faiss-cpu>=1.8"],
    "training": ["tqdm"],
    "tensorboard": ["tensorboard>=2.18", "matplotlib>=3.8"],
    "augmented": ["polyagamma>=2.0", "threadpoolctl>=3.1", "tqdm"],
}
EXTRAS["examples"] = [*EXTRAS["plot"], *EXTRAS["sklearn"]]
EXTRAS["test"] = [
    *EXTRAS["examples"],
    *EXTRAS["keras"],
    *EXTRAS["augmented"],
    *EXTRAS["neighbours"],
    *EXTRAS["training"],
    *EXTRAS["tensorboard"],
    "pytest>=8",
    "pytest-xdist>=3.5",
    "pytest-cov>=5",
    "hypothesis>=6.100",
    # ArviZ announces another interface for version 1.
    "arviz>=0.23,<1",
    "composition-stats>=2.0",
    "pandas>=2.0",
]
EXTRAS["dev"] = [*EXTRAS["test"], "ruff>=0.8", "mypy>=1.11"]
# The guides are executed as the site is built, so it needs what they import.
EXTRAS["docs"] = [
    *EXTRAS["examples"],
    *EXTRAS["keras"],
    "pandas>=2.0",
    "sphinx>=8.1",
    "docutils>=0.21",
    "myst-nb>=1.2",
    "jupytext>=1.16",
    "furo>=2024.8.6",
]
# GPyTorch, the peer of the benchmarks, pulls in torch (several gigabytes), so `all` leaves it out.
EXTRAS["all"] = sorted({requirement for extra in EXTRAS.values() for requirement in extra})
EXTRAS["benchmarks"] = [
    *EXTRAS["examples"],
    *EXTRAS["neighbours"],
    *EXTRAS["keras"],
    "gpytorch>=1.15",
    "catboost>=1.2",
    "lightgbm>=4.0",
    "mapie>=1.0",
    "psutil",
    "threadpoolctl>=3.1",
]

setup(
    name="gpflow_ilr",
    version=VERSION,
    description="Calibrated and conjugate multiclass Gaussian-process classification for GPflow",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    packages=find_packages(include=["gpflow_ilr", "gpflow_ilr.*"]),
    package_data={"gpflow_ilr": ["py.typed"]},
    # Tested with 3.11. GPflow 2.11 wants NumPy below 2, which has no wheels for 3.13 and later.
    python_requires=">=3.10",
    install_requires=[
        "gpflow>=2.11",
        "tensorflow>=2.18",
        "tensorflow-probability>=0.25",
        "numpy>=1.26",
        "scipy>=1.11",
        "check-shapes>=1.1",
    ],
    extras_require=EXTRAS,
    keywords="Gaussian processes, classification, calibration, GPflow, TensorFlow",
    project_urls={
        "GPflow": "https://www.gpflow.org",
        "Code of the paper's authors": "https://github.com/williwilliams3/gpilr",
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3 :: Only",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Mathematics",
        "Typing :: Typed",
    ],
)
