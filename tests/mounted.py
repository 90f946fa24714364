"""Files as Kubernetes mounts them of secrets and config maps, and swaps them when the secret changes."""

from __future__ import annotations

import itertools
import os
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Mapping

__all__ = ["MountedFiles"]


class MountedFiles:
    """Writes a volume as the kubelet's atomic writer does.

    The volume has a link for each file, `password -> ..data/password`, and `..data` is a link to a folder with the contents. A new version
    is a new folder: one rename of `..data` swaps all files at once.

    Args:
        folder: of the volume; it is made.
        contents: the first version, by the files' names.
    """

    def __init__(self, folder: pathlib.Path, contents: Mapping[str, bytes]) -> None:
        self.folder = folder
        self._versions = itertools.count(1)
        folder.mkdir(parents=True)
        self.swap(contents)
        for name in contents:
            (folder / name).symlink_to(f"..data/{name}")

    def swap(self, contents: Mapping[str, bytes]) -> None:
        """Replace all files. Their times and sizes tell nothing: the times are the same in each version."""
        data = self.folder / "..data"
        before = data.resolve() if data.exists() else None
        version = self.folder / f"..2026_11_26_{next(self._versions):02}"
        version.mkdir()
        for name, content in contents.items():
            (version / name).write_bytes(content)
            os.utime(version / name, (1_000_000, 1_000_000))
        link = self.folder / "..data_tmp"
        link.symlink_to(version.name)
        link.replace(data)
        if before is not None:
            shutil.rmtree(before)
