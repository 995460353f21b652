"""``python -m nginx_tune``, and the program ``nginx-tune``."""

import gc
import os
import sys


def _leave_the_working_directory() -> None:
    """Python looks for modules there first, and other users' files may be there."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    try:
        here = os.getcwd()  # noqa: PTH109
    except OSError:  # it is gone
        return
    if here != ours and sys.path[:1] == [here]:
        del sys.path[0]


def main() -> int:
    """Run the command line; the exit status, 130 for Ctrl-C at any time."""
    try:
        from nginx_tune.cli.signals import ended_at_once  # noqa: PLC0415  # Ctrl-C may come already

        with ended_at_once():
            from nginx_tune.cli.main import main as run  # noqa: PLC0415
        status = run()
    except KeyboardInterrupt:
        os.write(2, b"nginx-tune: interrupted\n")
        return 130
    gc.freeze()  # as it exits, Python looks for circles: a tenth of an audit of 5,000 servers
    return status


if __name__ == "__main__":
    _leave_the_working_directory()
    raise SystemExit(main())
