"""Puts the templates and, where there is a cargo, the static load probe into the package.

An editable install has the probe as the Rust tests build it (the profile ``checked`` of
``probes/Cargo.toml``), a wheel the one that is optimized as a whole (``release``), or the
executable that ``NGINX_TUNE_PROBE`` names, with the licence texts of its crates beside it
(``PATH.licences``, as ``python build_hook.py`` prints them).

Without a usable cargo the wheel is an honest pure one (``py3-none-any``) with a warning;
``NGINX_TUNE_REQUIRE_RUST=1`` makes that an error.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PROBE = "nginx-tune-probe"
LICENCES = ".licences"
TERMINAL = Path("/dev/tty")
ARCHITECTURES = {62: "x86_64", 183: "aarch64"}
"""By ``e_machine`` of an ELF header (elf(5))."""
_INTERPRETER = 3
"""``PT_INTERP``: an executable that has it needs the dynamic loader of one C library."""


class ProbeBuildHook(BuildHookInterface[Any]):
    """Maps the probe, a prebuilt one or cargo's, into ``nginx_tune/_bin``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the executable and the templates to the wheel that is being built."""
        root = Path(self.root)
        editable = version == "editable"
        if not editable:
            build_data["force_include"][str(root / "templates")] = "nginx_tune/templates"
        built = self._find_probe(root, "checked" if editable else "release")
        if built is None:
            return
        packaged = root / "nginx_tune" / "_bin" / PROBE
        packaged.parent.mkdir(exist_ok=True)
        # A running probe keeps its file busy: replace the name, not the bytes.
        fresh = packaged.with_suffix(".new")
        shutil.copy2(built, fresh)
        fresh.chmod(0o755)  # storage between the jobs of a pipeline keeps no modes
        fresh.replace(packaged)
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform_tag(built)}"
        if not editable:
            build_data["force_include"][str(packaged)] = f"nginx_tune/_bin/{PROBE}"
            texts = Path(f"{packaged}{LICENCES}")
            beside = Path(f"{built}{LICENCES}")
            text = beside.read_text() if beside.is_file() else crate_licences(root / "probes")
            texts.write_text(text)
            build_data["force_include"][str(texts)] = f"nginx_tune/_bin/{texts.name}"

    def _find_probe(self, root: Path, profile: str) -> Path | None:
        prebuilt = os.environ.get("NGINX_TUNE_PROBE")
        if prebuilt:
            beside = Path(f"{prebuilt}{LICENCES}")
            for needed in (Path(prebuilt), beside):
                if not needed.is_file():
                    raise SystemExit(f"NGINX_TUNE_PROBE: there is no file {needed}")
            return Path(prebuilt)
        cargo = os.environ.get("CARGO") or shutil.which("cargo")
        reason = "no cargo on PATH"
        if cargo:
            build = [cargo, "build", "--profile", profile, "--locked"]
            built = Path(os.environ.get("CARGO_TARGET_DIR", root / "probes" / "target"))
            built = built / profile / PROBE
            reason = f"'{' '.join(build)}' failed"
            try:
                run = subprocess.run(build, cwd=root / "probes", check=False)
            except OSError as error:
                reason = f"{cargo} (CARGO) cannot be run: {error.strerror}"
            else:
                if run.returncode == 0 and built.is_file():
                    return built
        if os.environ.get("NGINX_TUNE_REQUIRE_RUST") == "1":
            raise SystemExit(f"the load probe could not be built: {reason}")
        self.app.display_warning(f"building without the load probe: {reason}")
        tell_terminal(
            f"nginx-tune is installed without its load probe ({reason}): probe, validate, rehearse"
            " and scenario will exit 4"
        )
        return None


def tell_terminal(line: str) -> None:
    """Show a line to whoever waits at a terminal: pip keeps what a successful build prints."""
    with contextlib.suppress(OSError), TERMINAL.open("w") as terminal:
        terminal.write(f"\n{line}\n")


def platform_tag(executable: Path) -> str:
    """The platforms that an ELF executable runs on, as a wheel's name has them (PEP 425, 600, 656).

    One without a dynamic loader serves every Linux of its CPU, whatever its C library.
    Errors: SystemExit for what is no little-endian ELF file of 64 bits or has another CPU.
    """
    content = executable.read_bytes()
    if content[:6] != b"\x7fELF\x02\x01" or len(content) < 64:  # noqa: PLR2004  # an ELF header
        raise SystemExit(f"{executable} is no executable for Linux on x86_64 or aarch64")
    machine, first, size, count = struct.unpack_from("<18xH12xQ14xHH", content)
    if machine not in ARCHITECTURES:
        raise SystemExit(f"{executable} is for a CPU without a wheel (ELF machine {machine})")
    architecture = ARCHITECTURES[machine]
    segments = [struct.unpack_from("<I", content, first + n * size)[0] for n in range(count)]
    if _INTERPRETER in segments:
        return f"linux_{architecture}"
    return (
        f"manylinux_2_17_{architecture}.manylinux2014_{architecture}.musllinux_1_1_{architecture}"
    )


def crate_licences(crate: Path) -> str:
    """The licences of the crates that an executable links, each text once.

    Errors: SystemExit when cargo cannot list them.
    """
    cargo = os.environ.get("CARGO") or shutil.which("cargo") or "cargo"
    command = [cargo, "metadata", "--format-version", "1", "--locked"]
    command += ["--filter-platform", "x86_64-unknown-linux-musl"]
    run = subprocess.run(command, cwd=crate, check=False, capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"'{' '.join(command)}' failed: {run.stderr.strip()}")
    graph = json.loads(run.stdout)
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    linked: set[str] = set()
    waiting = [graph["resolve"]["root"]]
    while waiting:
        crate_id = waiting.pop()
        if crate_id not in linked:
            linked.add(crate_id)
            waiting += [
                needed["pkg"]
                for needed in nodes[crate_id]["deps"]
                if any(kind["kind"] is None for kind in needed["dep_kinds"])
            ]
    packages = [one for one in graph["packages"] if one["id"] in linked and one["source"]]
    users: dict[str, list[str]] = {}
    for package in sorted(packages, key=lambda one: (one["name"], one["version"])):
        name = f"{package['name']} {package['version']} ({package['license']})"
        directory = Path(package["manifest_path"]).parent
        names = ("LICEN", "COPY", "NOTICE", "UNLICENSE")
        texts = [one for one in sorted(directory.iterdir()) if one.name.upper().startswith(names)]
        for text in texts:
            if text.is_file():
                users.setdefault(text.read_text(errors="replace").strip(), []).append(name)
        if not texts:
            by = ", ".join(package["authors"])
            users.setdefault(f"No text in the crate; its authors: {by}", []).append(name)
    line = "=" * 80
    return "\n".join(f"{line}\n" + "\n".join(by) + f"\n\n{text}\n" for text, by in users.items())


if __name__ == "__main__":
    sys.stdout.write(crate_licences(Path(__file__).parent / "probes"))
