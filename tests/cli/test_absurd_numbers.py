"""Numbers, times and sizes that nobody can mean: one line that names the option, exit status 2."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from recorded_hosts import facts_bytes
from rows import each_row
from tiers import REPEAT, dice, draws

from nginx_tune.cli.main import cli, main
from nginx_tune.cli.options import Duration, FiniteNumber, Whole, parse_duration
from nginx_tune.cli.probe_load import parse_bytes, parse_caps
from nginx_tune.errors import UsageError
from nginx_tune.measure.proof.expression import parse_expression

DRAWN = draws(4, 12)
ALWAYS = ("", " ", "-1", "nan", "NaN", "inf", "-inf", "1e400", "-1e400", "٣", "\uff11\uff10", "²",
          "1_0", "0x10", "9" * 400, "--", "1,5", "None", "1;2", "\x1b[31m5")  # fmt: skip
DIGITS = ["".join(map(chr, range(zero, zero + 10))) for zero in (0x30, 0x660, 0x966, 0xFF10)]
"""Of ASCII, Arabic, Devanagari, and as wide as Chinese writing has them."""
PLAIN = re.compile(r"\s*[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?\s*")
TEXTS = {"--rate", "--keepalive", "--status", "--stripe", "--start-at"}


def options(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Each command's words with each of its options that takes a number or a time."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from options(command, (*path, name))
            continue
        for option in command.params if command else ():
            if isinstance(option, click.Option):
                kind = type(option.type).__name__
                yield (*path, name, option.opts[0], kind)


EVERY = list(options(cli))
NUMBERS = [one for one in EVERY if one[-1] in ("Whole", "FiniteNumber", "Duration")]


def kind_of(words: tuple[str, ...]) -> Whole | FiniteNumber | Duration:
    command: click.Command | None = cli
    for word in words[:-2]:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word)
    assert command is not None
    (option,) = [one for one in command.params if words[-2] in one.opts]
    kind = option.type
    assert isinstance(kind, Whole | FiniteNumber | Duration)
    return kind


def drawn(chance: random.Random) -> str:
    digits = chance.choice(DIGITS)
    number = "".join(chance.choice(digits) for _ in range(chance.choice((1, 2, 5, 30, 400))))
    power = chance.choice(("", "", "", "e400", "e-400", "E99", ".5", "."))
    sign = chance.choice(("", "", "-", "+", "\u2212"))
    return f"{sign}{number}{power}{chance.choice(('', '', 's', 'm', 'h', 'ms', ' s', 'd', 'k'))}"


def is_meant(text: str, kind: Whole | FiniteNumber | Duration) -> bool:
    """Whether it is a number, or a time, that the option may take."""
    if isinstance(kind, Duration):
        unit = text.strip().lstrip("+-0123456789.").strip()
        number = text.strip()[: len(text.strip()) - len(unit)].strip() if unit else text.strip()
        scale = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "": 1.0}.get(unit)
        if scale is None or not re.fullmatch(r"[0-9]+(\.[0-9]+)?", number):
            return False
        return 0 <= float(number) * scale <= 366 * 86400  # nothing is one of the words of some
    if not PLAIN.fullmatch(text) or (isinstance(kind, Whole) and not text.strip("+- ").isdigit()):
        return False
    value, low, high = float(text), kind.min, kind.max
    # Too long to be held without loss, too.
    return abs(value) < 1e300 and (low is None or value >= low) and (high is None or value <= high)


@pytest.mark.long
@each_row("words", NUMBERS)
def test_an_absurd_number_is_one_line_that_names_its_option(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    chance = dice(words)
    kind, option = kind_of(words), words[-2]
    absurd = [*ALWAYS, *(drawn(chance) for _ in range(DRAWN))]
    tried = [text for text in absurd if not is_meant(text, kind)]
    assert len(tried) > len(ALWAYS) // 2
    for text in tried:
        told = f"{REPEAT}: {option}={text[:60]!r}"
        assert main([*words[:-2], f"{option}={text}"]) == 2, told
        said = capsys.readouterr()
        assert said.out == "", told
        assert said.err.count("\n") == 1, told
        assert f"'{option}'" in said.err, told
        assert "\x1b" not in said.err, told


def test_every_number_of_the_command_line_has_a_type_of_ours() -> None:
    kinds = {one[-1] for one in EVERY}
    assert len(NUMBERS) > 30
    assert not kinds & {"IntRange", "FloatRange", "IntParamType", "FloatParamType"}


@each_row("option", sorted(TEXTS))
def test_an_absurd_word_of_probe_is_one_line(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = dice(option)
    for text in [*ALWAYS, "-5", *(drawn(chance) for _ in range(DRAWN))]:
        if re.match(r"[0-9]", text) and text.isascii():
            continue  # may be one that is meant
        told = f"{REPEAT}: {option}={text[:60]!r}"
        given = [f"{option}={text}", "--rate=5"] if option != "--rate" else [f"{option}={text}"]
        assert main(["probe", "http://127.0.0.1:1/", *given]) == 2, told
        said = capsys.readouterr().err
        assert said.count("\n") == 1, told
        assert option in said, told


@each_row(
    ("text", "said"),
    [
        ("999999999999h", "'999999999999h' is too long (a year, 8784h, is the longest)"),
        ("8785h", "is too long"),
        ("0s", "'0s' is not a duration"),
        ("9" * 400, "…' is too long"),
        ("٣s", "is not a duration"),
    ],
)
def test_a_time_that_nobody_waits_says_so(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_duration(text)
    assert said in f"{caught.value.message} ({caught.value.hint})"


@each_row("text", ["٣k", "1e400", "-1k", "0", "nan", "1k1"])
def test_sizes_and_caps(text: str) -> None:
    with pytest.raises(UsageError):
        parse_bytes(text, "--cap bytes")
    for name in ("bytes", "seconds", "connections"):
        if (name, text) != ("seconds", "1k1"):
            with pytest.raises(UsageError):
                parse_caps((f"{name}={text}",))


@each_row("limit", ["1e400ms", "1e300TB", "٣ms", "nanms", "-1ms", "infs", "1e999s"])
def test_a_gate_has_a_limit_that_is_finite(limit: str) -> None:
    """No number is above infinity: such a gate would always pass."""
    with pytest.raises(UsageError):
        parse_expression(f"hot.p99 <= {limit}")


def test_documents_and_settings_with_endless_numbers(run_cli, tmp_path: Path) -> None:
    """Python reads no number of more than 4,300 digits."""
    endless = "9" * 5_000
    settings = tmp_path / "nginx-tune.toml"
    settings.write_text(f"[audit]\nlimit = {endless}\n")
    run = run_cli("--config", settings, "explain", "--list")
    assert (run.returncode, "a number has too many digits" in run.stderr) == (2, True)
    facts = tmp_path / "facts.json"
    document = json.loads(facts_bytes("container-v2"))
    document["nginx"]["nginx_version"] = f"{endless}.1.1"
    document["kernel"]["release"] = endless
    document["kernel"]["sysctls"] = dict.fromkeys(document["kernel"]["sysctls"], endless)
    facts.write_text(json.dumps(document))
    for words in (["recommend"], ["generate", "--kind", "proxy"]):
        run = run_cli(*words, "--facts", facts)
        assert run.returncode == 0, run.stderr
