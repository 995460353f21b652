"""Which programs and modules root starts in the sandbox: those that root alone could have written.

The walls hold what runs in them; that somebody else's code is not even tried as root is the belt
beside them, the same for a module as for the program that loads it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from nginx_tune.errors import UndecidedError
from nginx_tune.host.programs import is_vouched_for, why_not_run


def refuse_foreign_code(binary: str, modules: Iterable[str]) -> None:
    """See that nobody but root could have written nginx and what ``load_module`` names.

    Who vouches for the program (``--trust``) vouches for what it loads.
    Errors: UndecidedError that names the first.
    """
    if is_vouched_for(binary):
        return
    # What is not there nginx itself complains of.
    for path in (binary, *filter(_is_there, modules)):
        why = why_not_run(path)
        if why:
            raise UndecidedError(
                f"not run as root: {path}: {why}" if path not in why else f"not run as root: {why}",
                hint="give it to root with all directories above it, run this as its owner, or "
                "take your own word with --nginx BIN --trust",
            )


def _is_there(path: str) -> bool:
    try:
        return Path(path).exists()
    except (OSError, ValueError):
        return False
