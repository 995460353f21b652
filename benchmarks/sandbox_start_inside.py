"""Inside the sandbox for ``sandbox_start.py``: each run ends once its nginx has started.

It replaces only the server that a run starts: the server is timed, ended, and reported as the
reason why there is no measurement. It works with the package of either checkout.
"""

import json
import runpy
import time
from typing import Any
from unittest import mock

from nginx_tune.errors import UndecidedError
from nginx_tune.experiment import one_run

_start = one_run.start_instance


def _start_and_end(*arguments: Any, **options: Any) -> Any:
    began = time.perf_counter()
    instance = _start(*arguments, **options)
    started = time.perf_counter()
    instance.stop()
    ended = time.perf_counter()
    timed = {
        "start of a run": started - began,
        "its end": ended - started,
        "both": ended - began,
    }
    raise UndecidedError(json.dumps(timed))


if __name__ == "__main__":
    with mock.patch.object(one_run, "start_instance", _start_and_end):
        runpy.run_module("nginx_tune.experiment.inside", run_name="__main__", alter_sys=True)
