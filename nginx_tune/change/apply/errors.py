"""How a change ends otherwise than kept."""

from __future__ import annotations

from collections.abc import Sequence

from nginx_tune.errors import ExitStatus, NginxTuneError


class RefusedError(NginxTuneError):
    """Not begun: nothing was changed."""

    status = ExitStatus.USAGE


class RejectedError(RefusedError):
    """The target's ``nginx -t`` rejects what is there, or what would be there."""

    status = ExitStatus.CONFIGURATION


class StuckError(NginxTuneError):
    """It could neither be kept nor taken back."""

    status = ExitStatus.STUCK

    def __init__(self, message: str, *, paths: Sequence[str] = (), hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.paths = list(paths)


class ForeignError(StuckError):
    """Somebody else has written to files of the change since."""


def disk_words(error: OSError) -> str:
    """What went wrong with a file, after its name where that is known."""
    words = error.strerror or str(error)
    return f"{error.filename}: {words}" if error.filename else words


def reason_of(error: BaseException) -> str:
    """Why a change was taken back, in words for its journal."""
    if isinstance(error, NginxTuneError):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "interrupted" if isinstance(error, KeyboardInterrupt) else f"{error!r}"
