"""The exit statuses of the command line and the errors that carry them.

Libraries raise, only ``cli`` prints: one line that says what, where and what to do.
"""

from collections.abc import Collection, Iterable
from enum import IntEnum


class ExitStatus(IntEnum):
    """What the process says to its caller; when several apply the order is 5, 130, 2, 3, 4, 1."""

    OK = 0
    FOUND = 1
    """Findings at ``--fail-on``, a gate failed, a claim did not hold, ``--check`` differs."""
    USAGE = 2
    """Wrong usage, or an input file that is missing, unreadable or of another schema."""
    CONFIGURATION = 3
    """A configuration could not be parsed, or the target's ``nginx -t`` rejects it."""
    UNDECIDED = 4
    """Something needed could not be measured or decided: tool, permission, fact, ``invalid``."""
    STUCK = 5
    """A change could neither be kept nor taken back."""
    INTERRUPTED = 130


_PRECEDENCE = (
    ExitStatus.STUCK,
    ExitStatus.INTERRUPTED,
    ExitStatus.USAGE,
    ExitStatus.CONFIGURATION,
    ExitStatus.UNDECIDED,
    ExitStatus.FOUND,
)


def worst(*statuses: ExitStatus) -> ExitStatus:
    """The one status that stands for several."""
    return next((status for status in _PRECEDENCE if status in statuses), ExitStatus.OK)


class NginxTuneError(Exception):
    """A failure with one line for the user, an optional hint (one action) and an exit status."""

    status = ExitStatus.UNDECIDED

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(NginxTuneError):
    """The call or one of its input files is wrong."""

    status = ExitStatus.USAGE


class ConfigurationError(NginxTuneError):
    """A configuration that cannot be parsed or that nginx rejects."""

    status = ExitStatus.CONFIGURATION

    def __init__(self, message: str, *, file: str = "", line: int = 0, hint: str = "") -> None:
        place = f"{file}:{line}: " if file and line else f"{file}: " if file else ""
        super().__init__(place + message, hint=hint)
        self.file = file
        self.line = line


class UndecidedError(NginxTuneError):
    """Something needed could not be measured or decided."""


class MissingToolError(UndecidedError):
    """A program that this step needs is not on the host."""


class MissingPermissionError(UndecidedError):
    """This step needs a right that the caller does not have."""


def name_meant(word: str, known: Iterable[str]) -> str:
    """``is audit meant?`` for the known name nearest to ``word``; empty where none is near.

    A name that begins with all of the word is nearer than one with similar letters.
    """
    names = sorted(known, key=len)
    low = word.lower()
    near = [name for name in names if len(low) > 1 and name.lower().startswith(low)]
    near = near or near_names(low, names)
    return f"is {near[0]} meant?" if near else ""


def near_names(word: str, known: Collection[str]) -> list[str]:
    """Names with one letter changed, or a quarter of the letters; the nearest first."""
    from difflib import get_close_matches  # noqa: PLC0415  # only on the way out

    most = max(1, len(word) // 4)
    return [name for name in get_close_matches(word, known) if _edits(word, name.lower()) <= most]


def _edits(word: str, name: str) -> int:
    """Letters to insert, remove, replace or swap with the next (optimal string alignment)."""
    rows = [list(range(len(name) + 1))]
    for row, letter in enumerate(word, 1):
        before, now = rows[-1], [row]
        for column, other in enumerate(name, 1):
            least = min(before[column] + 1, now[-1] + 1, before[column - 1] + (letter != other))
            if row > 1 < column and (letter, word[row - 2]) == (name[column - 2], other):
                least = min(least, rows[-2][column - 2] + 1)
            now.append(least)
        rows.append(now)
    return rows[-1][-1]
