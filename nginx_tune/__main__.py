"""``python -m nginx_tune``."""

import os
import sys


def _leave_the_working_directory() -> None:
    """Python takes modules from there first; what lies in it is not ours."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    try:
        here = os.getcwd()  # noqa: PTH109
    except OSError:  # it is gone
        return
    if here != ours and sys.path[:1] == [here]:
        del sys.path[0]


if __name__ == "__main__":
    _leave_the_working_directory()

from nginx_tune.cli.main import main  # noqa: E402  # only now

if __name__ == "__main__":
    raise SystemExit(main())
