"""The collector's command: what it is asked for, and the capture it writes.

This file is part of the collector: standard library, Python 3.6.
"""

import argparse
import json
import os
import sys
from typing import Any, Dict, List, Optional

from nginx_tune import __version__
from nginx_tune.host.collect import Collector
from nginx_tune.host.collect_here import Here
from nginx_tune.host.redaction import escaped, redact_answers
from nginx_tune.host.trust import acts_as_root, foreign_link


def collected(machine: Any, paths: List[str], nginx: Optional[str], pid: Optional[int]) -> Any:
    """The capture of a machine, secrets redacted."""
    collector = Collector(machine)
    collector.collect(paths, nginx)
    request: Dict[str, Any] = {
        "paths": [escaped(path) for path in paths],
        "datasets": [],
        "nginx_binary": nginx,
        "pid": pid,
        "link_speeds": {},
    }
    answers, request = redact_answers(collector.answers, request)
    return {
        "schema": "nginx-tune/capture/1",
        "tool_version": __version__,
        "request": request,
        "answers": answers,
    }


def main() -> int:
    """Write the capture; the exit status."""
    parser = argparse.ArgumentParser(
        description="Record this host for nginx-tune; secrets are redacted. "
        "Then, anywhere: nginx-tune inspect --host FILE"
    )
    parser.add_argument("--path", action="append", default=[], help="a path whose disks matter")
    parser.add_argument("--nginx", help="the nginx executable")
    parser.add_argument("--pid", type=int, help="the nginx master to look at")
    parser.add_argument("-o", "--output", help="write there (mode 0600), not to standard output")
    given = parser.parse_args()
    paths = [os.path.abspath(path) for path in given.path]  # noqa: PTH100
    capture = collected(Here(), paths, given.nginx, given.pid)
    text = json.dumps(capture, indent=2, sort_keys=True) + "\n"
    if given.output is None:
        sys.stdout.write(text)
        return 0
    why = foreign_link(given.output) if acts_as_root() else ""
    if why:
        sys.stderr.write("{}: not written as root: {}\n".format(given.output, why))
        return 2
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        with os.fdopen(os.open(given.output, flags, 0o600), "w") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(text)
    except OSError as error:
        sys.stderr.write("{}: cannot write: {}\n".format(given.output, error.strerror))
        return 2
    return 0
