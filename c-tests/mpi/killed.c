/* One rank is killed, by SIGKILL, at a chosen moment; the others wait for it. The job must end, and
 * nothing of it may stay. usage: killed start|idle|transfer|collective|finalize|marked|receive|reading|send|silence
 *        killed unplugged|vain FILE
 *
 * start       before any message
 * idle        after messages, while the others wait for the next one
 * transfer    while long messages are under way in both directions
 * unplugged   then nobody is killed: the file comes to be, and whoever sees it takes the network away
 * vain        when each has had one message of the other's: then rank 0 sends one every tenth of a second, for 20
 *             seconds; it says when it is told
 * collective  in the middle of an allreduce
 * finalize    while the others are in MPI_Finalize, from which the host may let them go: it knows who has died
 * receive     while rank 0 receives a long message from it; rank 0 says what it has then (for an
 *             mpirun that lets survivors live)
 * reading     the same, when it has received one message of rank 0's before (likewise)
 *
 * send        before it receives anything of what rank 0 sends; rank 0 says when it is told (likewise)
 * silence     when it has received one message of rank 0's, which then sends short ones (likewise)
 *
 * marked      after messages and one with its process id, while rank 0 reads that (c-tests/verbs/preload/reading.c kills it)
 *
 * Every rank prints its process id first. A rank that goes on without the victim says so and
 * fails. */
#include "check.h"

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

enum { VICTIM = 1, TAG = 5, ROUNDS = 10, LONG = 1 << 26, VALUES = 1 << 18, TURNS = 1000000 };

_Noreturn static void die(void)
{
    fflush(stdout);
    kill(getpid(), SIGKILL);
    _exit(99);
}

/* The others wait for a message that never comes. */
static void wait_for_victim(void)
{
    if (check_rank == VICTIM)
        die();
    await_token(VICTIM, TAG, MPI_COMM_WORLD);
}

/* Rank 0 waits for a message that says whose it is, and does not get to the end of it. */
static void wait_for_mark(void)
{
    struct {
        char word[8];
        int64_t pid;
        unsigned char rest[16];
    } marked = {.word = "KILL ME", .pid = getpid(), .rest = {1}};
    MPI_Request request;

    if (check_rank != VICTIM)
        MPI(MPI_Irecv(&marked, sizeof marked, MPI_BYTE, VICTIM, TAG, MPI_COMM_WORLD, &request));
    for (int i = 0; i < ROUNDS; i++)
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (check_rank == VICTIM) {
        MPI(MPI_Send(&marked, sizeof marked, MPI_BYTE, 0, TAG, MPI_COMM_WORLD));
        await_token(0, TAG, MPI_COMM_WORLD);
    }
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static const char *unplugs;

/* Has the network taken away, as far as it has not been. */
static void unplug(void)
{
    FILE *file = fopen(unplugs, "w");
    if (file == NULL || fclose(file) != 0)
        abort();
}

/* Rank 0 and the victim send each other long messages, until one has arrived in part. What counts
 * as received must be there. */
static void transfer(void (*strike)(void))
{
    unsigned char *out = malloc(LONG), *in = malloc(LONG);
    volatile unsigned char *first = in, *last = in + LONG - 1;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int peer = check_rank == 0 ? VICTIM : 0, cancelled;

    if (out == NULL || in == NULL)
        abort();
    if (check_rank > VICTIM) {
        wait_for_victim();
        return;
    }
    memset(out, 1, LONG);
    for (int done = 0;; done = 0) {
        memset(in, 0, LONG);
        MPI(MPI_Irecv(in, LONG, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[0]));
        MPI(MPI_Isend(out, LONG, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, &requests[1]));
        while (!done) {
            if (check_rank == VICTIM && *first == 1 && *last == 0)
                strike();
            MPI(MPI_Testall(2, requests, &done, statuses));
        }
        MPI(MPI_Test_cancelled(&statuses[0], &cancelled));
        if (cancelled || memcmp(in, out, LONG) != 0) {
            printf("rank %d goes on with a message that %s\n", check_rank,
                   cancelled ? "nobody cancelled" : "is wrong");
            exit(1);
        }
    }
}

/* The victim announces a long message, goes idle, and is killed when rank 0 waits for the rest. */
_Noreturn static void receive(bool is_connected)
{
    unsigned char *bytes = malloc(LONG), *expected = malloc(LONG);
    MPI_Request request;
    MPI_Status status;
    int victim = (int)getpid(), alive = 1, code = MPI_SUCCESS, done = 0, cancelled = 0;

    if (bytes == NULL || expected == NULL)
        abort();
    memset(expected, 1, LONG);
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (is_connected && check_rank == VICTIM)
        await_token(0, TAG, MPI_COMM_WORLD);
    if (is_connected && check_rank == 0)
        MPI(MPI_Send(NULL, 0, MPI_BYTE, VICTIM, TAG, MPI_COMM_WORLD));
    if (check_rank == VICTIM) {
        MPI(MPI_Send(&victim, 1, MPI_INT, 0, TAG, MPI_COMM_WORLD));
        MPI(MPI_Isend(expected, LONG, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, &request));
        for (;;)
            pause();
    }
    MPI(MPI_Recv(&victim, 1, MPI_INT, VICTIM, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    memset(bytes, 0, LONG);
    MPI(MPI_Irecv(bytes, LONG, MPI_BYTE, VICTIM, TAG, MPI_COMM_WORLD, &request));
    for (int turn = 0; turn < TURNS && !done && code == MPI_SUCCESS; turn++) {
        if (turn == TURNS / 10)
            alive = kill(victim, SIGKILL);
        code = MPI_Test(&request, &done, &status);
    }
    if (code != MPI_SUCCESS) {
        printf("rank 0 has an error\n");
    } else if (!done) {
        printf("rank 0 has nothing\n");
    } else {
        MPI(MPI_Test_cancelled(&status, &cancelled));
        printf("rank 0 has a message that %s\n", cancelled ? "nobody cancelled"
               : memcmp(bytes, expected, LONG) != 0 ? "is wrong" : "is right");
    }
    fflush(stdout);
    if (alive)
        kill(victim, SIGKILL);
    _exit(0);
}

/* Waits until no other process of this program has the same parent: the other rank has died. It says nothing itself,
 * lest there be a connection. */
static void wait_for_death(void)
{
    for (;;) {
        DIR *all = opendir("/proc");
        struct dirent *entry;
        bool is_alone = true;

        if (all == NULL)
            abort();
        while ((entry = readdir(all)) != NULL) {
            char path[64], name[64], state;
            int process = atoi(entry->d_name), parent;
            FILE *stat;

            snprintf(path, sizeof path, "/proc/%d/stat", process);
            if (process <= 0 || process == (int)getpid() || (stat = fopen(path, "r")) == NULL)
                continue;
            if (fscanf(stat, "%*d (%63[^)]) %c %d", name, &state, &parent) == 3 && parent == (int)getppid() &&
                strcmp(name, "killed") == 0 && state != 'Z')
                is_alone = false;
            fclose(stat);
        }
        closedir(all);
        if (is_alone)
            return;
    }
}

/* The victim is gone before anything is received, or after one message: rank 0 sends until it is told so. */
_Noreturn static void send_to_victim(bool is_connected)
{
    int code = MPI_SUCCESS;
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (check_rank == VICTIM) {
        if (is_connected)
            await_token(0, TAG, MPI_COMM_WORLD);
        die();
    }
    if (is_connected)
        MPI(MPI_Send(NULL, 0, MPI_BYTE, VICTIM, TAG, MPI_COMM_WORLD));
    wait_for_death();
    for (int turn = 0; turn < TURNS && code == MPI_SUCCESS; turn++)
        code = MPI_Send(&turn, 1, MPI_INT, VICTIM, TAG, MPI_COMM_WORLD);
    printf("rank 0 has %s\n", code == MPI_SUCCESS ? "sent everything" : "an error");
    fflush(stdout);
    _exit(0);
}

/* Who has heard of the victim sends on, and there is no network any more. */
_Noreturn static void send_in_vain(void)
{
    static char message[3000];
    int code = MPI_SUCCESS;
    MPI(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    if (check_rank == VICTIM) {
        MPI(MPI_Recv(message, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        MPI(MPI_Send(message, 1, MPI_BYTE, 0, TAG, MPI_COMM_WORLD));
        for (;;)
            pause();
    }
    MPI(MPI_Send(message, 1, MPI_BYTE, VICTIM, TAG, MPI_COMM_WORLD));
    /* With this one the victim waits for nothing any more: the network is not taken from what it has yet to hear. */
    MPI(MPI_Recv(message, 1, MPI_BYTE, VICTIM, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    unplug();
    for (int turn = 0; turn < 200 && code == MPI_SUCCESS; turn++) {
        code = MPI_Send(message, sizeof message, MPI_BYTE, VICTIM, TAG, MPI_COMM_WORLD);
        usleep(100000);
    }
    printf("rank 0 has %s\n", code == MPI_SUCCESS ? "sent everything" : "an error");
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 3);
    _exit(3);
}

/* A round that the victim has done its part for may still succeed, and must then be right. */
_Noreturn static void collective(void)
{
    double *in = malloc(VALUES * sizeof *in), *out = calloc(VALUES, sizeof *out);
    MPI_Request request;
    int done;

    if (in == NULL || out == NULL)
        abort();
    for (int i = 0; i < VALUES; i++)
        in[i] = 1;
    for (int round = 0;; round++) {
        MPI(MPI_Iallreduce(in, out, VALUES, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, &request));
        if (round == ROUNDS && check_rank == VICTIM) {
            MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
            die();
        }
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
        for (int i = 0; i < VALUES; i++)
            if (out[i] != check_size) {
                printf("rank %d goes on with a wrong sum\n", check_rank);
                exit(1);
            }
        memset(out, 0, VALUES * sizeof *out);
    }
}

int main(int argc, char **argv)
{
    const char *when = argc > 1 ? argv[1] : "";

    check_start(&argc, &argv, "killed", MPI_THREAD_SINGLE, 2);
    printf("rank %d pid %d\n", check_rank, (int)getpid());
    doing(when, 0);
    if (strcmp(when, "start") == 0) {
        wait_for_victim();
    } else if (strcmp(when, "idle") == 0) {
        for (int i = 0; i < ROUNDS; i++)
            MPI(MPI_Barrier(MPI_COMM_WORLD));
        wait_for_victim();
    } else if (strcmp(when, "transfer") == 0) {
        transfer(die);
    } else if (strcmp(when, "unplugged") == 0 && argc > 2) {
        unplugs = argv[2];
        transfer(unplug);
    } else if (strcmp(when, "vain") == 0 && argc > 2) {
        unplugs = argv[2];
        send_in_vain();
    } else if (strcmp(when, "collective") == 0) {
        collective();
    } else if (strcmp(when, "receive") == 0) {
        receive(false);
    } else if (strcmp(when, "reading") == 0) {
        receive(true);
    } else if (strcmp(when, "send") == 0) {
        send_to_victim(false);
    } else if (strcmp(when, "silence") == 0) {
        send_to_victim(true);
    } else if (strcmp(when, "marked") == 0) {
        wait_for_mark();
    } else if (strcmp(when, "finalize") == 0) {
        MPI(MPI_Barrier(MPI_COMM_WORLD));
        if (check_rank == VICTIM)
            die();
        MPI_Finalize();
        printf("rank %d has ended its MPI\n", check_rank);
        return 1;
    } else {
        fprintf(stderr, "usage: killed start|idle|transfer|collective|finalize|marked|receive|reading|send|silence\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    printf("rank %d goes on without rank %d\n", check_rank, VICTIM);
    return 1;
}
