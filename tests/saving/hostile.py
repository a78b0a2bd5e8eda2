"""Files whose authors mean no good: sizes and digests are right, what they say is not."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpflow_ilr.saving.container import MAGIC

__all__ = ["parts_of", "tamper"]


def parts_of(path: Path) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Header, description and arrays."""
    header, _, body = path.read_bytes().removeprefix(MAGIC).partition(b"\n")
    read = json.loads(header)
    size = read["description"]
    return read, json.loads(body[:size]), body[size:]


def tamper(
    path: Path, change: Callable[[dict[str, Any]], Any], more: bytes = b"", **header: Any
) -> None:
    """Change what a file says, with sizes and digest to match.

    :param path: of the file.
    :param change: is given the description, and changes it.
    :param more: bytes after the last array.
    :param header: what the header says instead.
    """
    old, description, arrays = parts_of(path)
    change(description)
    text, arrays = json.dumps(description).encode(), arrays + more
    sizes = {"description": len(text), "arrays": len(arrays)}
    digest = hashlib.sha256(text + arrays).hexdigest()
    whole = json.dumps(old | sizes | {"sha256": digest} | header).encode()
    path.write_bytes(MAGIC + whole + b"\n" + text + arrays)
