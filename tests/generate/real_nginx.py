"""Running the real nginx for a test."""

import subprocess

PATH = {"PATH": "/usr/sbin:/usr/bin:/usr/local/sbin"}


def check(conf: str, program: str = "nginx") -> subprocess.CompletedProcess[str]:
    """What ``nginx -t`` says."""
    return subprocess.run(
        [program, "-t", "-c", conf],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=PATH,
    )
