/* A byte transport as the host drives it, and the books that the tests keep of it. */
#ifndef HAWSER_HOSTILE_BTL_H
#define HAWSER_HOSTILE_BTL_H

#include "host.h"

typedef struct mca_btl_base_endpoint_t *endpoint_t;

struct btl {
    mca_btl_base_component_t *component;
    mca_btl_base_module_t **modules;
    int count;
    /* The first module, and the peer through it. */
    mca_btl_base_module_t *module;
    endpoint_t peer, itself;
};

/* What the user sets to have the transport, and something wrong. Of usnic: only the loopback interface, kernel sockets. */
const char *const *btl_parameters(void);
const char *const *btl_wrong_parameters(void);
/* The performance variables that count what was sent, and name devices. */
const char *btl_sends(void);
const char *btl_devices(void);

/* Finds the component, registers and opens it, makes modules, and the peer known to the first. */
void btl_begin(struct btl *btl, const char *const parameters[], bool threads);
/* The parts of it. */
void btl_load(struct btl *btl);
void btl_init(struct btl *btl, bool threads);
/* Whether a process is a peer of its own, as it is where it has atomic operations. */
bool btl_has_itself(const struct btl *btl);
void btl_meet(struct btl *btl);
/* Gives the peer up, ends all modules and closes the component. All sends have ended before. */
void btl_end(struct btl *btl);
/* The parts of it. */
void btl_part(struct btl *btl);
void btl_finalize(struct btl *btl);

/* What is sent: bytes that follow from its number, which stands at the beginning, if it fits. */
enum { TAG = MCA_BTL_TAG_USR, HEADER = 24 };
void message_fill(unsigned char *bytes, size_t size, uint64_t number);
/* The number of a message of at least HEADER bytes, all of which are checked. */
uint64_t message_check(const unsigned char *bytes, size_t size);

/* The books of one process. A send is posted, and completed once; what arrives is delivered once. */
enum { MOST = 1 << 16 };
struct books {
    _Atomic unsigned long posted, completed, failed, silent, refused, delivered;
    _Atomic unsigned char sent[MOST], seen[MOST];
    /* No callback may run any more. */
    _Atomic bool closed;
};
extern struct books books;

/* Called at the end of each completion and each delivery, where not null. */
extern void (*on_sent)(struct btl *btl, uint64_t number, int status);
extern void (*on_received)(struct btl *btl, uint64_t number, size_t size);
/* What is done with a completed descriptor that is the host's. */
extern enum keeping { FREE_IN_CALLBACK, FREE_LATER, KEEP } keeping;
/* How deep callbacks are nested. */
extern _Thread_local int depth;

/* Sends a message of a size; returns what the transport returns. `flags` as a descriptor's. */
int btl_post(struct btl *btl, uint64_t number, size_t size, uint32_t flags);
/* Frees what was put off. */
void btl_free_later(struct btl *btl);
/* Delivers messages of TAG to the books. */
void btl_listen(struct btl *btl);
/* Progress until so many were completed or delivered. */
void btl_await_sent(unsigned long count);
void btl_await_received(unsigned long count);
/* Everything that was posted is completed, and the peer's count is delivered. */
void btl_settle(struct btl *btl);

#endif
