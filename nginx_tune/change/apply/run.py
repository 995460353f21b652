"""One change from the lock to its end: kept, waiting for confirmation, or taken back."""

import os
import posixpath
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Literal, NamedTuple

from nginx_tune.change.apply.examine import Examined, Permissions, Proposed, check_trust, examine
from nginx_tune.change.apply.guardian import hand_over
from nginx_tune.change.apply.hindrances import (
    check_ended,
    check_loaded,
    check_package_managers,
    check_sockets,
    check_unfinished,
    refuse_foreign_code,
    refuse_foreign_files,
    refuse_taken_places,
    refuse_taken_ports,
    remember,
)
from nginx_tune.change.apply.journal import Journal, State, boot_id, this_process
from nginx_tune.change.apply.model_journal import (
    Answered,
    Begin,
    Entry,
    Kept,
    RefusedError,
    RejectedError,
    Reloading,
    Swapping,
    disk_words,
    reason_of,
)
from nginx_tune.change.apply.swap import clear, look, stage, swap_in
from nginx_tune.change.apply.target import (
    EffectiveConf,
    ManagedNginx,
    check_included,
    check_listens,
    describe_target,
    describe_test,
    find_subject,
    generations,
    read_as_target,
    read_files,
    refuse_unless_heard,
    tell,
    unheard,
    uninterrupted,
)
from nginx_tune.change.apply.undo import recover, undo_served
from nginx_tune.change.apply.watch import Canary, ask_canaries, check_url, watch
from nginx_tune.conf.tree import ConfTree
from nginx_tune.documents.units import plural
from nginx_tune.errors import NginxTuneError, UsageError
from nginx_tune.host.door import Host
from nginx_tune.nginx.overwriting import refuse_in_tree
from nginx_tune.nginx.reload.address import AcceptingSocket
from nginx_tune.nginx.reload.generation import ask_before, await_workers, see_answers
from nginx_tune.nginx.reload.logs import Logs
from nginx_tune.nginx.reload.workers import OldServeError, Process, ReloadError

ApplyOutcome = Literal["kept", "awaiting", "rolled_back"]


class ApplyOptions(NamedTuple):
    """The operator's choices."""

    conf_path: str | None = None
    prefix: str | None = None
    binary: str | None = None
    pid: int | None = None
    reload_command: Sequence[str] = ()
    reloads: bool = True
    reload_seconds: float = 15.0
    watch_seconds: float = 10.0
    confirm_seconds: float = 0.0
    canaries: Sequence[str] = ()
    permissions: Permissions = Permissions()
    results: Sequence[str] = ()
    """Paths of the command's own output, which must not be files that nginx reads."""


class Applied(NamedTuple):
    """The outcome of a change."""

    journal: Journal
    outcome: ApplyOutcome
    reason: str
    """The reason for the rollback; empty if there was no rollback."""
    notes: list[str]
    confirm_until: str = ""


class Onlooker(NamedTuple):
    """Callbacks, called before the first file is changed; each may raise to refuse the change."""

    say: Callable[[str], None] = lambda _: None
    show: Callable[[Sequence[Examined]], None] = lambda _: None
    """A function that gets the old and new contents of the files."""
    judge: Callable[[ConfTree, ConfTree], None] = lambda _old, _new: None
    """A function that gets the old and the new tree of the configuration."""


NOBODY = Onlooker()


class Ahead(NamedTuple):
    """The result of a dry run."""

    conf_path: str
    entries: list[Entry]
    steps: list[str]


def look_at_change(
    host: Host,
    state: State,
    proposed: Sequence[Proposed],
    reads: Mapping[str, str],
    wish: ApplyOptions,
    *,
    onlooker: Onlooker = NOBODY,
) -> Ahead:
    """A dry run: all checks of a change, with nothing written.

    Errors: those of ``apply_change`` before anything is changed; UndecidedError if an unfinished
            change would have to be taken back first.
    """
    _check_canaries(wish)
    with state.unchanged():
        check_ended(state)
        check_package_managers()
        change = _Change(host, state, wish, onlooker)
        checked = change.check(proposed, reads)
        entries = [file.entry for file in checked.files]
        return Ahead(checked.subject.conf_path, entries, change.steps(checked.subject))


def apply_change(
    host: Host,
    state: State,
    proposed: Sequence[Proposed],
    reads: Mapping[str, str],
    wish: ApplyOptions,
    *,
    onlooker: Onlooker = NOBODY,
) -> Applied:
    """Change the files, reload, check that nginx serves, and keep the change or take it back.

    Errors: RefusedError before anything is changed (RejectedError if the target's own test
            rejects the old files or the new ones); StuckError if the change cannot be taken back;
            KeyboardInterrupt once it is taken back.
    """
    _check_canaries(wish)
    state.prepare()
    with state.locked():
        for done in recover(host, state):
            onlooker.say(f"change {done.journal.id} was unfinished and has been taken back")
        check_unfinished(state)
        check_package_managers()
        return _Change(host, state, wish, onlooker).run(proposed, reads)


def _check_canaries(wish: ApplyOptions) -> None:
    for url in wish.canaries:
        check_url(url)
    if wish.canaries and not wish.reloads:
        raise UsageError(
            "--canary: has no effect with --no-reload, since nginx keeps its configuration",
            hint="leave one of them out",
        )


class _Checked(NamedTuple):
    """Results of the checks before the first file is changed."""

    subject: ManagedNginx
    files: list[Examined]
    before: EffectiveConf
    canaries: list[Canary]


class _Change:
    def __init__(self, host: Host, state: State, wish: ApplyOptions, onlooker: Onlooker) -> None:
        self._host = host
        self._state = state
        self._wish = wish
        self._say = onlooker.say
        self._onlooker = onlooker
        self._notes: list[str] = []
        self._unread: frozenset[Process] = frozenset()

    def run(self, proposed: Sequence[Proposed], reads: Mapping[str, str]) -> Applied:
        """Check the change, make it, and keep it or take it back."""
        checked = self.check(proposed, reads)
        subject, before = checked.subject, checked.before
        if subject.master is not None and self._unread:
            remember(self._state, subject.master, self._unread, before.reading)
        journal = self._begin(subject, before, checked.files)
        with journal.held():
            return self._change(journal, checked)

    def check(self, proposed: Sequence[Proposed], reads: Mapping[str, str]) -> _Checked:
        """All checks that need no write.

        Errors: RefusedError.
        """
        wish = self._wish
        subject = find_subject(
            self._host,
            binary=wish.binary,
            pid=wish.pid,
            conf_path=wish.conf_path,
            prefix=wish.prefix,
            needs_master=wish.reloads,
        )
        files = examine(proposed, reads, conf_path=subject.conf_path, permissions=wish.permissions)
        if subject.master is not None and not wish.reload_command:
            refuse_unless_heard(subject.master)
        before = self._read_before(subject, files)
        refuse_in_tree(wish.results, before.files, before.asked)
        self._check_after(subject, before, files)
        canaries = [] if subject.master is None else ask_canaries(subject.master, wish.canaries)
        self._onlooker.show(files)
        return _Checked(subject, files, before, list(canaries))

    def steps(self, subject: ManagedNginx) -> list[str]:
        """The steps that a dry run leaves out, as text for the operator."""
        wish = self._wish
        steps = ["nginx -t was not run on the new files, which are not in place"]
        if subject.master is None:
            steps.append("nginx would not be reloaded (--no-reload)")
        else:
            how = shlex.join(wish.reload_command) or "SIGHUP"
            steps.append(f"nginx process {subject.master.pid} would be reloaded ({how})")
            asked = f", with {plural(len(wish.canaries), 'canary')}" if wish.canaries else ""
            steps.append(f"it would be watched for {wish.watch_seconds:g} s{asked}")
        if wish.confirm_seconds:
            steps.append(
                f"it would be taken back {wish.confirm_seconds:g} s later unless confirmed"
            )
        return [*self._notes, *steps]

    def _change(self, journal: Journal, checked: _Checked) -> Applied:
        files = checked.files
        try:
            self._swap(journal, files)
            after = self._test(journal, checked)
            if (master := checked.subject.master) is not None:
                self._reload(journal, master, checked, after)
            self._check_still(files)
        except ReloadError as error:
            return self._taken_back(journal, error.message)
        except OSError as error:  # a disk that filled up or became read-only meanwhile
            return self._taken_back(journal, disk_words(error))
        except BaseException as error:
            self._taken_back(journal, reason_of(error))
            raise
        try:
            return self._end(journal, files)
        except KeyboardInterrupt:
            phase = journal.read().phase
            if phase == "kept":  # the interrupt came too late
                return Applied(journal, "kept", "", self._notes)
            if phase != "undone":
                self._taken_back(journal, "interrupted")
            raise

    def _read_before(self, subject: ManagedNginx, files: Sequence[Examined]) -> EffectiveConf:
        """Read the old files as the target nginx does.

        Errors: RejectedError if it rejects them, since then no rollback is possible.
        """
        self._refuse_foreign_code(subject)
        try:
            before = read_as_target(self._host, subject)
        except RejectedError as error:
            raise RejectedError(
                f"nginx -t rejects the files as they are, so a change could not be taken back: "
                f"{error.message}",
                hint="put them right first",
            ) from None
        if not self._wish.permissions.trusted:
            check_trust(before.reading.places)
        if subject.master is not None:
            self._unread = check_loaded(self._host, self._state, subject.master, before.reading)
        loaded = {os.path.realpath(path) for path in before.files}
        for path in (file.entry.path for file in files if file.entry.kind == "edit"):
            if path in loaded:
                continue
            if self._wish.pid is not None:
                raise RefusedError(
                    f"process {self._wish.pid} reads {subject.conf_path}, but the change is of "
                    f"{path}",
                    hint="give the --pid of the master that reads it, or leave --pid out",
                )
            raise RefusedError(
                f"{path}: {subject.conf_path} does not include it",
                hint="name the configuration with -c",
            )
        return before

    def _check_after(
        self, subject: ManagedNginx, before: EffectiveConf, files: Sequence[Examined]
    ) -> None:
        """Refuse new files with an effect that no rollback could undo."""
        contents = {file.entry.path: file.content for file in files}
        after = read_files(self._host, subject.conf_path, prefix=subject.prefix, contents=contents)
        # A new file must never exist outside nginx's tree, even for a moment: cron might run it.
        check_included(contents, after.files)
        refuse_foreign_files(before.reading.tree, after.tree)
        refuse_taken_places(before.reading.tree, after.tree, subject)
        if subject.master is not None:
            self._notes += refuse_taken_ports(subject.master, before.reading, after)
        self._onlooker.judge(before.reading.tree, after.tree)

    def _refuse_foreign_code(self, subject: ManagedNginx) -> None:
        if not self._wish.permissions.trusted:
            refuse_foreign_code(self._host, subject)

    def _begin(
        self, subject: ManagedNginx, before: EffectiveConf, files: Sequence[Examined]
    ) -> Journal:
        workers: frozenset[Process] = frozenset()
        silent: frozenset[AcceptingSocket] = frozenset()
        if subject.master is not None:
            workers = generations(self._host, subject.master).serving
            silent = ask_before(self._host, subject.master, before.addresses)
        journal = self._state.new()
        record = Begin(
            id=journal.id,
            at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            boot_id=boot_id(),
            owner=this_process(),
            target=describe_target(
                subject,
                before,
                workers=workers,
                silent=silent,
                reload_command=self._wish.reload_command,
            ),
            entries=[file.entry for file in files],
        )
        try:
            journal.begin(record, {file.entry.path: file.original for file in files})
        except OSError as error:
            raise RefusedError(
                f"{journal.directory}: cannot keep a journal: {error.strerror}"
            ) from None
        return journal

    def _swap(self, journal: Journal, files: Sequence[Examined]) -> None:
        for file in files:
            try:
                stage(file.entry, file.content, file.attributes)
            except OSError as error:
                words = error.strerror or str(error)
                raise RefusedError(f"{file.entry.path}: cannot write beside it: {words}") from None
        # From here on files may be new, so a rollback must check whether nginx was reloaded.
        journal.append(Swapping())
        swap_in([file.entry for file in files])
        self._say(f"{plural(len(files), 'file')} changed")

    def _test(self, journal: Journal, checked: _Checked) -> EffectiveConf:
        subject, before = checked.subject, checked.before
        self._refuse_foreign_code(subject)
        after = read_as_target(self._host, subject)
        entries = [file.entry for file in checked.files]
        check_included([entry.path for entry in entries], after.files)
        loaded = {os.path.realpath(path) for path in after.files}
        for entry in entries:
            hidden = posixpath.join(posixpath.dirname(entry.path), entry.beside)
            if hidden in loaded:
                raise RefusedError(
                    f"{hidden}: an include also matches hidden files, so nginx would read the old "
                    "file too"
                )
        if not self._wish.permissions.loses:
            check_listens(before, after)
            if subject.master is not None:
                check_sockets(self._host, subject.master, after.reading)
        journal.append(describe_test(before, after))
        return after

    def _reload(
        self, journal: Journal, master: Process, checked: _Checked, after: EffectiveConf
    ) -> None:
        begin = journal.read().begin
        silent = frozenset() if begin is None else frozenset(begin.target.silent)
        now = generations(self._host, master)
        old = now.serving | now.leaving
        logs = Logs([*checked.before.error_logs, *after.error_logs], only_own=True)
        try:
            journal.append(Reloading())
            tell(self._host, master, self._wish.reload_command)
            seconds = self._wish.reload_seconds
            try:
                workers = await_workers(
                    lambda: generations(self._host, master), master, old, logs, seconds=seconds
                )
            except OldServeError as error:
                raise unheard(self._wish.reload_command, error) from None
            remember(self._state, master, workers, after.reading)
            seen = see_answers(self._host, master, workers, after.addresses, silent)
            self._notes += seen.notes
            journal.append(
                Answered(
                    workers=sorted(worker.pid for worker in seen.workers),
                    seen=seen.seen,
                    listeners=len(seen.places),
                )
            )
            self._say(
                f"{plural(len(workers), 'new worker')}, {seen.seen} seen to answer "
                f"on {plural(len(seen.places), 'listener')}"
            )
            watch(
                self._host,
                master,
                old,
                workers,
                logs,
                canaries=checked.canaries,
                seconds=self._wish.watch_seconds,
            )
        finally:
            self._notes += [f"logged before the change too: {line}" for line in logs.seen_before]
            logs.close()

    def _check_still(self, files: Sequence[Examined]) -> None:
        for file in files:
            state = look(file.entry)
            if state != "new":
                why = "somebody else put the old file back" if state == "old" else state
                raise ReloadError(f"{file.entry.path}: {why} meanwhile")

    def _taken_back(self, journal: Journal, reason: str) -> Applied:
        """Take the change back and report it, with signals blocked.

        Errors: StuckError; KeyboardInterrupt once the change is taken back.
        """
        try:
            with uninterrupted():
                self._say(f"taking it back: {reason}")
                server = undo_served(self._host, journal, reason)
                self._say(f"every file is as it was; nginx was {server}")
        except (
            KeyboardInterrupt
        ):  # just before the signals were blocked or just after they were unblocked
            if not journal.read().is_finished:
                undo_served(self._host, journal, reason)
            raise
        return Applied(journal, "rolled_back", reason, self._notes)

    def _end(self, journal: Journal, files: Sequence[Examined]) -> Applied:
        if self._wish.confirm_seconds > 0:
            try:
                until = hand_over(self._state, journal, self._wish.confirm_seconds)
            except (OSError, NginxTuneError) as error:
                return self._taken_back(
                    journal, f"no process could be started to wait for the confirmation: {error}"
                )
            return Applied(journal, "awaiting", "", self._notes, until)
        try:
            journal.append(Kept())
        except OSError as error:
            return self._taken_back(journal, f"the journal cannot be written: {disk_words(error)}")
        left = clear([file.entry for file in files])
        self._notes += [f"{path}: {why}" for path, why in left.items()]
        return Applied(journal, "kept", "", self._notes)
