/* Runs something in a worker of nginx once it serves: its calls of recv() come here first.
 *
 * A module would need the headers of each nginx for a handler; what is loaded can as well change
 * where the program finds a function of the C library (its global offset table).
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

static void (*at_request)(void);

static ssize_t hooked_recv(int fd, void *buffer, size_t length, int flags)
{
    static int done;
    ssize_t got = recv(fd, buffer, length, flags);
    int error = errno;
    if (got > 0 && !done) {
        done = 1;
        at_request();
    }
    errno = error;
    return got;
}

static void replace(const struct dl_phdr_info *object, const ElfW(Rela) *list, size_t bytes,
                    const ElfW(Sym) *symbols, const char *names)
{
    for (size_t i = 0; list && i < bytes / sizeof(*list); i++) {
        int kind = ELF64_R_TYPE(list[i].r_info);
#if defined(__x86_64__)
        int is_slot = kind == R_X86_64_JUMP_SLOT || kind == R_X86_64_GLOB_DAT;
#else
        int is_slot = kind == R_AARCH64_JUMP_SLOT || kind == R_AARCH64_GLOB_DAT;
#endif
        if (!is_slot || strcmp(names + symbols[ELF64_R_SYM(list[i].r_info)].st_name, "recv") != 0)
            continue;
        void **slot = (void **) (object->dlpi_addr + list[i].r_offset);
        size_t page = sysconf(_SC_PAGESIZE);
        void *start = (void *) ((size_t) slot & ~(page - 1));
        if (mprotect(start, page, PROT_READ | PROT_WRITE) == 0)
            *slot = (void *) hooked_recv;
    }
}

static int hook_object(struct dl_phdr_info *object, size_t size, void *own)
{
    (void) size;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    const ElfW(Rela) *calls = NULL, *others = NULL;
    size_t call_bytes = 0, other_bytes = 0;
    if ((void *) object->dlpi_addr == own)
        return 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        if (object->dlpi_phdr[i].p_type != PT_DYNAMIC)
            continue;
        const ElfW(Dyn) *entry = (void *) (object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
        for (; entry->d_tag != DT_NULL; entry++) {
            /* The loader has made addresses of them; the kernel's own object has offsets. */
            void *place = (void *) entry->d_un.d_ptr;
            if (entry->d_tag == DT_SYMTAB) symbols = place;
            if (entry->d_tag == DT_STRTAB) names = place;
            if (entry->d_tag == DT_JMPREL) calls = place;
            if (entry->d_tag == DT_RELA) others = place;
            if (entry->d_tag == DT_PLTRELSZ) call_bytes = entry->d_un.d_val;
            if (entry->d_tag == DT_RELASZ) other_bytes = entry->d_un.d_val;
        }
    }
    if (symbols && names && ((size_t) symbols > object->dlpi_addr)) {
        replace(object, calls, call_bytes, symbols, names);
        replace(object, others, other_bytes, symbols, names);
    }
    return 0;
}

static void hook_requests(void (*what)(void))
{
    Dl_info own;
    at_request = what;
    dladdr((void *) hooked_recv, &own);
    dl_iterate_phdr(hook_object, own.dli_fbase);
}
