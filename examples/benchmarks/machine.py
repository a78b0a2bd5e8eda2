"""What a figure depends on beside the code: processor, cores, how busy they are, and versions."""

import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["cores", "machine", "now"]

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


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine(packages: Sequence[str] = PACKAGES) -> dict[str, Any]:
    """Processor, cores, load, versions and commit, for the record.

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
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": platform.platform(terse=True),
        "versions": versions,
        "commit": _commit(),
    }


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
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
