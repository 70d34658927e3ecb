/* What an Open MPI that does not know devices would do to a device's memory with the processor. With the hook of copies
 * in its usual mode the job ends with a line about it, in an orderly way, before anything is touched.
 *
 *     refused early|late WHAT [threads]
 *
 * early: CUDA is initialised before MPI; late: after it. threads: for any number of them (MPI_THREAD_MULTIPLE). WHAT is one of `cases`, or
 *
 *     host        all of them with host memory, which nobody refuses, while CUDA is in use
 *     managed     all messages and collectives with managed memory, which the processor may touch */
#include "cuda.h"

enum { SHORT = 64, LONG = 300000, COUNT = 1000 };

/* Of the device's, or, in the modes that pass, of another kind. */
static enum kind kind = FIRST;
static struct buffer given;
static char *there, *host;

static void own_sum(void *source, void *target, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int index = 0; index < *count; index++) ((int *)target)[index] += ((int *)source)[index];
}

/* Between the two ranks, from `from` at rank 0 to `to` at rank 1. */
static void message(void *from, void *to, int count, MPI_Datatype type)
{
    if (check_rank == 0) MPI(MPI_Send(from, count, type, 1, 1, MPI_COMM_WORLD));
    if (check_rank == 1) MPI(MPI_Recv(to, count, type, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static void short_send(void) { message(there, host, SHORT, MPI_BYTE); }
static void short_receive(void) { message(host, there, SHORT, MPI_BYTE); }
static void tiny_receive(void) { message(host, there, 1, MPI_INT); }
static void long_send(void) { message(there, host, LONG, MPI_BYTE); }
static void long_receive(void) { message(host, there, LONG, MPI_BYTE); }

static void unexpected(void)
{
    if (check_rank == 0) MPI(MPI_Send(host, SHORT, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    if (check_rank == 1) MPI(MPI_Recv(there, SHORT, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
}

static void buffered(void)
{
    static char room[LONG + MPI_BSEND_OVERHEAD];
    int len;
    void *attached;
    MPI(MPI_Buffer_attach(room, sizeof room));
    if (check_rank == 0) MPI(MPI_Bsend(there, SHORT, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
    if (check_rank == 1) MPI(MPI_Recv(host, SHORT, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    MPI(MPI_Buffer_detach(&attached, &len));
}

/* Requests that are made once, and started. */
static void persistent(bool receives)
{
    MPI_Request request;
    if (check_rank == 0) {
        MPI(MPI_Send_init(receives ? host : there, SHORT, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request));
    } else {
        MPI(MPI_Recv_init(receives ? there : host, SHORT, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request));
    }
    MPI(MPI_Start(&request));
    MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI(MPI_Request_free(&request));
}
static void persistent_send(void) { persistent(false); }
static void persistent_receive(void) { persistent(true); }

static void matched(bool waits)
{
    MPI_Message message;
    MPI_Request request;
    if (check_rank == 0) MPI(MPI_Send(host, SHORT, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
    if (check_rank != 1) return;
    MPI(MPI_Mprobe(0, 1, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE));
    if (waits) {
        MPI(MPI_Mrecv(there, SHORT, MPI_BYTE, &message, MPI_STATUS_IGNORE));
    } else {
        MPI(MPI_Imrecv(there, SHORT, MPI_BYTE, &message, &request));
        MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
}
static void matched_receive(void) { matched(true); }
static void begun_matched_receive(void) { matched(false); }

static void to_itself(void)
{
    MPI(MPI_Sendrecv(host, SHORT, MPI_BYTE, check_rank, 1, there, SHORT, MPI_BYTE, check_rank, 1, MPI_COMM_WORLD,
        MPI_STATUS_IGNORE));
}

static void strided(bool receives, MPI_Datatype of, int block)
{
    MPI_Datatype type;
    MPI(MPI_Type_vector(COUNT, block, 2 * block, of, &type));
    MPI(MPI_Type_commit(&type));
    message(receives ? host : there, receives ? there : host, 1, type);
    MPI(MPI_Type_free(&type));
}
static void derived_send(void) { strided(false, MPI_INT, 1); }
static void derived_receive(void) { strided(true, MPI_DOUBLE, 1); }
static void derived_blocks(void) { strided(true, MPI_BYTE, 33); }

static void pack(void)
{
    int position = 0;
    MPI(MPI_Pack(there, SHORT, MPI_BYTE, host, LONG, &position, MPI_COMM_WORLD));
}

/* In the format of all machines the host turns the bytes around. */
static void pack_external(void)
{
    MPI_Aint position = 0;
    MPI(MPI_Pack_external("external32", there, SHORT, MPI_INT, host, LONG, &position));
}
static void unpack_external(void)
{
    MPI_Aint position = 0;
    MPI(MPI_Unpack_external("external32", host, LONG, &position, there, SHORT, MPI_INT));
}

/* The datatype leads from a null address to the data. */
static void absolute(bool receives)
{
    MPI_Datatype type;
    MPI_Aint place = (MPI_Aint)there;
    int len = SHORT;
    MPI(MPI_Type_create_hindexed(1, &len, &place, MPI_BYTE, &type));
    MPI(MPI_Type_commit(&type));
    if (check_rank == 0) {
        if (receives) MPI(MPI_Send(host, SHORT, MPI_BYTE, 1, 1, MPI_COMM_WORLD));
        else MPI(MPI_Send(MPI_BOTTOM, 1, type, 1, 1, MPI_COMM_WORLD));
    } else if (check_rank == 1) {
        if (receives) MPI(MPI_Recv(MPI_BOTTOM, 1, type, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        else MPI(MPI_Recv(host, SHORT, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    MPI(MPI_Type_free(&type));
}
static void absolute_send(void) { absolute(false); }
static void absolute_receive(void) { absolute(true); }

/* --- files */

enum transfer { WRITE, READ, IWRITE, IREAD };

static void file(enum transfer transfer)
{
    MPI_File file;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status status;
    const char *folder = getenv("TMPDIR");
    char name[256];
    snprintf(name, sizeof name, "%s/refused-XXXXXX", folder == NULL ? P_tmpdir : folder);
    int made = check_rank == 0 ? mkstemp(name) : 0, count = -1;
    CHECK(made >= 0);
    MPI(MPI_Bcast(name, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD));
    MPI(MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    /* The job may end before it is closed. */
    if (check_rank == 0) CHECK_EQ(close(made) + unlink(name), 0);
    MPI(MPI_File_write_at_all(file, (MPI_Offset)check_rank * LONG, host, LONG, MPI_BYTE, MPI_STATUS_IGNORE));
    switch (transfer) {
    case WRITE: MPI(MPI_File_write_at(file, (MPI_Offset)check_rank * LONG, there, LONG, MPI_BYTE, &status)); break;
    case READ: MPI(MPI_File_read_at(file, (MPI_Offset)check_rank * LONG, there, LONG, MPI_BYTE, &status)); break;
    case IWRITE: MPI(MPI_File_iwrite_at(file, (MPI_Offset)check_rank * LONG, there, LONG, MPI_BYTE, &request)); break;
    case IREAD: MPI(MPI_File_iread_at(file, (MPI_Offset)check_rank * LONG, there, LONG, MPI_BYTE, &request)); break;
    }
    if (request != MPI_REQUEST_NULL) MPI(MPI_Wait(&request, &status));
    MPI(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK_EQ(count, LONG);
    MPI(MPI_File_close(&file));
}
static void file_write(void) { file(WRITE); }
static void file_read(void) { file(READ); }
static void file_iwrite(void) { file(IWRITE); }
static void file_iread(void) { file(IREAD); }

static void broadcast(void) { MPI(MPI_Bcast(there, SHORT, MPI_BYTE, 0, MPI_COMM_WORLD)); }
static void gather(void) { MPI(MPI_Allgather(there, SHORT, MPI_BYTE, host, SHORT, MPI_BYTE, MPI_COMM_WORLD)); }
static void alltoall(void) { MPI(MPI_Alltoall(host, SHORT, MPI_BYTE, there, SHORT, MPI_BYTE, MPI_COMM_WORLD)); }
static void copies_itself(void)
{
    MPI(MPI_Gather(there, SHORT, MPI_BYTE, host, SHORT, MPI_BYTE, 0, MPI_COMM_SELF));
}

static void reduce(void) { MPI(MPI_Allreduce(there, host, SHORT, MPI_INT, MPI_SUM, MPI_COMM_WORLD)); }
static void reduce_long(void) { MPI(MPI_Allreduce(MPI_IN_PLACE, there, LONG / 8, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD)); }
static void reduce_local(void) { MPI(MPI_Reduce_local(host, there, SHORT, MPI_INT, MPI_SUM)); }

/* 0 and what is there make that. */
static void sums(void)
{
    char *wanted = malloc(LONG);
    buffer_read(&given, 0, wanted, LONG);
    CHECK(memcmp(host, wanted, SHORT * sizeof(int)) == 0);
    free(wanted);
}

static void own(void)
{
    MPI_Op op;
    MPI(MPI_Op_create(own_sum, 1, &op));
    memset(host, 0, LONG);
    MPI(MPI_Reduce_local(there, host, SHORT, MPI_INT, op));
    MPI(MPI_Op_free(&op));
    sums();
}

static void own_reduce(void)
{
    MPI_Op op;
    MPI(MPI_Op_create(own_sum, 1, &op));
    MPI(MPI_Allreduce(there, host, SHORT, MPI_INT, op, MPI_COMM_WORLD));
    MPI(MPI_Op_free(&op));
}

/* A program in Fortran makes an operation with the same arguments, but for the datatype, which is a number. */
static void fortran_sum(void *source, void *target, int *count, int *type)
{
    (void)type;
    for (int index = 0; index < *count; index++) ((int *)target)[index] += ((int *)source)[index];
}

static void fortran(void)
{
    void (*create)(void (*)(void *, void *, int *, int *), int *, int *, int *);
    void (*reduce_in)(void *, void *, int *, int *, int *, int *);
    void *library = dlopen("libmpi_mpifh.so.40", RTLD_NOW | RTLD_NOLOAD);
    int commutes = 1, op = 0, code = -1, count = SHORT, type = MPI_Type_c2f(MPI_INT);
    *(void **)&create = cuda_symbol(library, "mpi_op_create_");
    *(void **)&reduce_in = cuda_symbol(library, "mpi_reduce_local_");
    create(fortran_sum, &commutes, &op, &code);
    CHECK_EQ(code, MPI_SUCCESS);
    memset(host, 0, LONG);
    reduce_in(there, host, &count, &type, &op, &code);
    CHECK_EQ(code, MPI_SUCCESS);
    sums();
}

/* --- one-sided */

static void window_of(void *start)
{
    MPI_Win window;
    MPI(MPI_Win_create(start, LONG, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    MPI(MPI_Win_free(&window));
}
static void window(void) { window_of(there); }

static void attached(void)
{
    MPI_Win window;
    MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    MPI(MPI_Win_attach(window, there, LONG));
    MPI(MPI_Win_detach(window, there));
    MPI(MPI_Win_free(&window));
}

enum access { PUT, GET, ACCUMULATE, GET_ACCUMULATE, FETCH, SWAP, RPUT, RGET, RACCUMULATE, RGET_ACCUMULATE };

/* Each rank works on the window of the other. */
static void one_sided(enum access access, int count)
{
    MPI_Win window;
    MPI_Request request = MPI_REQUEST_NULL;
    int *base, one = 1, peer = check_size - 1 - check_rank;
    MPI(MPI_Win_allocate(LONG, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window));
    memset(base, 0, LONG);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_lock_all(0, window));
    switch (access) {
    case PUT: MPI(MPI_Put(there, count, MPI_INT, peer, 0, count, MPI_INT, window)); break;
    case GET: MPI(MPI_Get(there, count, MPI_INT, peer, 0, count, MPI_INT, window)); break;
    case ACCUMULATE: MPI(MPI_Accumulate(there, count, MPI_INT, peer, 0, count, MPI_INT, MPI_SUM, window)); break;
    case GET_ACCUMULATE:
        MPI(MPI_Get_accumulate(host, count, MPI_INT, there, count, MPI_INT, peer, 0, count, MPI_INT, MPI_SUM, window));
        break;
    case FETCH: MPI(MPI_Fetch_and_op(&one, there, MPI_INT, peer, 0, MPI_SUM, window)); break;
    case SWAP: MPI(MPI_Compare_and_swap(&one, there, host, MPI_INT, peer, 0, window)); break;
    case RPUT: MPI(MPI_Rput(there, count, MPI_INT, peer, 0, count, MPI_INT, window, &request)); break;
    case RGET: MPI(MPI_Rget(there, count, MPI_INT, peer, 0, count, MPI_INT, window, &request)); break;
    case RACCUMULATE:
        MPI(MPI_Raccumulate(there, count, MPI_INT, peer, 0, count, MPI_INT, MPI_SUM, window, &request));
        break;
    case RGET_ACCUMULATE:
        MPI(MPI_Rget_accumulate(there, count, MPI_INT, host, count, MPI_INT, peer, 0, count, MPI_INT, MPI_SUM, window, &request));
        break;
    }
    if (request != MPI_REQUEST_NULL) MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    MPI(MPI_Win_unlock_all(window));
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    MPI(MPI_Win_free(&window));
}
static void put(void) { one_sided(PUT, SHORT); }
static void put_long(void) { one_sided(PUT, LONG / 8); }
static void get(void) { one_sided(GET, SHORT); }
static void get_long(void) { one_sided(GET, LONG / 8); }
static void accumulate(void) { one_sided(ACCUMULATE, SHORT); }
static void get_accumulate(void) { one_sided(GET_ACCUMULATE, SHORT); }
static void fetch(void) { one_sided(FETCH, 1); }
static void swap(void) { one_sided(SWAP, 1); }
static void rput(void) { one_sided(RPUT, SHORT); }
static void rget(void) { one_sided(RGET, SHORT); }
static void raccumulate(void) { one_sided(RACCUMULATE, SHORT); }
static void rget_accumulate(void) { one_sided(RGET_ACCUMULATE, SHORT); }

/* What is given with a length of 0 is nobody's to look at. */
static void nothing(void)
{
    struct buffer device = buffer_new(FIRST, SHORT);
    MPI_Win window;
    message(device.start, device.start, 0, MPI_BYTE);
    MPI(MPI_Bcast(device.start, 0, MPI_BYTE, 0, MPI_COMM_WORLD));
    MPI(MPI_Allreduce(device.start, device.start + 8, 0, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    MPI(MPI_Win_create(device.start, 0, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window));
    MPI(MPI_Win_fence(0, window));
    MPI(MPI_Put(device.start, 0, MPI_BYTE, 0, 0, 0, MPI_BYTE, window));
    MPI(MPI_Win_fence(0, window));
    MPI(MPI_Win_free(&window));
    buffer_free(&device);
}

static const struct {
    const char *name;
    void (*run)(void);
    /* Whether the processor may touch managed memory there. */
    bool is_message;
} cases[] = {
    {"send", short_send, true},
    {"receive", short_receive, true},
    {"tiny", tiny_receive, true},
    {"unexpected", unexpected, true},
    {"long-send", long_send, true},
    {"long-receive", long_receive, true},
    {"bsend", buffered, true},
    {"persistent-send", persistent_send, true},
    {"persistent-receive", persistent_receive, true},
    {"matched-receive", matched_receive, true},
    {"begun-matched-receive", begun_matched_receive, true},
    {"self", to_itself, true},
    {"derived-send", derived_send, true},
    {"derived-receive", derived_receive, true},
    {"derived-blocks", derived_blocks, true},
    {"pack", pack, true},
    {"absolute-send", absolute_send, true},
    {"absolute-receive", absolute_receive, true},
    {"pack-external", pack_external, true},
    {"unpack-external", unpack_external, true},
    {"file-write", file_write, true},
    {"file-read", file_read, true},
    {"file-iwrite", file_iwrite, true},
    {"file-iread", file_iread, true},
    {"bcast", broadcast, true},
    {"allgather", gather, true},
    {"alltoall", alltoall, true},
    {"copy", copies_itself, true},
    {"allreduce", reduce, true},
    {"allreduce-long", reduce_long, true},
    {"reduce-local", reduce_local, true},
    {"own", own, true},
    {"own-allreduce", own_reduce, true},
    {"fortran", fortran, true},
    {"window", window, false},
    {"attach", attached, false},
    {"put", put, false},
    {"put-long", put_long, false},
    {"get", get, false},
    {"get-long", get_long, false},
    {"accumulate", accumulate, false},
    {"get-accumulate", get_accumulate, false},
    {"fetch", fetch, false},
    {"swap", swap, false},
    {"rput", rput, false},
    {"rget", rget, false},
    {"raccumulate", raccumulate, false},
    {"rget-accumulate", rget_accumulate, false},
};
enum { CASES = sizeof cases / sizeof *cases };

int main(int argc, char **argv)
{
    bool early = argc > 1 && strcmp(argv[1], "early") == 0, found = false;
    const char *what = argc > 2 ? argv[2] : "host";
    bool has_fortran = dlopen("libmpi_mpifh.so.40", RTLD_NOW | RTLD_GLOBAL) != NULL;
    if (early) cuda_begin();
    bool threads = argc > 3 && strcmp(argv[3], "threads") == 0;
    check_start(&argc, &argv, "refused", threads ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, 2);
    if (!early) cuda_begin();
    if (strcmp(what, "host") == 0) kind = MAPPED;
    if (strcmp(what, "managed") == 0) kind = MANAGED;
    given = buffer_new(kind, LONG);
    there = given.start;
    host = calloc(1, LONG);
    buffer_fill(&given, 0, LONG, 1);
    MPI(MPI_Barrier(MPI_COMM_WORLD));
    for (int number = 0; number < CASES; number++) {
        bool all = kind == MAPPED || (kind == MANAGED && cases[number].is_message);
        if (!all && strcmp(cases[number].name, what) != 0) continue;
        if (!has_fortran && cases[number].run == fortran) continue;
        found = true;
        doing(cases[number].name, number);
        cases[number].run();
        MPI(MPI_Barrier(MPI_COMM_WORLD));
    }
    if (strcmp(what, "nothing") == 0) {
        nothing();
        found = true;
    }
    if (!found) {
        fprintf(stderr, "no case %s\n", what);
        exit(3);
    }
    buffer_free(&given);
    free(host);
    int status = check_finish();
    cuda_end();
    return status;
}
