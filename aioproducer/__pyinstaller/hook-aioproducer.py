"""Tell PyInstaller which modules aioproducer imports by name while it runs, and which files its dependencies read.

- The front door imports its modules when a name is asked for; the compiled modules are chosen by `importlib.import_module`.
- What a compiled module imports cannot be read from its binary: all of the package's modules below the producer are taken.
- anyio imports its backend by name; crc32c reads its own version from its dist-info; cramjam is imported when a codec needs it, and gssapi
  when GSSAPI is asked for.
- pyarrow is imported only to read arrays that the program made, so that such a program imports it itself.
"""

from __future__ import annotations

from PyInstaller.utils.hooks import can_import_module, collect_submodules, copy_metadata

_OPTIONAL = (
    "aioproducer.__pyinstaller",
    "aioproducer.spark",
    "aioproducer.telemetry",
    "aioproducer.testing",
)

hiddenimports = collect_submodules(
    "aioproducer", filter=lambda name: not name.startswith(_OPTIONAL)
)
hiddenimports += ["anyio._backends._asyncio"]
hiddenimports += [name for name in ("cramjam", "gssapi") if can_import_module(name)]
datas = copy_metadata("crc32c") if can_import_module("crc32c") else []
excludedimports = ["pyarrow"]
