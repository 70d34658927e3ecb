/* The host that is faked: what hawser looks up in an Open MPI process, out of this program's own image,
 * with the layouts of the installed headers. What differs between the versions is in v4_1.c and v5_0.c. */
#ifndef HAWSER_HOSTILE_HOST_H
#define HAWSER_HOSTILE_HOST_H

#include "ompi_config.h"

#include "mpi.h"
#include "ompi/communicator/communicator.h"
#include "ompi/constants.h"
#include "ompi/group/group.h"
#include "ompi/mca/mtl/mtl.h"
#include "ompi/mca/pml/base/pml_base_request.h"
#include "ompi/message/message.h"
#include "ompi/proc/proc.h"
#include "ompi/request/request.h"
#include "opal/datatype/opal_convertor.h"
#include "opal/datatype/opal_datatype.h"
#include "opal/mca/btl/base/base.h"
#include "opal/mca/btl/btl.h"

#include "world.h"

/* The library that is tested. */
extern const char *host_library;

/* Takes the process's parameters (`name=value`), fills in what a host knows before it opens components,
 * and loads the library. */
void host_begin(const char *const parameters[]);
/* Everything that the host owns is given back; what was handed over to hawser must have come back. */
void host_end(void);
/* A symbol of the library. */
void *host_component(const char *name);

/* Runs every registered progress function once, as opal_progress does. It nests. */
void host_progress(void);
/* How many functions are registered. */
int host_progress_functions(void);
/* What the host does to say how many threads may call. */
void host_set_threads(bool several);

/* The processes of the job. */
extern ompi_proc_t *host_proc[RANKS];

/* Help texts and lines of output so far, and the last topic. */
extern _Atomic unsigned host_help, host_lines;
extern char host_topic[64];
/* Values of the modex that hawser was handed and has not given back. */
extern _Atomic int host_values;
/* What it does with questions: answers; does not know the process, although it has written its name (5.0);
 * says that all is well, and gives nothing. */
extern enum host_modex { ANSWERS, KNOWS_NOBODY, GIVES_NOTHING } host_modex;

/* Runs before each pack and unpack, where it is not null; what it returns, if not 0, is the result. */
extern int (*host_on_convert)(opal_convertor_t *convertor);

/* Buffers as the PML describes them. One piece: */
void host_contiguous(opal_convertor_t *convertor, const void *bytes, size_t size);
/* Pieces of `block` bytes, `stride` apart; `type` stays until the convertor is done. */
void host_strided(opal_convertor_t *convertor, opal_datatype_t *type, const void *bytes, size_t pieces,
                  size_t block, size_t stride);

/* The performance variables that were registered: the values of one, by module; their number. */
int host_counter(const char *name, unsigned long long *values, int room);
/* The same in two steps; the second may be done by any thread, at any time after the first. */
void *host_find_counter(const char *name);
int host_read_counter(void *found, unsigned long long *values, int room);

/* What each version does in its own way. */
void version_begin(void);
/* The communicator of both processes under an id. */
void version_communicator(ompi_communicator_t *comm, uint32_t id);
/* Registers `received` for a tag: it is called with what the version's callback gets. */
typedef void (*host_received_t)(mca_btl_base_module_t *module, uint8_t tag, const unsigned char *bytes,
                                size_t size, void *data);
void version_listen(uint8_t tag, host_received_t received, void *data);
/* The module of an MTL component. */
mca_mtl_base_module_t *version_init_mtl(mca_mtl_base_component_t *component, bool threads);
/* Whether a lost peer is told as an error that ends the job. */
extern const int32_t version_loss;

#endif
