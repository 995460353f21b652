"""Patterns in include lines, as in glob(3), which ngx_conf_include calls without flags.

``*``, ``?``, ``[…]`` and backslash are special in each component, none of them matches a leading
dot, and the result is in byte order.
"""

import re
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache

MOST_DIRECTORIES = 4096
"""Maximum number of directories that one pattern may search; real ones search a few."""
MOST_NAMES = 200_000
"""Maximum number of names that one pattern may be compared with."""


class TooWideError(Exception):
    """A pattern that would search much of the file system."""


_MAGIC = frozenset("*?[")
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_BRACKET = re.compile(r"\[[!^]?\]?(?:\[:\w+:\]|[^\]])*\]")
_CLASS = re.compile(r"\[:(\w+):\]")
_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "digit": "0-9", "lower": "a-z", "upper": "A-Z",
    "xdigit": "0-9A-Fa-f", "punct": ":-@!-/[-`{-~", "space": "\t-\r ", "blank": "\t ",
    "graph": '#-~!"', "print": " -~", "cntrl": "\x01-\x1f\x7f",
}  # fmt: skip
"""Character classes of the C locale, which nginx always uses. Source: POSIX, "RE Bracket
Expression"."""


def is_pattern(name: str) -> bool:
    """True if nginx treats an include's name as a pattern (strpbrk of ``*?[``)."""
    return not _MAGIC.isdisjoint(name)


def expand(pattern: str, list_dir: Callable[[str], list[str]]) -> list[str]:
    """The paths that match an absolute or relative pattern, in byte order.

    ``list_dir`` gives the names in a directory, and none if it is not a directory. Errors:
    TooWideError beyond the limits above.
    """
    listed = _bounded(list_dir)
    found = ["/" if pattern.startswith("/") else ""]
    is_matched = False
    for part in (part for part in pattern.split("/") if part):
        if is_pattern(part) or "\\" in part:
            is_matched = True
            matches = _component(part)
            found = [
                _join(base, name) for base in found for name in listed(base or ".") if matches(name)
            ]
        elif not is_matched:
            found = [_join(found[0], part)]
        else:
            found = [_join(base, part) for base in found if part in listed(base)]
    return sorted(found, key=lambda path: path.encode("utf-8", "surrogateescape"))


def matches_name(pattern: str, name: str) -> bool:
    """True if a name in a directory matches the last component of a pattern."""
    return bool(_component(pattern)(name)) if is_pattern(pattern) else pattern == name


def _bounded(list_dir: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    directories = names = 0

    def listed(directory: str) -> list[str]:
        nonlocal directories, names
        found = list_dir(directory)
        directories += 1
        names += len(found)
        if directories > MOST_DIRECTORIES or names > MOST_NAMES:
            raise TooWideError
        return found

    return listed


def _join(base: str, name: str) -> str:
    return name if not base else f"{base.rstrip('/')}/{name}"


@lru_cache(maxsize=256)
def _component(pattern: str) -> Callable[[str], object]:
    """A test of names against one component of a pattern."""
    # fnmatch is linear where ".*" would backtrack, but lacks [[:…:]], [^…] and backslash.
    pattern = _BRACKET.sub(
        lambda found: _CLASS.sub(lambda name: _CLASSES.get(name[1], ""), found[0]), pattern
    )
    spelled = _ESCAPED.sub(
        lambda match: f"[{match[1]}]" if match[1] in _MAGIC else match[1], pattern
    ).replace("[^", "[!")
    hidden = "" if spelled.startswith(".") else r"(?!\.)"
    return re.compile(hidden + translate(spelled)).fullmatch
