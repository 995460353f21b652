"""Puts the templates and, where there is a cargo, the static load probe into the package.

An editable install has the probe as the Rust tests build it (the profile ``checked`` of
``probes/Cargo.toml``), a wheel the one that is optimized as a whole (``release``).

Without a usable cargo the wheel is an honest pure one (``py3-none-any``) with a warning;
``NGINX_TUNE_REQUIRE_RUST=1`` makes that an error.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROBE = "nginx-tune-probe"


class ProbeBuildHook(BuildHookInterface[Any]):
    """Runs cargo and maps its executable into ``nginx_tune/_bin``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the executable and the templates to the wheel that is being built."""
        root = Path(self.root)
        editable = version == "editable"
        if not editable:
            build_data["force_include"][str(root / "templates")] = "nginx_tune/templates"
        built = self._build_probe(root, "checked" if editable else "release")
        if built is None:
            return
        packaged = root / "nginx_tune" / "_bin" / PROBE
        packaged.parent.mkdir(exist_ok=True)
        # A running probe keeps its file busy: replace the name, not the bytes.
        fresh = packaged.with_suffix(".new")
        shutil.copy2(built, fresh)
        fresh.replace(packaged)
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"py3-none-{platform}"
        if not editable:
            build_data["force_include"][str(packaged)] = f"nginx_tune/_bin/{PROBE}"

    def _build_probe(self, root: Path, profile: str) -> Path | None:
        cargo = os.environ.get("CARGO") or shutil.which("cargo")
        reason = "no cargo on PATH"
        if cargo:
            build = [cargo, "build", "--profile", profile, "--locked"]
            run = subprocess.run(build, cwd=root / "probes", check=False)
            built = Path(os.environ.get("CARGO_TARGET_DIR", root / "probes" / "target"))
            built = built / profile / PROBE
            if run.returncode == 0 and built.is_file():
                return built
            reason = f"'{' '.join(build)}' failed"
        if os.environ.get("NGINX_TUNE_REQUIRE_RUST") == "1":
            raise RuntimeError(f"the load probe could not be built: {reason}")
        self.app.display_warning(f"building without the load probe: {reason}")
        return None
