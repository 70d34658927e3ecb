/* Which accelerator the host has chosen.
 *
 *     support [loaded|initialised]     what the program has done with CUDA before MPI begins */
#include "cuda.h"

#include <mpi-ext.h>

int main(int argc, char **argv)
{
    if (argc > 1) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        if (library == NULL) return 3;
        if (strcmp(argv[1], "initialised") == 0) {
            *(void **)&cu_init = cuda_symbol(library, "cuInit");
            cu_init(0);
        }
    }
    check_start(&argc, &argv, "support", MPI_THREAD_SINGLE, 1);
    printf("support %d\n", MPIX_Query_cuda_support());
    if (argc == 1) CHECK(dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD) == NULL);
    return check_finish();
}
