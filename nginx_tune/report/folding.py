"""Lines folded to a width: only at spaces, so that words, paths and commands stay whole.

In files, only comments and sentences of Markdown are folded. Each line of a folded comment is a
comment, so that text copied from the terminal is still a valid configuration, diff or scenario.
"""

import re
import textwrap
from collections.abc import Callable

_COMMAND = re.compile(
    r"\(?(?:sudo )?(?:nginx-tune (?:(?!&& )[^\s;,()'\"]+|'[^']*'|(?<!\.)\s(?![\s&]))+(?: &&)?"
    r"|sysctl (?:-w )?[\w.]+=\S*[^\s;,)]"
    r"|(?:apt-get|apt|dnf|yum|zypper|apk|pacman) (?:install|add|-S)(?: [\w.+-]*\w)+)"
)
_WORD = re.compile(r"'[^']*'|[^\s']+(?:'[^']*')?")
_GROUPS = ("scenario", "runs", "lab")
"""Commands whose next word belongs to their name."""
_HELD = "\0"
"""A fixed space, at which no line ends; no text has it, since control characters are escaped."""
_UNIT = re.compile(
    r"(?<=[0-9]) (?=(?:%|[mµ]?s(?:/s)?|[KMGT]?i?B(?:/s)?)(?![\w-]))"
    r"|(?<=[0-9%sB]) (?=– [0-9])|(?<=[0-9%sB] –) (?=[0-9])"
    r"|(?<=[0-9]) (?=× [a-z])|(?<=[0-9] ×) (?=[a-z])"
)
"""A space between a number and its unit, or inside ``2 – 3`` or ``4 × hdd``."""
_GAP = re.compile(r"\S(\s{2,})(?=\S)")
LEAST_CELL = 26
"""Minimum number of columns for the last cell beside the others; with less it is put below them."""
_HANG = 2
_PAGE_WIDTH = 80
"""Minimum width to which the paragraphs of a page are filled."""
_LONG_LINE = 40


def hold_units(text: str) -> str:
    """The text with fixed spaces between numbers and their units; undone by :func:`let_go`."""
    return _UNIT.sub(_HELD, text)


def let_go(text: str, space: str = " ") -> str:
    """The text with its fixed spaces as spaces again, or as another character."""
    return text.replace(_HELD, space)


def fold(text: str, width: int, *, hang: int = _HANG) -> list[str]:
    """The text in lines of whole words, all but the first indented by ``hang``.

    A command stays on one line if it fits; otherwise it is put on separate lines, continued by
    backslashes as in a shell.
    """
    lines: list[str] = []
    held = _COMMAND.sub(lambda found: _held(found[0], width - hang), hold_units(text))
    for part in held.split("\n"):
        first = " " * hang if lines else ""
        lines += textwrap.wrap(
            part.strip() if lines else part,
            max(width, 1),
            initial_indent=first,
            subsequent_indent=" " * hang,
            break_long_words=False,
            break_on_hyphens=False,
            replace_whitespace=False,
        )
    return [let_go(line).rstrip() for line in lines] or [""]


def fold_text(text: str, width: int, *, is_page: bool = True) -> str:
    """Text of several lines, with long lines folded.

    Cells stay in their column if it is wide enough. The paragraphs of a page are rewrapped if they
    are too wide; with ``is_page`` false, lines are not joined.
    """
    lines = text.splitlines()
    if is_page and any(len(line) > width and not _GAP.search(line) for line in lines):
        lines = _unfilled(lines)
    return "".join(f"{part}\n" for line in lines for part in _folded_line(line, width))


def _folded_line(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    text = line.lstrip(" ")
    indent = len(line) - len(text)
    cells = [gap.end() for gap in _GAP.finditer(line)]
    if cells and width - cells[-1] >= LEAST_CELL:
        start = cells[-1]
        folded = fold(line[start:], width - start, hang=0)
        # A command too long for its column is put below, where it may fit on one line.
        is_whole = not any(part.endswith(" \\") for part in folded)
        if max(map(len, folded)) <= width - start and is_whole:
            return [line[:start] + folded[0], *(" " * start + part for part in folded[1:])]
    is_prose = indent and not cells and not text.startswith("- ")
    hang = 0 if is_prose else _HANG
    return [" " * indent + part for part in fold(text, width - indent, hang=hang)]


def _held(whole: str, room: int) -> str:
    """A command with fixed spaces; if it is too long, the words after it may be folded."""
    if len(whole) <= room:
        return whole.replace(" ", _HELD)
    if whole.startswith("("):  # the bracket stays with the command, not at the end of a line
        held = _held(whole[1:], room - 1)
        return f"\n({held[1:]}" if held.startswith("\n") else f"({held}"
    words = _WORD.findall(whole)
    count = _own_words(words)
    if count == len(words) and " ".join(words) != whole:
        return whole
    command, rest = " ".join(words[:count]), " ".join(words[count:])
    if len(command) <= room:
        return command.replace(" ", _HELD) + (f" {rest}" if rest else "")
    shown = "\n".join(_broken(words[:count], room - _HANG)).replace(" ", _HELD)
    return f"\n{shown}" + (f"\n{rest}" if rest else "")


def fold_command(text: str, width: int) -> list[str]:
    """A command line on several lines with backslashes, all but the first indented."""
    first, *rest = _broken(_WORD.findall(text), width - _HANG)
    return [first, *(" " * _HANG + line for line in rest)]


def _broken(words: list[str], room: int) -> list[str]:
    """The words on lines of at most ``room`` columns; all but the last end with a backslash."""
    units: list[str] = []
    for word in words:  # an option and its value stay together
        if units and units[-1].startswith("-") and " " not in units[-1] and word[:1] != "-":
            units[-1] += f" {word}"
        else:
            units.append(word)
    lines = [""]
    for word in units:
        if lines[-1] and len(lines[-1]) + 1 + len(word) + len(" \\") > room:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return [*(f"{line} \\" for line in lines[:-1]), lines[-1]]


def _own_words(words: list[str]) -> int:
    """The number of words that are the command: its name, options with values, names, files."""
    count = 1 + words.index("nginx-tune") if "nginx-tune" in words else len(words)
    if count < len(words) and words[count] in _GROUPS:
        count += 1
    count += 1
    while count < len(words):
        word, before = words[count], words[count - 1]
        is_value = before.startswith("-") and "=" not in before
        if not (is_value or not word.isalpha() or word.isupper()):
            break
        count += 1
    return min(count, len(words))


def _unfilled(lines: list[str]) -> list[str]:
    """The lines, with each paragraph joined into one line.

    A line is joined to the one before it if its first word would not have fitted there.
    """
    joined: list[str] = []
    before = ""
    for line in lines:
        text = line.lstrip(" ")
        if joined and text and _goes_on(before, line):
            joined[-1] += f" {text}"
        else:
            joined.append(line)
        before = line
    return joined


def _goes_on(before: str, line: str) -> bool:
    text, after = before.lstrip(" "), line.lstrip(" ")
    own = len(before) - len(text) + (_HANG if text.startswith("- ") else 0)
    word = after.split(maxsplit=1)[0]
    return (
        len(before) > _LONG_LINE
        and own == len(line) - len(after)
        and len(before) + 1 + len(word) > _PAGE_WIDTH
        and not _GAP.search(before)
        and not _GAP.search(line)
        and not after.startswith("- ")
    )


_COMMENT = re.compile(r"(?P<indent>\s*)#(?P<gap>\s*)(?P<text>\S.*)")
_BEHIND = re.compile(r"(?P<code>.*[;{}]\s+)# (?P<text>.*)")
_FENCE = "```"
_BULLET = "- "


def fold_file(text: str, form: str, width: int) -> str:
    """The text of a file, folded to a terminal's width; ``form`` is the name of its format."""
    folded = _FORMS.get(form)
    if folded is None or max(map(len, text.split("\n"))) <= width:
        return text
    lines: list[str] = []
    is_code = False
    for line in text.split("\n"):
        if form == "md" and line.startswith(_FENCE):
            is_code = not is_code
        lines += [line] if is_code or len(line) <= width else folded(line, width)
    return "\n".join(lines)


def _commented(line: str, width: int) -> list[str]:
    """A line of a configuration with its comment folded, in the comment's column if possible."""
    whole = _COMMENT.fullmatch(line)
    if whole is not None:
        gap = whole["gap"]
        return _comment(whole["text"], whole["indent"] + "#" + gap, width, hang=2)
    behind = _BEHIND.fullmatch(line)
    if behind is None or behind["code"].count('"') % 2 or behind["code"].count("'") % 2:
        return [line]
    code, text = behind["code"], behind["text"]
    if width - len(code) >= LEAST_CELL:
        first, *rest = _comment(text, " " * len(code) + "# ", width, hang=0)
        return [code + first[len(code) :], *rest]
    indent = " " * (len(code) - len(code.lstrip()) + 2)
    return [code.rstrip(), *_comment(text, indent + "# ", width, hang=0)]


def _comment(text: str, start: str, width: int, *, hang: int) -> list[str]:
    # In a comment, a command continues on the next line without the shell's backslash.
    folded = fold(text, width - len(start), hang=hang)
    return [start + line.removesuffix(" \\") for line in folded]


def _headed(line: str, width: int) -> list[str]:
    """A line of a diff file: folded if it is a comment, otherwise unchanged."""
    return _commented(line, width) if line.startswith("#") else [line]


def _sentence(line: str, width: int) -> list[str]:
    """A folded line of Markdown; rows of tables, code and headings stay on one line."""
    if line.startswith(("|", " ", "#")):
        return [line]
    return fold(line, width, hang=len(_BULLET) if line.startswith(_BULLET) else 0)


_FORMS: dict[str, Callable[[str, int], list[str]]] = {
    "nginx": _commented,
    "sysctl": _commented,
    "unit": _commented,
    "toml": _commented,
    "diff": _headed,
    "md": _sentence,
}
