"""Who calls: the user that a command acts for.

This file is part of the collector: standard library, Python 3.6.
"""

import os
import re


def caller_id() -> int:
    """The id of the user who called; behind sudo the one who typed it.

    Source: sudo(8), SUDO_UID. It says for whom root acts, and gives nobody a right that who may
    call sudo has not: his files are believed as root's where they are named.
    """
    asked = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and re.fullmatch(r"[0-9]{1,10}", asked):
        return int(asked)
    return os.getuid()
