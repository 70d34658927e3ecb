/* What the hook of copies costs Open MPI's own copies: MPI_Pack copies once from the buffer to a place on the stack.
 *
 *     copyhook WHERE LOADED COUNT
 *
 * WHERE the buffer lies: heap, stack or mapped (apart, as malloc does with long arrays). LOADED: 1 loads the driver, and
 * initialises it; 0 leaves it alone. Says the nanoseconds of a call, the median of nine runs of COUNT. */
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { LEN = 64, RUNS = 9 };

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int compare(const void *one, const void *other)
{
    double difference = *(const double *)one - *(const double *)other;
    return (difference > 0) - (difference < 0);
}

/* Callgrind counts what happens in here. */
__attribute__((noinline)) void turns(const char *buffer, char *target, int count)
{
    for (int turn = 0; turn < count; turn++) {
        int position = 0;
        MPI_Pack(buffer, LEN, MPI_BYTE, target, 2 * LEN, &position, MPI_COMM_SELF);
    }
}

int main(int argc, char **argv)
{
    const char *where = argc > 1 ? argv[1] : "heap";
    int loaded = argc > 2 ? atoi(argv[2]) : 0, count = argc > 3 ? atoi(argv[3]) : 1000000;
    char local[LEN], target[2 * LEN], *buffer = local;
    double times[RUNS];
    if (loaded) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW);
        int (*init)(unsigned) = driver ? (int (*)(unsigned))dlsym(driver, "cuInit") : NULL;
        if (init == NULL || init(0) != 0) {
            fprintf(stderr, "no driver\n");
            return 2;
        }
    }
    MPI_Init(&argc, &argv);
    if (strcmp(where, "heap") == 0) buffer = malloc(LEN);
    if (strcmp(where, "mapped") == 0)
        buffer = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(buffer, 1, LEN);
    for (int run = 0; run < RUNS; run++) {
        double begin = seconds();
        turns(buffer, target, count);
        times[run] = (seconds() - begin) / count * 1e9;
    }
    qsort(times, RUNS, sizeof *times, compare);
    printf("%.1f\n", times[RUNS / 2]);
    MPI_Finalize();
    return 0;
}
