/* Messages of one length to and fro, between marks of c-tests/verbs/preload/calls.c, which is preloaded and prints what hawser has
 * asked the C library for meanwhile. 2 ranks.
 *
 * usage: steady LENGTH ROUNDS         after as many before the marks
 *        steady LENGTH ROUNDS stream  all of a round one way, and all of the next the other
 *        steady LENGTH ROUNDS PATH    before the marks nothing is sent; PATH is there when rank 1 has set its first */
#define _GNU_SOURCE
#include "check.h"

#include <dlfcn.h>
#include <sys/stat.h>

enum { TAG = 5, MOST = 65536, EACH = 20 };

static unsigned char bytes[MOST];

static void pass(int length, bool sends)
{
    int other = 1 - check_rank;
    if (sends) MPI(MPI_Send(bytes, length, MPI_BYTE, other, TAG, MPI_COMM_WORLD));
    else MPI(MPI_Recv(bytes, length, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static void go(int length, int rounds, int each)
{
    for (int round = 0; round < rounds; round++) {
        doing("round", round);
        for (int number = 0; number < each; number++) pass(length, check_rank == 0);
        for (int number = 0; number < each; number++) pass(length, check_rank == 1);
    }
}

/* Rank 0 sends first, and connects. */
static void wait_for_mark(const char *path)
{
    struct stat status;
    FILE *file = check_rank == 1 ? fopen(path, "w") : NULL;
    if (check_rank == 1 && CHECK(file != NULL)) fclose(file);
    while (check_rank == 0 && stat(path, &status) != 0) nanosleep(&(struct timespec){0, 1000000}, NULL);
}

int main(int argc, char **argv)
{
    int (*calls_begin)(void) = NULL;
    void (*calls_end)(int rank) = NULL;
    check_start(&argc, &argv, "steady", MPI_THREAD_SINGLE, 2);
    if (check_size != 2 || (argc != 3 && argc != 4) || atoi(argv[1]) > MOST) MPI_Abort(MPI_COMM_WORLD, 2);
    int length = atoi(argv[1]), rounds = atoi(argv[2]), each = argc == 4 && strcmp(argv[3], "stream") == 0 ? EACH : 1;
    *(void **)&calls_begin = dlsym(RTLD_DEFAULT, "calls_begin");
    *(void **)&calls_end = dlsym(RTLD_DEFAULT, "calls_end");
    if (!CHECK(calls_begin != NULL && calls_end != NULL)) MPI_Abort(MPI_COMM_WORLD, 2);
    fill(bytes, (size_t)length, 1);
    bool is_new = argc == 4 && each == 1;
    if (!is_new) go(length, rounds, each);
    CHECK(calls_begin());
    if (is_new) wait_for_mark(argv[3]);
    go(length, rounds, each);
    calls_end(check_rank);
    VERIFY(bytes, (size_t)length, 1);
    return check_finish();
}
