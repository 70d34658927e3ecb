/* Threads that all send from devices and receive there (MPI_THREAD_MULTIPLE), with memory that comes and goes. Every other
 * one has no context in use.
 *
 *     threads [ROUNDS] */
#include "cuda.h"

#include <pthread.h>

enum { THREADS = 4, LONGEST = 700000 };

static int rounds = 60;

struct task {
    pthread_t thread;
    int number;
    MPI_Comm comm;
    unsigned char *memory;
};

static void put(struct task *task, const struct buffer *to, size_t len, unsigned seed)
{
    fill(task->memory, len, seed);
    CUDA(cu_copy((uintptr_t)to->start, (uintptr_t)task->memory, len));
    CUDA(cu_synchronize());
}

static void work(struct task *task, struct buffer *from, struct buffer *to, int round)
{
    static const size_t sizes[] = {8, 3000, 5000, 70000, LONGEST};
    size_t len = sizes[(round + task->number) % 5];
    unsigned seed = (unsigned)(round * 100 + task->number * 10);
    int peer = check_rank ^ 1;
    void *context = NULL;
    CUDA(cu_push(cuda_context[0]));
    put(task, from, len, seed + (unsigned)check_rank);
    put(task, to, len, seed + 5);
    if (task->number % 2 != 0) CUDA(cu_pop(&context));
    MPI(MPI_Sendrecv(from->start, (int)len, MPI_BYTE, peer, 1, to->start, (int)len, MPI_BYTE, peer, 1, task->comm, MPI_STATUS_IGNORE));
    if (task->number % 2 != 0) CUDA(cu_push(cuda_context[0]));
    CUDA(cu_copy((uintptr_t)task->memory, (uintptr_t)to->start, len));
    for (size_t index = 0; index < len; index++)
        if (task->memory[index] != pattern(seed + (unsigned)peer, index)) {
            check_report(__FILE__, __LINE__, "a byte", (long long)index, (long long)len);
            break;
        }
    CUDA(cu_pop(&context));
}

static void *run(void *argument)
{
    struct task *task = argument;
    /* HOST: 4.1 never closes what would let go of the context that is held for memory which has none. Whichever thread is in
     * MPI copies to it. */
    enum kind kind = HAS_ACCELERATORS && task->number >= 2 ? POOL : FIRST;
    void *context;
    for (int round = 0; round < rounds;) {
        CUDA(cu_push(cuda_context[0]));
        struct buffer from = buffer_new(FIRST, LONGEST), to = buffer_new(kind, LONGEST);
        CUDA(cu_pop(&context));
        for (int times = 0; times < 5 && round < rounds; times++, round++) {
            doing("threads", round);
            work(task, &from, &to, round);
        }
        CUDA(cu_push(cuda_context[0]));
        buffer_free(&from);
        buffer_free(&to);
        CUDA(cu_pop(&context));
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct task tasks[THREADS];
    if (argc > 1) rounds = atoi(argv[1]);
    check_start(&argc, &argv, "threads", MPI_THREAD_MULTIPLE, 2);
    cuda_begin();
    for (int number = 0; number < THREADS; number++) {
        tasks[number] = (struct task){.number = number, .memory = malloc(LONGEST)};
        MPI(MPI_Comm_dup(MPI_COMM_WORLD, &tasks[number].comm));
    }
    for (int number = 0; number < THREADS; number++)
        if (pthread_create(&tasks[number].thread, NULL, run, &tasks[number]) != 0) abort();
    for (int number = 0; number < THREADS; number++) {
        CHECK_EQ(pthread_join(tasks[number].thread, NULL), 0);
        MPI(MPI_Comm_free(&tasks[number].comm));
        free(tasks[number].memory);
    }
    int status = check_finish();
    cuda_end();
    return status;
}
