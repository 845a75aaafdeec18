/* Preloaded into a process: its connections to 127.0.0.1 are routed to other ports, its syncs and the
 * removal of its files fail, stall or hang.
 *
 * What to do is read from a file that the runner writes while the process runs; PIDKEEPER_CHAOS_CONTROL names it. Both
 * map it; the table of its fields is in control.py, and this is the other side of it. Without the variable, without
 * the file, or with one that is not of this size and magic, every call is as it always was.
 *
 * Nothing here takes memory or a lock, and fields are read and written as a whole each, so threads, forked children
 * and signal handlers may call at any time. A program that is executed maps the file anew by the same variable.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MAGIC 0x31534850u /* "PHS1" */
#define PORTS 65536
#define WATCH_NS 2000000  /* How often a call that waits looks whether it still has to. */

enum { HEALTHY, FAILS, STALLS, HANGS };

struct sync_fault {
    uint32_t kind;     /* of the enum above; the runner writes it last */
    uint32_t turn;     /* another one after each change: whoever waits goes on then */
    uint32_t error;    /* FAILS: the errno */
    uint32_t reserved;
    int64_t left;      /* how many calls more are hit; negative: all */
    uint64_t stall_ns; /* STALLS: how long each waits before it is done */
    uint64_t calls;    /* made on files and directories, hit or not */
    uint64_t hit;
};

struct control {
    uint32_t magic;
    uint32_t reserved;
    struct sync_fault fdatasync;
    struct sync_fault fsync;
    struct sync_fault unlink;
    uint16_t routes[PORTS];   /* by port: the port to go to instead; 0: none */
    uint32_t connects[PORTS]; /* by port: how often a connect went elsewhere */
};

_Static_assert(sizeof(struct control) == 8 + 3 * 48 + PORTS * 6, "control.py says so too");

static struct control *control;
static int (*next_connect)(int, const struct sockaddr *, socklen_t);
static int (*next_fdatasync)(int);
static int (*next_fsync)(int);
static int (*next_unlink)(const char *);
static ssize_t (*next_pwritev2)(int, const struct iovec *, int, off64_t, int);

/* A pointer to data becomes one to a function this way alone, by the letter of the standard. */
static void find(void *function, const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof found);
}

static void find_all(void) {
    find(&next_connect, "connect");
    find(&next_fdatasync, "fdatasync");
    find(&next_fsync, "fsync");
    find(&next_unlink, "unlink");
    find(&next_pwritev2, "pwritev64v2");
}

__attribute__((constructor)) static void begin(void) {
    find_all();
    const char *path = getenv("PIDKEEPER_CHAOS_CONTROL");
    int file = path == NULL ? -1 : open(path, O_RDWR | O_CLOEXEC);
    if (file < 0)
        return;
    struct stat found;
    if (fstat(file, &found) == 0 && found.st_size == (off_t)sizeof(struct control)) {
        void *mapped = mmap(NULL, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (mapped != MAP_FAILED && ((struct control *)mapped)->magic == MAGIC)
            control = mapped;
        else if (mapped != MAP_FAILED)
            munmap(mapped, sizeof(struct control));
    }
    close(file);
}

static bool is_stream(int socket) {
    int kind = 0;
    socklen_t size = sizeof kind;
    return getsockopt(socket, SOL_SOCKET, SO_TYPE, &kind, &size) == 0 && kind == SOCK_STREAM;
}

/* Where a connect of `socket` to `port` of this machine goes, in the order of the network; 0: where it said. */
static in_port_t route(int socket, in_port_t port) {
    uint16_t to = __atomic_load_n(&control->routes[ntohs(port)], __ATOMIC_ACQUIRE);
    if (to == 0 || !is_stream(socket))
        return 0;
    __atomic_fetch_add(&control->connects[ntohs(port)], 1, __ATOMIC_RELAXED);
    return htons(to);
}

static int connect_4(int socket, const struct sockaddr *address) {
    struct sockaddr_in to;
    memcpy(&to, address, sizeof to);
    in_port_t port = to.sin_addr.s_addr == htonl(INADDR_LOOPBACK) ? route(socket, to.sin_port) : 0;
    if (port != 0)
        to.sin_port = port;
    return next_connect(socket, (const struct sockaddr *)&to, sizeof to);
}

static int connect_6(int socket, const struct sockaddr *address) {
    static const struct in6_addr mapped = {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}}};
    struct sockaddr_in6 to;
    memcpy(&to, address, sizeof to);
    bool here = memcmp(&to.sin6_addr, &mapped, sizeof mapped) == 0 || IN6_IS_ADDR_LOOPBACK(&to.sin6_addr);
    in_port_t port = here ? route(socket, to.sin6_port) : 0;
    if (port != 0) {
        to.sin6_port = port;
        to.sin6_addr = mapped; /* Routes end on 127.0.0.1 alone. */
    }
    return next_connect(socket, (const struct sockaddr *)&to, sizeof to);
}

int connect(int socket, const struct sockaddr *address, socklen_t length) {
    if (next_connect == NULL) /* The constructor of another library was earlier. */
        find_all();
    if (control != NULL && address != NULL) {
        if (length >= sizeof(struct sockaddr_in) && address->sa_family == AF_INET)
            return connect_4(socket, address);
        if (length >= sizeof(struct sockaddr_in6) && address->sa_family == AF_INET6)
            return connect_6(socket, address);
    }
    return next_connect(socket, address, length);
}

/* Takes one of the calls that are still to be hit; false if none is left. */
static bool take(struct sync_fault *fault) {
    int64_t left = __atomic_load_n(&fault->left, __ATOMIC_ACQUIRE);
    while (left > 0)
        if (__atomic_compare_exchange_n(&fault->left, &left, left - 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
            return true;
    return left < 0;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Until `nanoseconds` are over, or the runner has changed something since `turn`. */
static void wait_for(struct sync_fault *fault, uint32_t turn, uint64_t nanoseconds) {
    const struct timespec watch = {0, WATCH_NS};
    uint64_t begun = now_ns();
    while (__atomic_load_n(&fault->turn, __ATOMIC_ACQUIRE) == turn && now_ns() - begun < nanoseconds)
        nanosleep(&watch, NULL);
}

/* What the call comes to: an errno, or 0 for what the disk makes of it, after the wait that there may be. */
static int suffer(struct sync_fault *fault) {
    __atomic_fetch_add(&fault->calls, 1, __ATOMIC_RELAXED);
    uint32_t turn = __atomic_load_n(&fault->turn, __ATOMIC_ACQUIRE);
    uint32_t kind = __atomic_load_n(&fault->kind, __ATOMIC_ACQUIRE);
    if (kind == HEALTHY || !take(fault))
        return 0;
    __atomic_fetch_add(&fault->hit, 1, __ATOMIC_RELAXED);
    if (kind == FAILS)
        return (int)fault->error;
    wait_for(fault, turn, kind == HANGS ? UINT64_MAX : fault->stall_ns);
    return 0;
}

static bool is_on_disk(int file) {
    struct stat found;
    return fstat(file, &found) == 0 && (S_ISREG(found.st_mode) || S_ISDIR(found.st_mode));
}

static int synced(struct sync_fault *fault, int (*next)(int), int file) {
    int before = errno;
    int error = is_on_disk(file) ? suffer(fault) : 0;
    errno = error != 0 ? error : before;
    return error != 0 ? -1 : next(file);
}

int fdatasync(int file) {
    if (next_fdatasync == NULL)
        find_all();
    return control == NULL ? next_fdatasync(file) : synced(&control->fdatasync, next_fdatasync, file);
}

int fsync(int file) {
    if (next_fsync == NULL)
        find_all();
    return control == NULL ? next_fsync(file) : synced(&control->fsync, next_fsync, file);
}

/* A write that is synced along is hit by what hits fdatasync; nothing of it is written then. */
ssize_t pwritev64v2(int file, const struct iovec *pieces, int count, off64_t offset, int flags) {
    if (next_pwritev2 == NULL)
        find_all();
    int before = errno;
    bool synced = control != NULL && (flags & RWF_DSYNC) != 0 && is_on_disk(file);
    int error = synced ? suffer(&control->fdatasync) : 0;
    errno = error != 0 ? error : before;
    return error != 0 ? -1 : next_pwritev2(file, pieces, count, offset, flags);
}

int unlink(const char *path) {
    if (next_unlink == NULL)
        find_all();
    int before = errno;
    int error = control == NULL ? 0 : suffer(&control->unlink);
    errno = error != 0 ? error : before;
    return error != 0 ? -1 : next_unlink(path);
}
