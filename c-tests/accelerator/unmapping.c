/* Threads that unmap memory all the time: while MPI begins, while messages are sent from memory that is mapped apart, and
 * until after MPI has ended. */
#define _GNU_SOURCE
#include "cuda.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { THREADS = 4, LEN = 1 << 20, ROUNDS = 300 };

static atomic_bool over;

static void *take(void)
{
    char *memory = mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) abort();
    return memory;
}

static void *unmap(void *unused)
{
    while (!atomic_load(&over)) {
        char *memory = take();
        memory[0] = 1;
        if (munmap(memory, LEN) != 0) abort();
    }
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, unmap, NULL) != 0) abort();
    check_start(&argc, &argv, "unmapping", MPI_THREAD_SINGLE, 2);
    int peer = check_rank ^ 1;
    cuda_begin();
    for (unsigned round = 0; round < ROUNDS; round++) {
        char *memory = take();
        struct buffer from = {HEAP, 100, memory}, to = {HEAP, 100, memory + LEN / 2};
        for (int again = 0; again < 3; again++) {
            buffer_fill(&from, 0, 100, round + (unsigned)check_rank);
            buffer_fill(&to, 0, 100, round + 100);
            MPI(MPI_Sendrecv(from.start, 100, MPI_BYTE, peer, 1, to.start, 100, MPI_BYTE, peer, 1, MPI_COMM_WORLD,
                MPI_STATUS_IGNORE));
            buffer_holds(&to, 0, 100, round + (unsigned)peer);
        }
        CHECK_EQ(munmap(memory, LEN), 0);
    }
    int status = check_finish();
    atomic_store(&over, true);
    for (int i = 0; i < THREADS; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    cuda_end();
    return status;
}
