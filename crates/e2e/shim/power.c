// A preloaded library that records everything a program does to the files of one folder, in order,
// so that a test can compute what a power cut would leave of them.
//
// FILCH_POWER_FOLDER   the folder, as an absolute path without links; subfolders are ignored
// FILCH_POWER_JOURNAL  the file that receives the records
//
// The journal is a sequence of records. Each has a header of 24 bytes (kind, number of bytes that
// follow, inode number, offset or length) and then bytes: the data that was written, or names that
// end with 0.
//
//   C  a file was created   its name            W  bytes were written at an offset
//   T  it was truncated to this length          S  the file was synced
//   U  a name was removed   the name            R  a file was renamed     the old and new name
//   D  the folder was synced
//
// A sync does not reach a disk. It takes a while before it counts, so that there are unsynced
// writes to lose.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct head {
    uint32_t kind;
    uint32_t bytes;
    uint64_t file;
    uint64_t place;
};

static const long SYNC_NANOS = 1000000;

static char folder[4096];
static size_t folder_length;
static int journal = -1;
// Held during a change and its record, so that both happen in the same order.
static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;

static void fail(const char *what) {
    dprintf(2, "power.c: %s: %s\n", what, strerror(errno));
    abort();
}

__attribute__((constructor)) static void begin(void) {
    const char *where = getenv("FILCH_POWER_FOLDER"), *path = getenv("FILCH_POWER_JOURNAL");
    if (!where || !path || strlen(where) >= sizeof folder) fail("FILCH_POWER_... is not set");
    strcpy(folder, where);
    folder_length = strlen(folder);
    journal = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (journal < 0) fail("cannot open the journal");
}

// The name of a file in the folder; "" for the folder itself; NULL for all others.
static const char *name_of(const char *path) {
    if (strncmp(path, folder, folder_length)) return NULL;
    path += folder_length;
    if (!*path) return path;
    return *path == '/' && !strchr(path + 1, '/') ? path + 1 : NULL;
}

static const char *name_at(int at, const char *path, char *room, size_t size) {
    if (*path == '/') return name_of(path);
    char link[64], from[4096];
    snprintf(link, sizeof link, at == AT_FDCWD ? "/proc/self/cwd" : "/proc/self/fd/%d", at);
    ssize_t length = readlink(link, from, sizeof from - 1);
    if (length < 0) return NULL;
    from[length] = 0;
    if ((size_t)snprintf(room, size, "%s/%s", from, path) >= size) return NULL;
    return name_of(room);
}

// The name of the file in the folder that a descriptor refers to, or "" for the folder itself.
static const char *name_by(int fd, struct stat *about, char *room, size_t size) {
    if (journal < 0 || fd == journal || fstat(fd, about)) return NULL;
    if (!S_ISREG(about->st_mode) && !S_ISDIR(about->st_mode)) return NULL;
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, room, size - 1);
    if (length < 0) return NULL;
    room[length] = 0;
    return name_of(room);
}

static void note(char kind, uint64_t file, uint64_t place, const struct iovec *parts, int count) {
    struct head head = {(uint32_t)kind, 0, file, place};
    struct iovec all[18] = {{&head, sizeof head}};
    if (count > 17) fail("too many parts");
    for (int part = 0; part < count; part++) {
        head.bytes += parts[part].iov_len;
        all[part + 1] = parts[part];
    }
    if (syscall(SYS_writev, journal, all, count + 1) != (ssize_t)(sizeof head + head.bytes)) {
        fail("cannot write the journal");
    }
}

static void note_name(char kind, uint64_t file, const char *name) {
    struct iovec part = {(void *)name, strlen(name) + 1};
    note(kind, file, 0, &part, 1);
}

// ---- opening ----

static int open_file(int at, const char *path, int flags, mode_t mode) {
    char room[8192];
    const char *name = journal >= 0 ? name_at(at, path, room, sizeof room) : NULL;
    if (!name || !*name || !(flags & (O_CREAT | O_TRUNC))) {
        return syscall(SYS_openat, at, path, flags, mode);
    }
    pthread_mutex_lock(&order);
    struct stat about;
    int is_new = syscall(SYS_faccessat, at, path, F_OK) != 0;
    int fd = syscall(SYS_openat, at, path, flags, mode), error = errno;
    if (fd >= 0 && !fstat(fd, &about)) {
        if (is_new) note_name('C', about.st_ino, name);
        else if (flags & O_TRUNC) note('T', about.st_ino, 0, NULL, 0);
    }
    pthread_mutex_unlock(&order);
    errno = error;
    return fd;
}

static mode_t mode_in(int flags, va_list more) {
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
}

#define OPEN(NAME)                                        \
    int NAME(const char *path, int flags, ...) {          \
        va_list more;                                     \
        va_start(more, flags);                            \
        mode_t mode = mode_in(flags, more);               \
        va_end(more);                                     \
        return open_file(AT_FDCWD, path, flags, mode);    \
    }
#define OPENAT(NAME)                                      \
    int NAME(int at, const char *path, int flags, ...) {  \
        va_list more;                                     \
        va_start(more, flags);                            \
        mode_t mode = mode_in(flags, more);               \
        va_end(more);                                     \
        return open_file(at, path, flags, mode);          \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

// ---- writing ----

// A negative place means the current offset of the descriptor.
static ssize_t write_parts(int fd, const struct iovec *parts, int count, off_t place) {
    char room[4200];
    struct stat about;
    const char *name = name_by(fd, &about, room, sizeof room);
    if (!name) {
        if (place >= 0) return syscall(SYS_pwritev, fd, parts, count, place, 0);
        return syscall(SYS_writev, fd, parts, count);
    }
    pthread_mutex_lock(&order);
    off_t from = place;
    if (from < 0) {
        int appends = fcntl(fd, F_GETFL) & O_APPEND;
        from = lseek(fd, 0, appends ? SEEK_END : SEEK_CUR);
    }
    ssize_t wrote = place >= 0 ? syscall(SYS_pwritev, fd, parts, count, place, 0)
                               : syscall(SYS_writev, fd, parts, count);
    int error = errno;
    size_t left = wrote > 0 ? wrote : 0;
    for (int part = 0; part < count && left; part++) {
        struct iovec piece = parts[part];
        if (piece.iov_len > left) piece.iov_len = left;
        note('W', about.st_ino, from, &piece, 1);
        from += piece.iov_len;
        left -= piece.iov_len;
    }
    pthread_mutex_unlock(&order);
    errno = error;
    return wrote;
}

ssize_t write(int fd, const void *bytes, size_t count) {
    struct iovec part = {(void *)bytes, count};
    return write_parts(fd, &part, 1, -1);
}
ssize_t writev(int fd, const struct iovec *parts, int count) {
    return write_parts(fd, parts, count, -1);
}
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t place) {
    struct iovec part = {(void *)bytes, count};
    return write_parts(fd, &part, 1, place);
}
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t place) {
    return pwrite(fd, bytes, count, place);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t place) {
    return write_parts(fd, parts, count, place);
}
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t place) {
    return write_parts(fd, parts, count, place);
}

int ftruncate(int fd, off_t length) {
    char room[4200];
    struct stat about;
    const char *name = name_by(fd, &about, room, sizeof room);
    if (!name) return syscall(SYS_ftruncate, fd, length);
    pthread_mutex_lock(&order);
    int done = syscall(SYS_ftruncate, fd, length), error = errno;
    if (!done) note('T', about.st_ino, length, NULL, 0);
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}
int ftruncate64(int fd, off64_t length) { return ftruncate(fd, length); }

// ---- syncing ----

static int sync_file(int fd, long number) {
    char room[4200];
    struct stat about;
    const char *name = name_by(fd, &about, room, sizeof room);
    if (!name) return syscall(number, fd);
    struct timespec while_ = {0, SYNC_NANOS};
    nanosleep(&while_, NULL);
    pthread_mutex_lock(&order);
    note(S_ISDIR(about.st_mode) ? 'D' : 'S', about.st_ino, 0, NULL, 0);
    pthread_mutex_unlock(&order);
    return 0;
}

int fsync(int fd) { return sync_file(fd, SYS_fsync); }
int fdatasync(int fd) { return sync_file(fd, SYS_fdatasync); }

// ---- names ----

int unlinkat(int at, const char *path, int flags) {
    char room[8192];
    const char *name = name_at(at, path, room, sizeof room);
    if (!name) return syscall(SYS_unlinkat, at, path, flags);
    pthread_mutex_lock(&order);
    int done = syscall(SYS_unlinkat, at, path, flags), error = errno;
    if (!done) note_name('U', 0, name);
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

int renameat(int from_at, const char *from, int to_at, const char *to) {
    char from_room[8192], to_room[8192];
    const char *old = name_at(from_at, from, from_room, sizeof from_room);
    const char *new = name_at(to_at, to, to_room, sizeof to_room);
    if (!old && !new) return syscall(SYS_renameat2, from_at, from, to_at, to, 0);
    if (!old || !new) {
        errno = EXDEV;
        fail("a file was renamed into or out of the folder");
    }
    pthread_mutex_lock(&order);
    int done = syscall(SYS_renameat2, from_at, from, to_at, to, 0), error = errno;
    struct iovec names[2] = {{(void *)old, strlen(old) + 1}, {(void *)new, strlen(new) + 1}};
    if (!done) note('R', 0, 0, names, 2);
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }
