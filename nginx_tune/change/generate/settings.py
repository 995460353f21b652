"""Settings as lines: which replace each other, which go into a block, how they are written."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nginx_tune.change.generate.quoting import Written, comment, quote
from nginx_tune.documents.decisions import Context, Setting

_KEY_ARGUMENT = {
    "thread_pool": 0,
    "proxy_cache_path": 0,
    "split_clients": 1,
    "proxy_set_header": 0,
    "add_header": 0,
    "log_format": 0,
    "listen": 0,
}
"""Directives that may stand several times in a context, and the argument that tells them apart."""

_MOST_ALIGNED = 60
"""Comments align up to this column; a longer line has its comment above it."""


def key_of(setting: Setting) -> tuple[str, str]:
    """What two settings of one block must differ in not to replace each other."""
    place = _KEY_ARGUMENT.get(setting.directive)
    if place is None or place >= len(setting.args):
        return setting.directive, ""
    word = setting.args[place]
    return setting.directive, word.partition("=")[0] if setting.directive == "listen" else word


def merge(settings: Iterable[Setting], forced: Iterable[Setting]) -> list[Setting]:
    """The settings with ``forced`` on top, each in the place of what it replaces.

    A forced setting without a block replaces the same directive in every block of its context.
    """
    merged = list(settings)
    for new in forced:
        replaced = [
            index
            for index, old in enumerate(merged)
            if old.context == new.context
            and key_of(old) == key_of(new)
            and (not new.block or old.block == new.block)
        ]
        place = replaced[0] if replaced else len(merged)
        merged = [old for index, old in enumerate(merged) if index not in replaced]
        merged.insert(min(place, len(merged)), new)
    return merged


def within(settings: Sequence[Setting], context: Context, block: str = "") -> list[Setting]:
    """The settings of one block: its own, and those for every block that it does not replace."""
    own = [s for s in settings if s.context == context and s.block == block and block]
    taken = {key_of(s) for s in own}
    general = [
        s for s in settings if s.context == context and not s.block and key_of(s) not in taken
    ]
    return [*general, *own]


def written(settings: Sequence[Setting], indent: int) -> Written:
    """The settings as lines, each with its reason, comments aligned.

    Shape: no final newline; empty for no settings.
    """
    margin = " " * indent
    statements = [margin + statement(s) for s in settings]
    column = max((len(s) for s in statements if len(s) <= _MOST_ALIGNED), default=0)
    lines: list[str] = []
    for setting, line in zip(settings, statements, strict=True):
        if not setting.reason:
            lines.append(line)
        elif len(line) > _MOST_ALIGNED:
            lines += [f"{margin}# {comment(setting.reason)}", line]
        else:
            lines.append(f"{line.ljust(column)}  # {comment(setting.reason)}")
        if setting.lines:
            lines += [f"{margin}    {words(line)};" for line in setting.lines]
            lines.append(margin + "}")
    return Written("\n".join(lines))


def statement(setting: Setting) -> str:
    """The setting as it is written, or the beginning of its block."""
    said = words([setting.directive, *setting.args])
    return f"{said} {{" if setting.lines else f"{said};"


def words(found: Sequence[str]) -> str:
    """Words as nginx reads them, each quoted where it must be. Errors: UsageError (``quote``)."""
    return " ".join(quote(word, own_words=True) for word in found)
