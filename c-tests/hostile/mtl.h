/* A matching transport as pml/cm drives it. */
#ifndef HAWSER_HOSTILE_MTL_H
#define HAWSER_HOSTILE_MTL_H

#include "host.h"

struct mtl {
    mca_mtl_base_component_t *component;
    mca_mtl_base_module_t *module;
    /* Of both processes. */
    ompi_communicator_t *world;
};

/* A request: what the host holds, and, in a block of its own, what the transport is handed. */
struct request {
    mca_pml_base_request_t pml;
    mca_mtl_request_t *head;
    opal_convertor_t convertor;
    opal_datatype_t type;
    unsigned char *bytes;
    size_t size;
    uint64_t number;
    _Atomic int ended;
    /* Called at the end of the completion; it may free the request. */
    void (*on_end)(struct mtl *mtl, struct request *request);
    struct mtl *mtl;
};

/* The provider that the script chose, over the loopback interface; `name` is the component's. */
const char *const *mtl_parameters(void);

void mtl_begin(struct mtl *mtl, const char *name, bool threads);
void mtl_load(struct mtl *mtl, const char *name);
/* Query and init. */
void mtl_init(struct mtl *mtl, bool threads);
void mtl_meet(struct mtl *mtl);
/* Ends the module and closes the component; all requests have ended before. */
void mtl_end(struct mtl *mtl);
/* Without giving anything back first. */
void mtl_finalize(struct mtl *mtl);

ompi_communicator_t *mtl_communicator(uint32_t id);
void mtl_free_communicator(ompi_communicator_t *comm);

/* A request with `size` bytes of memory and a guard behind them. */
struct request *request_new(struct mtl *mtl, size_t size, bool is_receive);
void request_free(struct request *request);
/* Starts it; what the transport returns. A send of HEADER bytes or more carries its number. */
int mtl_isend(struct request *request, ompi_communicator_t *comm, int tag, uint64_t number, bool synchronous);
int mtl_irecv(struct request *request, ompi_communicator_t *comm, int source, int tag);
/* Progress until it has ended. */
void request_wait(struct request *request);
/* A receive that has ended well: the message's number, all bytes checked. */
uint64_t request_check(struct request *request);
/* What was completed so far, of all requests, and what was started. */
extern _Atomic unsigned long requests_ended, requests_started;

#endif
