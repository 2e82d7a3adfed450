/*
 * The wall clock of a process, moved by what a file says; durations stay true. For LD_PRELOAD.
 *
 * MOVED_CLOCK names the file: a signed number of 8 bytes, in nanoseconds.
 */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define SECOND 1000000000LL

static const volatile int64_t *moved;

__attribute__((constructor)) static void open_clock(void)
{
    const char *path = getenv("MOVED_CLOCK");
    int descriptor = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *memory = descriptor < 0 ? MAP_FAILED : mmap(NULL, sizeof *moved, PROT_READ, MAP_SHARED, descriptor, 0);

    if (memory == MAP_FAILED)
        abort();
    close(descriptor);
    moved = memory;
}

int clock_gettime(clockid_t clock, struct timespec *result)
{
    int64_t nanoseconds;
    int failure = (int)syscall(SYS_clock_gettime, clock, result);

    if (failure == 0 && moved != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        nanoseconds = result->tv_sec * SECOND + result->tv_nsec + *moved;
        result->tv_sec = nanoseconds / SECOND;
        result->tv_nsec = nanoseconds % SECOND;
    }
    return failure;
}

int gettimeofday(struct timeval *restrict result, void *restrict zone)
{
    struct timespec now;
    int failure = clock_gettime(CLOCK_REALTIME, &now);

    (void)zone;
    result->tv_sec = now.tv_sec;
    result->tv_usec = now.tv_nsec / 1000;
    return failure;
}

time_t time(time_t *result)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (result != NULL)
        *result = now.tv_sec;
    return now.tv_sec;
}
