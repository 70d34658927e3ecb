/* Performance variables by name, and what MPI_T says of them. */
#ifndef PVAR_H
#define PVAR_H

#include <mpi.h>
#include <string.h>

struct pvar {
    char name[256], text[1024];
    int verbosity, class, bind, readonly, continuous, atomic;
    MPI_Datatype type;
    MPI_T_enum names;
};

/* Whether there is one of this index. */
static inline int pvar_at(int index, struct pvar *what)
{
    int name_size = sizeof what->name, text_size = sizeof what->text;
    return MPI_T_pvar_get_info(index, what->name, &name_size, &what->verbosity, &what->class,
                               &what->type, &what->names, what->text, &text_size, &what->bind,
                               &what->readonly, &what->continuous, &what->atomic) == MPI_SUCCESS;
}

/* The index of the one of this name, or -1. */
static inline int pvar_named(const char *name, struct pvar *what)
{
    int variables = 0;
    MPI_T_pvar_get_num(&variables);
    for (int i = 0; i < variables; i++)
        if (pvar_at(i, what) && strcmp(what->name, name) == 0)
            return i;
    return -1;
}

#endif
