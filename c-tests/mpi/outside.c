/* Rank 0 reads a few messages that have come from rank 1, which has some more to send, and is outside of MPI until those have been
 * sent: what it has read has made room for them. All other ranks are connected to it, too, and may send as many.
 *
 * usage: outside PREFIX LENGTH   two times 3 messages of LENGTH bytes; PREFIX.read is made by rank 0 when it has read the first,
 *                                PREFIX.sent by rank 1 when all have been sent
 *
 * The software stand-in for libibverbs (c-tests/verbs) says what has come. */
#include "check.h"
#include <dlfcn.h>
#include <sys/stat.h>

enum { TAG = 3, COUNT = 3, MOST = 65536 };

static unsigned char bytes[MOST];

static char is_read[PATH_MAX], is_sent[PATH_MAX];

static void nap(void) { nanosleep(&(struct timespec){0, 1000000}, NULL); }

/* So many messages are here that nobody has read. */
static void wait_for(long count)
{
    long (*unread)(void) = NULL;
    void *library = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (library != NULL) *(void **)&unread = dlsym(library, "standin_unread");
    if (!CHECK(unread != NULL)) MPI_Abort(MPI_COMM_WORLD, 2);
    while (unread() < count) nap();
}

static void make(const char *path)
{
    FILE *file = fopen(path, "w");
    if (CHECK(file != NULL)) fclose(file);
}

static void wait_until_there_is(const char *path)
{
    struct stat status;
    while (stat(path, &status) != 0) nap();
}

static void take(int count, size_t length)
{
    for (int number = 0; number < count; number++) {
        MPI(MPI_Recv(bytes, (int)length, MPI_BYTE, 1, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        VERIFY(bytes, length, (unsigned)number);
    }
}

static void give(int count, size_t length)
{
    for (int number = 0; number < count; number++) {
        fill(bytes, length, (unsigned)number);
        MPI(MPI_Send(bytes, (int)length, MPI_BYTE, 0, TAG, MPI_COMM_WORLD));
    }
}

int main(int argc, char **argv)
{
    size_t length = 0;
    check_start(&argc, &argv, "outside", MPI_THREAD_SINGLE, 0);
    if (argc != 3 || (length = strtoul(argv[2], NULL, 10)) > MOST || length == 0) MPI_Abort(MPI_COMM_WORLD, 2);
    snprintf(is_read, sizeof is_read, "%s.read", argv[1]);
    snprintf(is_sent, sizeof is_sent, "%s.sent", argv[1]);
    /* Each is connected to rank 0, and no other is waited for. */
    doing("meet", 0);
    for (int other = 1; other < check_size; other++) {
        if (check_rank == 0) MPI(MPI_Recv(bytes, 1, MPI_BYTE, other, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        if (check_rank == 0) MPI(MPI_Send(bytes, 1, MPI_BYTE, other, TAG, MPI_COMM_WORLD));
    }
    if (check_rank > 0) {
        MPI(MPI_Send(bytes, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD));
        MPI(MPI_Recv(bytes, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    if (check_rank == 0) {
        MPI(MPI_Send(bytes, 1, MPI_BYTE, 1, TAG, MPI_COMM_WORLD));
        doing("outside, until the first have come", 0);
        wait_for(COUNT);
        doing("take", 0);
        take(COUNT, length);
        doing("outside, until the others have been sent", 0);
        make(is_read);
        wait_until_there_is(is_sent);
        take(COUNT, length);
    } else if (check_rank == 1) {
        MPI(MPI_Recv(bytes, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        doing("give", 0);
        give(COUNT, length);
        doing("wait until they are read", 0);
        wait_until_there_is(is_read);
        doing("give more", 0);
        give(COUNT, length);
        make(is_sent);
    }
    return check_finish();
}
