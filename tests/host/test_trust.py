"""Which programs root runs: those that nobody else could have written."""

import os
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from programs_of_others import NOBODY, give_to_nobody, roots_directory, write_program
from rows import each_row
from tiers import REPEAT, dice, draws
from twins import twin

from nginx_tune.errors import UsageError
from nginx_tune.host import programs
from nginx_tune.host.door import HostReadError
from nginx_tune.host.live import LiveHost
from nginx_tune.host.parse_elf import parse_elf
from nginx_tune.host.trust import distrust, distrust_directory, distrust_process
from nginx_tune.report.terminal.output import write_file

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def place() -> Iterator[Path]:
    with roots_directory() as path:
        yield path


def owned(place: Path) -> Path:
    program = write_program(place / "program")
    give_to_nobody(program)
    return program


def open_file(mode: int) -> Callable[[Path], Path]:
    return lambda place: write_program(place / "program", mode=mode)


def open_directory(mode: int, depth: int) -> Callable[[Path], Path]:
    def build(place: Path) -> Path:
        program = write_program(place / "one" / "two" / "three" / "program")
        program.parents[depth].chmod(mode)
        return program

    return build


def nobodys_directory(place: Path) -> Path:
    program = write_program(place / "one" / "two" / "program")
    give_to_nobody(place / "one")
    return program


def nobodys_link(place: Path) -> Path:
    write_program(place / "program")
    link = place / "link"
    link.symlink_to(place / "program")
    give_to_nobody(link)
    return link


def link_through(place: Path) -> Path:
    """Root's link leads through a directory of nobody's, and by .. out of it again."""
    write_program(place / "program")
    (place / "theirs").mkdir()
    give_to_nobody(place / "theirs")
    (place / "link").symlink_to("theirs/../program")
    return place / "link"


def linked_directory(place: Path) -> Path:
    write_program(place / "theirs" / "bin" / "program")
    give_to_nobody(place / "theirs")
    (place / "opt").symlink_to(place / "theirs" / "bin")
    return place / "opt" / "program"


def interpreter(place: Path) -> Path:
    shell = place / "shell"
    shutil.copy("/bin/sh", shell)
    give_to_nobody(shell)
    return write_program(place / "program", f"#! {shell} -e\n")


def under_tmp(place: Path) -> Path:
    """In a directory that is everybody's, though the sticky bit keeps its names."""
    path = Path("/tmp") / place.name
    return write_program(path)


UNTRUSTED = {
    "the file is nobody's": owned,
    "everybody writes the file": open_file(0o757),
    "a group writes the file": open_file(0o775),
    "everybody writes its directory": open_directory(0o777, 0),
    "a group writes its directory": open_directory(0o775, 0),
    "everybody writes a parent": open_directory(0o777, 1),
    "a group writes a parent": open_directory(0o2775, 2),
    "everybody writes a sticky directory": under_tmp,
    "a parent is nobody's": nobodys_directory,
    "the link is nobody's": nobodys_link,
    "a link leads through nobody's directory": link_through,
    "a directory on the way is a link to nobody's": linked_directory,
    "the interpreter is nobody's": interpreter,
}


@each_row("build", UNTRUSTED.values(), ids=UNTRUSTED.keys())
def test_what_others_could_have_written_is_not_run(build: Callable[[Path], Path]) -> None:
    with roots_directory() as place:
        program = build(place)
        try:
            assert distrust(str(program))
            with pytest.raises(HostReadError, match="refusing to run"):
                LiveHost().run([str(program)])
            with pytest.raises(programs.ProgramError):
                programs.start_program([program])
        finally:
            if program.parent == Path("/tmp"):
                program.unlink()


def test_what_only_root_could_have_written_is_run(place: Path) -> None:
    write_program(place / "real" / "program", "#!/bin/sh\necho ran\n")
    (place / "absolute").symlink_to(place / "real")
    (place / "relative").symlink_to("absolute/../real/program")
    for name in ("real/program", "absolute/program", "relative", "real/../relative"):
        assert distrust(str(place / name)) == ""
        assert LiveHost().run([str(place / name)]).stdout == "ran\n"


def test_every_step_that_is_opened_is_noticed(place: Path) -> None:
    """Any one step of a random tree, by any one of the ways."""
    draw = dice("steps of trust")
    for number in range(draws(40, 400)):
        parts = [f"d{draw.randrange(3)}" for _ in range(draw.randrange(1, 5))]
        program = write_program(place.joinpath(str(number), *parts, "program"))
        assert distrust(str(program)) == ""
        step = draw.choice([program, *list(program.parents)[: len(parts) + 1]])
        way = draw.choice(["owner", "group", "other"])
        if way == "owner":
            give_to_nobody(step)
        else:
            step.chmod(step.stat().st_mode | (0o020 if way == "group" else 0o002))
        assert str(step) in distrust(str(program)), (REPEAT, number)


def test_a_loop_of_links_is_no_hang(place: Path) -> None:
    (place / "a").symlink_to("b")
    (place / "b").symlink_to("a")
    assert "too many links" in distrust(str(place / "a"))


SOURCE = "int puts(const char *); int shown(void); int main(void) { return shown(); }\n"
LIBRARY = 'int puts(const char *); int shown(void) { puts("ran"); return 0; }\n'


def linked(place: Path, *flags: str) -> Path:
    """A program and its library in ``lib``, found by the given linker flags."""
    (place / "lib").mkdir()
    for name, text in (("main.c", SOURCE), ("shown.c", LIBRARY)):
        (place / name).write_text(text)
    library = place / "lib" / "libshown.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, place / "shown.c"], check=True)
    subprocess.run(
        ["gcc", "-o", place / "program", place / "main.c", f"-L{library.parent}",
         "-lshown", *flags], check=True,
    )  # fmt: skip
    return place / "program"


@pytest.mark.needs("gcc")
@each_row("flag", ["-Wl,-rpath,$ORIGIN/lib", "-Wl,--disable-new-dtags,-rpath,{place}/lib"])
@each_row("theirs", ["lib", "lib/libshown.so"])
def test_a_library_that_others_could_have_written(flag: str, theirs: str) -> None:
    with roots_directory() as place:
        program = linked(place, flag.format(place=place))
        assert distrust(str(program)) == ""
        assert LiveHost().run([str(program)]).stdout == "ran\n"
        give_to_nobody(place / theirs)
        assert str(place / theirs) in distrust(str(program))


@pytest.mark.needs("gcc")
@each_row("path", ["", ":/usr/lib", "lib", "/tmp/no/such/directory"])
def test_a_run_path_that_others_could_fill(path: str) -> None:
    with roots_directory() as place:
        program = linked(place, f"-Wl,-rpath,{path or ':'}")
        assert "it takes libraries from" in distrust(str(program))


@pytest.mark.needs("gcc")
def test_a_loader_that_others_could_have_written(place: Path) -> None:
    loader = place / "loader"
    shutil.copy("/lib64/ld-linux-x86-64.so.2" if os.uname().machine == "x86_64" else "/bin/sh",
                loader)  # fmt: skip
    program = linked(place, f"-Wl,-rpath,{place}/lib", f"-Wl,--dynamic-linker={loader}")
    assert distrust(str(program)) == ""
    give_to_nobody(loader)
    assert "its loader" in distrust(str(program))


def test_what_real_programs_load_is_seen() -> None:
    """Held against the loader's own word."""
    path = str(Path("/bin/sh").resolve())
    with Path(path).open("rb") as file:

        def read_at(offset: int, size: int) -> bytes:
            file.seek(offset)
            return file.read(size)

        elf = parse_elf(read_at)
    assert elf is not None
    said = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
    assert elf.libraries
    for library in elf.libraries:
        assert library in said
    assert elf.interpreter in said


def test_broken_elf_files_are_refused_not_followed(place: Path) -> None:
    draw = dice("broken elf")
    whole = Path("/bin/sh").resolve().read_bytes()
    program = write_program(place / "program")
    for _ in range(draws(300, 3000)):
        data = bytearray(whole)
        for _ in range(draw.randrange(1, 40)):
            data[draw.randrange(4, 1200)] = draw.randrange(256)
        program.write_bytes(data)
        assert isinstance(distrust(str(program)), str), REPEAT
    for head in (b"\x7fELF", b"\x7fELF\2\1", struct.pack("64s", b"\x7fELF\2\1")):
        program.write_bytes(head)
        assert isinstance(distrust(str(program)), str)


def test_what_a_user_may_have_mounted(place: Path) -> None:
    """Whoever mounts may show any owner; the kernel then has it nosuid."""
    theirs = place / "theirs"
    theirs.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nosuid,mode=0755", "x", theirs], check=True)
    try:
        program = write_program(theirs / "program")
        assert "mounted nosuid" in distrust(str(program))
        subprocess.run(["mount", "-o", "remount,suid", theirs], check=True)
        assert distrust(str(program)) == ""
    finally:
        subprocess.run(["umount", theirs], check=True)


@pytest.mark.needs("setfacl")
def test_an_access_list_shows_in_the_mode(place: Path) -> None:
    program = write_program(place / "program")
    subprocess.run(["setfacl", "-m", f"u:{NOBODY}:rwx", program], check=True)
    assert distrust(str(program))


def test_a_directory_that_is_not_there_is_its_parents() -> None:
    assert distrust_directory("/usr/local/lib/no/such") == ""
    assert distrust_directory("/tmp/no/such")
    assert distrust_directory("no/such")


def test_a_process_is_its_file_not_its_name(place: Path) -> None:
    sleeper = place / "nginx"
    shutil.copy("/bin/sleep", sleeper)
    process = subprocess.Popen([sleeper, "60"])
    try:
        assert distrust_process(process.pid) == ""
        sleeper.unlink()
        assert distrust_process(process.pid) == "", "an upgrade removes what runs"
        place.chmod(0o777)
        assert distrust_process(process.pid)
        place.chmod(0o755)
    finally:
        process.kill()
        process.wait()
    shutil.copy("/bin/sleep", sleeper)
    give_to_nobody(sleeper)
    process = subprocess.Popen([sleeper, "60"])
    try:
        assert str(NOBODY) in distrust_process(process.pid)
        with pytest.raises(HostReadError, match="refusing to run"):
            LiveHost().run([f"/proc/{process.pid}/exe", "1"])
    finally:
        process.kill()
        process.wait()


def test_between_the_look_and_the_start_it_stays_the_same_file(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = place / "nginx"
    shutil.copy("/bin/echo", program)
    shutil.copy("/bin/sleep", place / "sleep")
    sleeper = subprocess.Popen([place / "sleep", "60"])
    path = f"/proc/{sleeper.pid}/exe"
    look = programs.distrust_opened

    def look_and_end(link: str) -> str:
        why = look(link)
        sleeper.kill()
        sleeper.wait()
        return why

    monkeypatch.setattr(programs, "distrust_opened", look_and_end)
    try:
        before = set(Path("/proc/self/fd").iterdir())
        said = LiveHost().run([path, "--version"])
        assert "sleep" in said.stdout, "the process is gone, its number could be another's"
        assert set(Path("/proc/self/fd").iterdir()) == before
    finally:
        sleeper.kill()
        sleeper.wait()


def test_a_number_that_became_another_process_s_is_looked_at(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy("/bin/sleep", place / "nginx")
    give_to_nobody(place / "nginx")
    process = subprocess.Popen([place / "nginx", "60"])
    try:
        # As if the look had been at the process that had the number before.
        monkeypatch.setattr(programs, "check_program", lambda _: None)
        before = set(Path("/proc/self/fd").iterdir())
        with pytest.raises(HostReadError, match="refusing to run"):
            LiveHost().run([f"/proc/{process.pid}/exe", "0"])
        assert set(Path("/proc/self/fd").iterdir()) == before
    finally:
        process.kill()
        process.wait()


def load(place: Path, module: Path | str) -> Path:
    conf = place / "nginx.conf"
    conf.write_text(f"load_module {module};\nevents {{}}\n")
    return conf


@pytest.mark.needs("nginx", "loop")
def test_a_module_that_others_could_have_written_is_not_loaded_as_root(
    place: Path, run_cli: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    def tried(conf: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return run_cli("audit", conf, "--test", "--facts", "none", *words)

    module = place / "modules" / "module.so"
    module.parent.mkdir()
    module.write_bytes(b"no library")
    module.chmod(0o755)
    loaded = tried(load(place, module))
    assert (loaded.returncode, "module.so" in loaded.stdout) == (3, True), loaded.stderr
    assert "rejects it" in loaded.stdout, "it is tried: nginx says that it is no library"
    for spoil in (
        lambda: module.chmod(0o775),
        lambda: module.chmod(0o777),
        lambda: give_to_nobody(module),
        lambda: module.parent.chmod(0o777),
    ):
        spoil()
        for conf in (load(place, module), load(place, f"{place}/none/../modules/./module.so"),
                     load(place, os.path.relpath(module, "/usr/share/nginx"))):  # fmt: skip
            words = ("-p", "/usr/share/nginx")
            run = tried(conf, *words)
            assert run.returncode == 4, (run.stdout, run.stderr)
            assert "refusing to run" in run.stderr
            assert "module.so" in run.stderr or "modules" in run.stderr
            assert run.stderr.count("\n") <= 2
        compared = run_cli("validate", conf, "--against", twin(conf))
        assert compared.returncode == 4
        taken = tried(load(place, module), "--nginx", "/usr/sbin/nginx", "--trust")
        assert taken.returncode == 3, taken.stderr
        give_back(module)


def give_back(module: Path) -> None:
    os.chown(module, 0, 0)
    module.chmod(0o755)
    module.parent.chmod(0o755)


def test_roots_path_is_the_systems(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither PATH nor the working directory name programs, whoever owns them."""
    write_program(place / "ldd", "#!/bin/sh\necho mine\n")
    monkeypatch.setenv("PATH", f"{place}:.:")
    monkeypatch.chdir(place)
    assert LiveHost().find_program("ldd") != str(place / "ldd")
    assert "mine" not in LiveHost().run(["ldd", "--version"]).stdout


def test_the_next_directory_is_taken_where_one_is_open(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("first", "second"):
        write_program(place / name / "tool")
    monkeypatch.setattr(programs, "DIRECTORIES", (f"{place}/first", f"{place}/second"))
    assert programs.find_program("tool") == f"{place}/first/tool"
    (place / "first").chmod(0o777)
    assert programs.find_program("tool") == f"{place}/second/tool"
    (place / "second" / "tool").unlink()
    with pytest.raises(programs.ProgramError, match="can be written by everyone"):
        programs.find_program("tool")


HOSTILE = {
    "LD_PRELOAD": "/tmp/x.so", "LD_LIBRARY_PATH": "/tmp", "LD_AUDIT": "/tmp/x.so",
    "NGINX": "3;4;", "NGINX_VAR": "NGINX", "PERL5LIB": "/tmp", "PERL5OPT": "-Mx",
    "PYTHONPATH": "/tmp", "PYTHONSTARTUP": "/tmp/x", "OPENSSL_CONF": "/tmp/x", "LUA_PATH": "/tmp/?",
    "GCONV_PATH": "/tmp", "BASH_ENV": "/tmp/x", "ENV": "/tmp/x", "GIT_SSH": "/tmp/x",
    "MALLOC_CONF": "x", "TZ": ":/tmp/x", "LOCPATH": "/tmp", "NODE_OPTIONS": "-r /tmp/x",
    "IFS": "x", "PS4": "x", "SHELLOPTS": "x", "BPFTRACE_BTF": "/tmp/x", "GLIBC_TUNABLES": "x",
}  # fmt: skip


def test_the_callers_environment_stays_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in HOSTILE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", "/tmp:" + os.environ["PATH"])
    monkeypatch.setenv("HOME", "/root")
    said = LiveHost().run(["env"]).stdout.splitlines()
    names = {line.partition("=")[0] for line in said}
    assert names & HOSTILE.keys() == set()
    assert "PATH=" + ":".join(programs.DIRECTORIES) in said
    assert "HOME=/root" in said
    monkeypatch.setenv("TZ", "Europe/Vienna")
    assert "TZ=Europe/Vienna" in LiveHost().run(["env"]).stdout


def test_our_own_modules_are_not_taken_from_the_working_directory(tmp_path: Path) -> None:
    """Whoever may write to a directory that root works in could otherwise run code as root."""
    for name in ("json", "click", "shutil", "runpy", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('taken')\n")
    (tmp_path / "nginx_tune").mkdir()
    (tmp_path / "nginx_tune" / "__init__.py").write_text("raise SystemExit('taken')\n")
    argv = programs.own_module("nginx_tune.nginx.lab.keeper")
    environment = {"PYTHONPATH": str(tmp_path)}
    said = programs.run_program(argv, is_checked=True, environment=environment, cwd=tmp_path)
    assert (said.returncode, said.stdout, said.stderr) == (0, b"", b"")


def test_the_operators_word_is_taken(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "_vouched", set())
    program = owned(place)
    assert programs.why_not_run(str(program))
    programs.vouch_for(str(program))
    assert programs.find_program(str(program)) == str(program)


def test_an_ordinary_user_has_his_own_path() -> None:
    """Nobody gains anything by a user's own programs."""
    code = (
        "import os\nfrom nginx_tune.host import programs\n"
        f"os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        "print(programs.find_program('own'), programs.clean_environment()['LD_LIBRARY_PATH'])\n"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        Path(directory).chmod(0o755)
        program = write_program(Path(directory) / "own")
        give_to_nobody(program)
        environment = {"PATH": f"{directory}:/usr/bin", "LD_LIBRARY_PATH": "/tmp/x"}
        said = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert said.stdout == f"{program} /tmp/x\n", said.stderr


LINKS = {
    "the name itself": lambda place: (place / "out", place / "out"),
    "a directory on the way": lambda place: (place / "way", place / "way" / "out"),
    "the second link of two": lambda place: (place / "second", place / "first"),
}


@each_row("build", LINKS.values(), ids=LINKS.keys())
def test_root_does_not_write_through_another_user_s_link(
    build: Callable[[Path], tuple[Path, Path]],
) -> None:
    """In a directory where everybody may make names; the kernel's own guard may be off."""
    with roots_directory() as place:
        written_through(place, build)


def written_through(place: Path, build: Callable[[Path], tuple[Path, Path]]) -> None:
    place.chmod(0o1777)
    (place / "real").mkdir()
    victim = place / "real" / "out"
    victim.write_text("the host's")
    link, name = build(place)
    if link.name == "second":
        (place / "first").symlink_to("second")
    link.symlink_to(victim if name in {link, place / "first"} else place / "real")
    write_file(name, b"ours")
    assert victim.read_text() == "ours", "root's own link is followed"
    victim.write_text("the host's")
    give_to_nobody(link)
    with pytest.raises(UsageError, match="is a link of user 65534"):
        write_file(name, b"ours")
    assert victim.read_text() == "the host's"


@pytest.mark.usefixtures("capfdbinary")
def test_streams_and_fresh_files_are_written(place: Path) -> None:
    write_file(place / "fresh", b"ours")
    assert (place / "fresh").read_bytes() == b"ours"
    write_file(Path("/dev/stdout"), b"")
