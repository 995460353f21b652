"""An nginx that opens files in a thread pool, for ``benchmarks/threaded-open.toml``.

    python benchmarks/threaded_open.py --source NGINX --module MODULE [--release 1.22.1] DIRECTORY
    sudo nginx-tune scenario run benchmarks/threaded-open.toml --nginx DIRECTORY/nginx

NGINX and MODULE are git directories: of nginx with its tags, and of Kaltura's nginx-vod-module,
which serves unchanged files with ``vod none`` and opens them in a pool with
``vod_open_file_thread_pool``. Needs gcc, make and the headers of PCRE, OpenSSL and zlib. As root,
the scenario runs only programs that nobody else can change: DIRECTORY and all directories above it
must be root's.
"""

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path

from versions import build


def build_threaded(source: str, module: str, release: str, directory: Path) -> Path:
    """Build the program in a directory, which is made if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        of_module, of_nginx = Path(work, "module"), Path(work, "nginx")
        for made in (of_module, of_nginx):
            made.mkdir()
        archive = subprocess.run(
            ["git", "-C", module, "archive", "HEAD"], check=True, capture_output=True
        )
        subprocess.run(["tar", "x", "-C", of_module], input=archive.stdout, check=True)
        made = directory / "nginx"
        shutil.copy(build(source, release, of_nginx, module=of_module), made)
    return made


def main() -> None:
    """Build the program, and print the command that uses it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--source", required=True, help="git directory of nginx")
    parser.add_argument("--module", required=True, help="git directory of nginx-vod-module")
    parser.add_argument("--release", default="1.22.1", help="of nginx")
    parser.add_argument("directory", type=Path)
    given = parser.parse_args()
    made = build_threaded(given.source, given.module, given.release, given.directory.resolve())
    print(f"nginx-tune scenario run benchmarks/threaded-open.toml --nginx {made}")


if __name__ == "__main__":
    main()
