"""What a figure depends on beside the code: processor, memory, how busy it all is, and versions."""

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import memory

__all__ = ["cores", "load", "machine", "now", "threads"]

PACKAGES = (
    "gpflow_ilr",
    "gpflow",
    "tensorflow",
    "tensorflow-probability",
    "keras",
    "numpy",
    "scipy",
    "scikit-learn",
    "gpytorch",
    "torch",
    "lightgbm",
    "catboost",
    "faiss-cpu",
)

MEASURED = (":/gpflow_ilr", ":(glob)*.py")
"""What figures are of, for git: the package, and the scripts of this folder."""


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def threads() -> int:
    """How many a contestant may have, for libraries that do not read it from the environment."""
    return int(os.environ.get("OMP_NUM_THREADS") or cores())


def load() -> float | None:
    """Processes that have wanted a core in the last minute."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def machine(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Processor, cores, memory, load, versions and commit, for the record.

    :param packages: those whose versions matter.
    """
    versions = {"python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": cores(),
        "GiB": memory.of_machine("MemTotal"),
        "load": load(),
        "system": platform.platform(terse=True),
        "versions": versions,
        "commit": _git("rev-parse", "--short", "HEAD"),
        "dirty": bool(_git("status", "--porcelain", "--", *MEASURED)),
    }


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _git(*words: str) -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
