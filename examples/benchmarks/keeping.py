"""The file of results, which outlives kills and full disks: it is replaced whole or not at all."""

import json
import os
from pathlib import Path
from typing import Any

__all__ = ["read_results", "write_results"]


def read_results(path: Path) -> dict[str, Any]:
    """Results of earlier runs, by the names of benchmarks; none if there is no file.

    :param path: of the file.
    :raises SystemExit: if it is something else.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except ValueError as error:  # of JSON, or of its characters
        raise SystemExit(f"{path} is no JSON ({error}): mend it, or name another file.") from None
    if not isinstance(found, dict):
        raise SystemExit(f"{path} has no results of benchmarks: name another file.")
    return found


def write_results(path: Path, results: dict[str, Any]) -> None:
    """Replace the file once the new one is on the disk.

    :param path: of the file.
    :param results: by the names of benchmarks.
    """
    path = Path(os.path.realpath(path))
    unfinished = path.with_name(f"{path.name}.unfinished")
    try:
        with unfinished.open("w", encoding="utf-8") as file:
            file.write(json.dumps(results, ensure_ascii=False, indent=1) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
