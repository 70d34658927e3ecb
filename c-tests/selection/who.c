/* Which transport serves this process, asked of the host itself: the pml and the mtl that it has
 * selected, and the file that the mtl's code lies in. Then every rank exchanges checked messages
 * with every other on four communicators.
 *
 * Prints one line a rank and, on rank 0, a last line `exchange: N messages, M wrong`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The head of every component of Open MPI 4.1 and 5.0 (opal/mca/mca.h: mca_base_component_t). */
struct component {
    int version[3];
    char project[16];
    int project_version[3];
    char type[32];
    int type_version[3];
    char name[64];
    int component_version[3];
};

/* The head of the module that an MTL hands to the host (ompi/mca/mtl/mtl.h: mca_mtl_base_module_t). */
struct module {
    int max_context;
    int max_tag;
    size_t request_size;
    unsigned flags;
    void *functions[4];
};

/* The file that the functions of a module lie in. */
static const char *file_of(const struct module *module)
{
    Dl_info info;

    for (int i = 0; i < 4; i++)
        if (dladdr(module->functions[i], &info) != 0 && info.dli_fname != NULL)
            return info.dli_fname;
    return "unknown";
}

static void say_who(int rank)
{
    struct component *pml = dlsym(RTLD_DEFAULT, "mca_pml_base_selected_component");
    struct component **mtl = dlsym(RTLD_DEFAULT, "ompi_mtl_base_selected_component");
    struct module **module = dlsym(RTLD_DEFAULT, "ompi_mtl");
    char path[4096], served[4352] = "no mtl";
    int *tag_ub, found;

    if (pml == NULL || mtl == NULL || module == NULL) {
        printf("rank %d: an unknown host\n", rank);
        MPI_Abort(MPI_COMM_WORLD, 2);
        return;
    }
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_ub, &found);
    if (*module != NULL) {
        const char *file = file_of(*module);
        const int *version = (*mtl)->component_version;
        snprintf(served, sizeof served, "mtl %s %d.%d.%d of %s, contexts up to %d", (*mtl)->name,
                 version[0], version[1], version[2], realpath(file, path) ? path : file,
                 (*module)->max_context);
    }
    printf("rank %d pid %d: pml %s, %s, tag_ub %d\n", rank, (int)getpid(), pml->name, served,
           found ? *tag_ub : -1);
    fflush(stdout);
}

enum { COMMS = 4, LONGEST = 1 << 18 };

static unsigned char byte_at(int from, int to, int comm, int i)
{
    return (unsigned char)(from * 7 + to * 13 + comm * 31 + i * 3);
}

/* Every pair, both ways, at once. Gives the number of bad messages. */
static long exchange(MPI_Comm comm, int number, int length, int rank, int ranks)
{
    unsigned char *out = malloc((size_t)ranks * (size_t)length);
    unsigned char *in = calloc((size_t)ranks, (size_t)length);
    MPI_Request *requests = malloc(2 * (size_t)ranks * sizeof *requests);
    long wrong = 0;

    for (int peer = 0; peer < ranks; peer++) {
        for (int i = 0; i < length; i++)
            out[peer * length + i] = byte_at(rank, peer, number, i);
        MPI_Irecv(in + peer * length, length, MPI_BYTE, peer, 1000 + number, comm,
                  &requests[2 * peer]);
        MPI_Isend(out + peer * length, length, MPI_BYTE, peer, 1000 + number, comm,
                  &requests[2 * peer + 1]);
    }
    MPI_Waitall(2 * ranks, requests, MPI_STATUSES_IGNORE);
    for (int peer = 0; peer < ranks; peer++) {
        int bad = 0;
        for (int i = 0; i < length; i++)
            bad |= in[peer * length + i] != byte_at(peer, rank, number, i);
        wrong += bad;
    }
    free(requests);
    free(in);
    free(out);
    return wrong;
}

int main(int argc, char **argv)
{
    static const int lengths[] = {1, 100, 8192, LONGEST};
    MPI_Comm comms[COMMS];
    int rank, ranks;
    long mine[2] = {0, 0}, all[2];

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    say_who(rank);
    comms[0] = MPI_COMM_WORLD;
    for (int c = 1; c < COMMS; c++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[c]);
    for (int c = 0; c < COMMS; c++)
        for (unsigned l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
            mine[0] += ranks;
            mine[1] += exchange(comms[c], c, lengths[l], rank, ranks);
        }
    for (int c = 1; c < COMMS; c++)
        MPI_Comm_free(&comms[c]);
    MPI_Allreduce(mine, all, 2, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("exchange: %ld messages, %ld wrong\n", all[0], all[1]);
    MPI_Finalize();
    return all[1] != 0;
}
