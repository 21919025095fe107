/* Makes every flush of the disk take longer, in each process that this library is preloaded into: what a
   slower disk would give. The real flush is made first, so nothing is less durable. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static int flush(const char *name, int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    int result = real(fd);
    const char *given = getenv("MEMOFLOW_BENCH_FLUSH_US");
    long us = given ? atol(given) : 0;
    struct timespec wait = {us / 1000000, us % 1000000 * 1000};
    if (us > 0)
        nanosleep(&wait, NULL);
    return result;
}

int fsync(int fd) { return flush("fsync", fd); }
int fdatasync(int fd) { return flush("fdatasync", fd); }
