"""Applies under faults: each must leave the old files or the new ones, never a mixture.

    sudo python benchmarks/apply_faults.py [--runs 200] [--seed N] [--nginx NGINX] [FAULT...]

``apply`` changes one file and creates another under a running nginx. At a random moment one of
these faults occurs:

- ``kill``: the process is killed (SIGKILL).
- ``full``, ``full-state``: from the start, the disk of the tree, or of the state directory, has
  only up to 24 KiB left, at random.
- ``read-only``: the disk of the tree becomes read-only.
- ``immutable``: the changed file becomes immutable.

Then the fault is removed and ``rollback --recover`` runs, as it does at boot. The tree (bytes,
owner, mode, names) and the answers of nginx are compared with the old and the new state. The tool
prints a table in Markdown. The seed repeats the draws, but not the machine's timing. Everything
happens on file systems in memory, in a separate mount namespace.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

PROGRAM = (sys.executable, "-m", "nginx_tune", "-q")
LONGEST_SECONDS = 1.6
"""The range of random moments, for an apply that watches for 0.3 s; the latest are after its end.
"""
MOST_ROOM_BYTES = 24 << 10
FAULTS = ("kill", "full", "full-state", "read-only", "immutable")

MAIN = """
user root; worker_processes 1;
pid {root}/run/nginx.pid; error_log {root}/run/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off; client_body_temp_path {root}/run/a; proxy_temp_path {root}/run/b;
    fastcgi_temp_path {root}/run/c; uwsgi_temp_path {root}/run/d; scgi_temp_path {root}/run/e;
    include conf.d/*.conf;
}}
"""
SERVER = 'server {{ listen 127.0.0.1:{port}; location / {{ return 200 "{word}"; }} {more} }}\n'
PADDING = "# " + "x" * 4000 + "\n"


class Site:
    """A running nginx with its files on a small file system, and the change to make."""

    def __init__(self, root: Path, nginx: str) -> None:
        self.root, self.nginx = root, nginx
        self.tree, self.state = root / "etc", root / "state"
        for place in (self.tree, self.state):
            place.mkdir()
            mount("-t", "tmpfs", "-o", "size=32m,mode=700", "nginx-tune-faults", place)
        (root / "run").mkdir()
        (self.tree / "conf.d").mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.changed = self.tree / "conf.d/site.conf"
        self.made = self.tree / "conf.d/other.conf"
        (self.tree / "nginx.conf").write_text(MAIN.format(root=root))
        self.changed.write_text(SERVER.format(port=self.port, word="old", more="") + PADDING)
        self.new = root / "site.new"
        self.new.write_text(SERVER.format(port=self.port, word="new", more="gzip on;") + PADDING)
        self.other = root / "other.new"
        self.other.write_text("keepalive_timeout 7s;\n" + PADDING)
        self.before = self.look()
        subprocess.run([nginx, "-c", self.tree / "nginx.conf"], check=True, capture_output=True)
        until = time.monotonic() + 10
        while self.ask() != "old":
            if time.monotonic() > until:
                raise SystemExit(f"{nginx} does not come up")
            time.sleep(0.02)

    def look(self) -> dict[str, tuple[int, int, int, bytes]]:
        """Mode, owner and bytes by name in the tree."""
        found = {}
        for path in sorted(self.tree.rglob("*")):
            status = path.lstat()
            data = path.read_bytes() if path.is_file() else b""
            found[str(path)] = (status.st_mode, status.st_uid, status.st_gid, data)
        return found

    def is_new(self) -> bool:
        """True if both files are in the new state and there is nothing else."""
        now = self.look()
        expected = dict(self.before)
        mode, user, group, _ = expected[str(self.changed)]
        expected[str(self.changed)] = (mode, user, group, self.new.read_bytes())
        made = now.get(str(self.made))
        return made is not None and made[3] == self.other.read_bytes() and now == {
            **expected, str(self.made): made,
        }  # fmt: skip

    def ask(self) -> str:
        """nginx's answer; empty if there is none."""
        with contextlib.suppress(OSError), socket.create_connection(
            ("127.0.0.1", self.port), timeout=3
        ) as one:  # fmt: skip
            one.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return one.makefile("rb").read().partition(b"\r\n\r\n")[2].decode()
        return ""

    def reload(self) -> None:
        """Have nginx read the files again after chattr, whose change looks like an edit."""
        os.kill(int((self.root / "run/nginx.pid").read_text()), signal.SIGHUP)
        time.sleep(1)

    def apply(self) -> subprocess.Popen[str]:
        """Start a change of both files."""
        overlay = (f"{self.changed}={self.new}", f"{self.made}={self.other}")
        return subprocess.Popen(
            [*PROGRAM, "apply", "--overlay", overlay[0], "--overlay", overlay[1],
             "-c", self.tree / "nginx.conf", "--state-dir", self.state, "--watch", "300ms"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def rollback(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Roll a change back, or finish its recovery as at boot."""
        return subprocess.run(
            [*PROGRAM, "rollback", *options, "--state-dir", str(self.state)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip

    def stop(self) -> None:
        """Stop nginx and unmount."""
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self.root / "run/nginx.pid").read_text()), signal.SIGTERM)


def mount(*words: object) -> None:
    subprocess.run(["mount", *map(str, words)], check=True, capture_output=True)


def fill(place: Path, room_bytes: int) -> Path:
    """Fill a file system with a file, up to about ``room_bytes``."""
    ballast = place / ".room"
    size = max(0, shutil.disk_usage(place).free - room_bytes)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, size))
    return ballast


def make_read_only(place: Path, apply: subprocess.Popen[str]) -> None:
    """Make a file system read-only between two writes: during one, the kernel refuses."""
    while apply.poll() is None:
        done = subprocess.run(
            ["mount", "-o", "remount,ro", str(place)], capture_output=True, check=False
        )
        if done.returncode == 0:
            return


def under(site: Site, fault: str, draw: random.Random) -> tuple[int, str]:
    """One apply under a fault, which ends with this call; returns the exit status and output."""
    moment, room = draw.uniform(0.0, LONGEST_SECONDS), draw.randrange(MOST_ROOM_BYTES)
    ballast = None
    if fault.startswith("full"):
        ballast = fill(site.state if fault == "full-state" else site.tree, room)
    apply = site.apply()
    try:
        if not fault.startswith("full"):
            with contextlib.suppress(subprocess.TimeoutExpired):
                apply.wait(moment)
        if fault == "kill":
            apply.kill()
        elif fault == "read-only":
            make_read_only(site.tree, apply)
        elif fault == "immutable":
            subprocess.run(["chattr", "+i", str(site.changed)], capture_output=True, check=False)
        _, said = apply.communicate(timeout=120)
    finally:
        mount("-o", "remount,rw", site.tree)
        subprocess.run(["chattr", "-i", str(site.changed)], capture_output=True, check=False)
        if ballast is not None:
            ballast.unlink()
    return apply.returncode, said


def judge(site: Site, fault: str, status: int, said: str) -> str:
    """``old`` or ``new`` after the recovery of a boot; SystemExit for anything else."""
    recovered = site.rollback("--recover")
    told = f"exit {status}, {said!r}; recover: exit {recovered.returncode}, {recovered.stderr!r}"
    if "Traceback" in said + recovered.stderr:
        raise SystemExit(f"{fault}: {told}")
    until = time.monotonic() + 5
    while True:
        files = "old" if site.look() == site.before else "new" if site.is_new() else "a mixture"
        answer = site.ask()
        if files == answer:
            break
        if time.monotonic() > until:
            raise SystemExit(f"{fault}: the files are {files}, nginx says {answer!r}; {told}")
        time.sleep(0.05)  # the old worker may still have answered
    if files == "new":
        back = site.rollback()
        if back.returncode != 0 or site.look() != site.before:
            raise SystemExit(f"{fault}: not taken back: {back.stderr!r}; {told}")
        until = time.monotonic() + 5
        while site.ask() != "old" and time.monotonic() < until:
            time.sleep(0.05)
    return files


def main() -> None:
    """Make the runs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("faults", nargs="*", metavar="FAULT", default=[], help=", ".join(FAULTS))
    parser.add_argument("--runs", type=int, default=200, help="of each fault")
    parser.add_argument("--seed", type=int, default=time.time_ns() % (1 << 32))
    parser.add_argument("--nginx", default="/usr/sbin/nginx")
    given = parser.parse_args()
    if unknown := set(given.faults) - set(FAULTS):
        parser.error(f"no fault {', '.join(sorted(unknown))}: {', '.join(FAULTS)}")
    if os.environ.get("NGINX_TUNE_FAULTS") != "inside":
        os.environ["NGINX_TUNE_FAULTS"] = "inside"
        inside = ["unshare", "-m", sys.executable, *sys.argv]
        os.execvp(inside[0], inside)  # noqa: S606  # no shell is wanted
    draw = random.Random(given.seed)  # noqa: S311  # moments, not a secret
    print(f"seed {given.seed}", file=sys.stderr, flush=True)
    print("| fault | applies | old | new | exit codes |\n|---|---|---|---|---|")
    for fault in given.faults or FAULTS:
        root = Path(tempfile.mkdtemp(prefix="nginx-tune-faults-", dir="/root"))
        site = Site(root, given.nginx)
        ends: Counter[str] = Counter()
        codes: Counter[int] = Counter()
        try:
            for _ in range(given.runs):
                if fault == "immutable":
                    site.reload()
                status, said = under(site, fault, draw)
                codes[status] += 1
                ends[judge(site, fault, status, said)] += 1
        finally:
            site.stop()
            for place in (site.tree, site.state):
                subprocess.run(["umount", "-l", str(place)], check=False)
            shutil.rmtree(root, ignore_errors=True)
        shown = ", ".join(f"{code}: {count}" for code, count in sorted(codes.items()))
        row = f"| {fault} | {given.runs} | {ends['old']} | {ends['new']} | {shown} |"
        print(row, flush=True)


if __name__ == "__main__":
    main()
