/* A process of the same user that is no rank claims all places in the inbox of rank 0, under names of nobody, others
 * again and again, and rings without end. Ranks 0 and 1 go on, all that they send is right, and rank 0 seldom asks its host
 * who that may be.
 *
 * usage: strangers                  the job
 *        strangers hostile PID      what rank 1 starts, against the process PID */
#include "../mpi/check.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

/* The layout of a segment (`shm/segment.rs`, `shm/inbox.rs`), in words. */
enum { PAGE = 512, BELL = PAGE, BELL_LINE = 8, INBOX = 2 * PAGE, PLACES = 1024, PLACE = 8, LENGTH = INBOX + PLACES * PLACE };
enum { STATE, NAME, LIFE, SERIAL = 4 };
/* What is in the first word of a place: who is about to claim it, or the ring, above which the process stands. */
enum { CLAIMING_BIT = 62, PROCESS_BIT = 16 };

/* For so many turns a name stays, or it would be another one before anybody has read it. */
enum { STAY = 64 };

enum { TAG = 3, ROUNDS = 20000, LONG_ROUNDS = 200, LONGEST = 100000 };

/* As `btl/smcuda/strangers.rs` has it: so many look-ups may find nothing, in so many seconds. */
enum { MOST_FAILED = 4 };
static const double REST = 0.02;

static _Atomic uint64_t *segment_of(const char *pid)
{
    char folder[64], path[400], name[256];
    snprintf(folder, sizeof folder, "/proc/%s/fd", pid);
    DIR *all = opendir(folder);
    for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        ssize_t length = readlink(path, name, sizeof name - 1);
        if (length <= 0)
            continue;
        name[length] = '\0';
        if (strstr(name, "hawser smcuda") == NULL || strstr(name, "door") != NULL)
            continue;
        int file = open(path, O_RDWR);
        void *map = file < 0 ? MAP_FAILED : mmap(NULL, LENGTH * 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        return map == MAP_FAILED ? NULL : map;
    }
    return NULL;
}

/* Until it is killed. */
static int claim_and_ring(const char *victim)
{
    _Atomic uint64_t *words = segment_of(victim), *inbox;
    uint64_t process = (uint64_t)getpid() << PROCESS_BIT;
    uint32_t job = 0;
    bool own[PLACES] = {false};

    if (words == NULL || memcmp((void *)words, "hwsmcu", 6) != 0)
        return 2;
    inbox = words + INBOX;
    /* The job's own number, or its host would know at once. */
    for (int place = 0; place < PLACES && job == 0; place++)
        job = inbox[place * PLACE + STATE] != 0 ? (uint32_t)inbox[place * PLACE + NAME] : 0;
    for (uint64_t turn = 0;; turn++) {
        for (uint64_t place = 0; place < PLACES; place++) {
            _Atomic uint64_t *at = inbox + place * PLACE;
            uint64_t empty = 0;
            own[place] = own[place] || atomic_compare_exchange_strong(&at[STATE], &empty, (uint64_t)1 << CLAIMING_BIT | process);
            if (!own[place])
                continue;
            at[NAME] = (1000 + place + turn / STAY % 1000 * PLACES) << 32 | job;
            at[LIFE] = at[LIFE + 1] = place + 1;
            at[SERIAL] = turn + 1;
            at[STATE] = process | (place + 1);
            atomic_fetch_or(&words[BELL + (1 + place / 64) * BELL_LINE], (uint64_t)1 << place % 64);
            atomic_fetch_or(&words[BELL], (uint64_t)1 << place / 64);
        }
        if (turn == 0 && write(STDOUT_FILENO, "!", 1) != 1)
            return 2;
        sched_yield();
    }
}

/* Returns when it is at work. */
static pid_t begin(const char *program, int victim)
{
    int ends[2];
    char pid[16], byte;

    snprintf(pid, sizeof pid, "%d", victim);
    if (!CHECK(pipe(ends) == 0))
        MPI_Abort(MPI_COMM_WORLD, 2);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(ends[1], STDOUT_FILENO);
        execl(program, program, "hostile", pid, (char *)NULL);
        _exit(2);
    }
    close(ends[1]);
    if (!CHECK(child > 0 && read(ends[0], &byte, 1) == 1))
        MPI_Abort(MPI_COMM_WORLD, 2);
    close(ends[0]);
    return child;
}

/* What is counted from the beginning on. */
static MPI_T_pvar_session session;
static MPI_T_pvar_handle handle;

static void count_unknown(void)
{
    int provided, index = -1, count;

    MPI(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    MPI(MPI_T_pvar_session_create(&session));
    if (!CHECK(MPI_T_pvar_get_index("btl_smcuda_num_unknown", MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_SUCCESS))
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count));
}

static unsigned long long unknown(void)
{
    unsigned long long value = 0;

    MPI(MPI_T_pvar_read(session, handle, &value));
    MPI(MPI_T_pvar_handle_free(session, &handle));
    MPI(MPI_T_pvar_session_free(&session));
    MPI(MPI_T_finalize());
    return value;
}

static void exchange(size_t size, int round)
{
    static unsigned char out[LONGEST], in[LONGEST];
    int peer = check_rank ^ 1;

    doing("exchange", round);
    if (check_rank == 0) {
        fill(out, size, (unsigned)round);
        MPI(MPI_Send(out, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD));
    }
    MPI(MPI_Recv(in, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    VERIFY(in, size, (unsigned)round);
    if (check_rank == 1)
        MPI(MPI_Send(in, (int)size, MPI_BYTE, peer, TAG, MPI_COMM_WORLD));
}

int main(int argc, char **argv)
{
    int victim;
    pid_t child = -1;
    double begun;

    if (argc == 3)
        return claim_and_ring(argv[2]);
    check_start(&argc, &argv, "strangers", MPI_THREAD_SINGLE, 2);
    begun = MPI_Wtime();
    if (check_rank == 0)
        count_unknown();
    victim = (int)getpid();
    MPI(MPI_Bcast(&victim, 1, MPI_INT, 0, MPI_COMM_WORLD));
    exchange(8, 0);
    if (check_rank == 1)
        child = begin(argv[0], victim);
    for (int round = 0; round < ROUNDS; round++)
        exchange(1 + (size_t)round % 300, round);
    for (int round = 0; round < LONG_ROUNDS; round++)
        exchange(LONGEST - (size_t)round, round);
    if (check_rank == 0) {
        unsigned long long asked = unknown();
        double rests = (MPI_Wtime() - begun) / REST + 2;
        printf("%llu names were not found, %.3f s\n", asked, MPI_Wtime() - begun);
        CHECK(asked > 0);
        CHECK((double)asked <= MOST_FAILED * rests);
    }
    if (child > 0) {
        int status = -1;
        CHECK_EQ(waitpid(child, &status, WNOHANG), 0);
        kill(child, SIGKILL);
        waitpid(child, &status, 0);
    }
    return check_finish();
}
