/* Generated from src/capi by `make headers`. Do not edit. */

#ifndef HAWSER_H
#define HAWSER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// The version of the structures and tables of this header.
#define HAWSER_ABI 1

// A level of `hawser_host.log`: something does not work.
#define HAWSER_LOG_ERROR 0

// Something that the user should know.
#define HAWSER_LOG_WARNING 1

// What is chosen and why.
#define HAWSER_LOG_INFO 2

// One thread calls hawser.
#define HAWSER_THREAD_SINGLE 0

// Any threads do, at any time.
#define HAWSER_THREAD_MULTIPLE 3

// The value of a parameter is an integer.
#define HAWSER_KIND_INT 0

// It is an integer that is not negative.
#define HAWSER_KIND_UNSIGNED 1

// It is a text.
#define HAWSER_KIND_TEXT 2

// It is true or false, or a number that stands for that.
#define HAWSER_KIND_BOOL 3

// Of a send: the callback is always called, and not before the peer has the message or its transport has
// taken it.
#define HAWSER_AWAITED 1

// Of a send: it may overtake what was sent before.
#define HAWSER_PRIORITY 2

// Of registered memory: peers may get it.
#define HAWSER_READ 1

// Of registered memory: peers may put there.
#define HAWSER_WRITE 2

// Of a module: it sends.
#define HAWSER_CAN_SEND 1

// It puts. This may go when a peer is added that does not let it.
#define HAWSER_CAN_PUT 2

// It gets. This may go when a peer is added that does not let it.
#define HAWSER_CAN_GET 4

// It gets from the memory of CUDA devices, and to it.
#define HAWSER_CAN_DEVICES 16

// Bytes of a hawser_remote.
#define HAWSER_REMOTE_BYTES 256

// It is done, or under way, as the function says.
#define HAWSER_SUCCESS 0

// It is over already, and nothing more is said of it.
#define HAWSER_DONE 1

// An argument is NULL, misaligned or out of its range.
#define HAWSER_ERR_ARGUMENT (-1)

// A handle of nothing: it has ended, was consumed, is another module's, or never was one.
#define HAWSER_ERR_STALE (-2)

// The function's turn has not come, or is over: the component is not open, or the module is being finalized, or this is
// a child of fork(2) of the process that has opened it.
#define HAWSER_ERR_STATE (-3)

// Somebody else is at it: another call of the same module is running (a callback ends what it was called from, or
// too many lie in one another), or Open MPI has the component in this process.
#define HAWSER_ERR_BUSY (-4)

// There is no room now; make progress and try again.
#define HAWSER_ERR_AGAIN (-5)

// The peer is lost, or was never reached.
#define HAWSER_ERR_UNREACHABLE (-6)

// More bytes than the transport carries at once, or than were registered.
#define HAWSER_ERR_TOO_LONG (-7)

// What was asked for is not there.
#define HAWSER_ERR_NOT_FOUND (-8)

// The transport cannot do this, or not with this peer or this memory.
#define HAWSER_ERR_UNSUPPORTED (-9)

// Memory or handles are used up. Where not even a few bytes are to be had, the process ends, with SIGABRT.
#define HAWSER_ERR_MEMORY (-10)

// There is nothing here that the component could use; the log says why.
#define HAWSER_ERR_NOT_AVAILABLE (-11)

// A parameter has no value that it may have; the log says which.
#define HAWSER_ERR_PARAMETER (-12)

// The time is up, and it is not over.
#define HAWSER_ERR_TIMEOUT (-13)

// The system refuses something.
#define HAWSER_ERR_SYSTEM (-14)

// The module has ended first.
#define HAWSER_ERR_CLOSED (-15)

// A bug in hawser, told on standard error; the module answers HAWSER_ERR_POISONED from now on.
#define HAWSER_ERR_INTERNAL (-16)

// There was HAWSER_ERR_INTERNAL before; only finalize and close are left.
#define HAWSER_ERR_POISONED (-17)

// A structure of another version of this interface, or shorter than it says.
#define HAWSER_ERR_ABI (-18)

// A function of the caller's has failed.
#define HAWSER_ERR_HOST (-19)

// The memory was not registered for this.
#define HAWSER_ERR_ACCESS (-20)

// The message was longer than the room for it, which has its beginning.
#define HAWSER_ERR_TRUNCATED (-21)

// It was cancelled, and nothing has come of it.
#define HAWSER_ERR_CANCELLED (-22)

// Of a matching send: it is over when the receiver has begun to receive it, and not before.
#define HAWSER_SYNCHRONOUS 4

// Of a receive or a probe: any tag.
#define HAWSER_ANY_TAG (-1)

// A module: one network interface, or the shared memory of the node. From `module_at`; borrowed from its
// component until `finalize` or `close`. All zeros are none, here and in the handles below.
typedef struct hawser_btl {
    // Opaque.
    uint64_t id;
} hawser_btl;

// What a module is good for. The caller sets `size`; so much is filled in.
typedef struct hawser_btl_limits {
    // Bytes of this structure: `sizeof(struct hawser_btl_limits)`.
    size_t size;
    // Longest message that should be sent without asking the receiver, in bytes.
    size_t eager;
    // Data that should go with the announcement of a longer one, in bytes.
    size_t rndv_eager;
    // Longest fragment, in bytes.
    size_t max_send;
    // HAWSER_CAN_*
    uint32_t flags;
    // Modules of lower value are not worth using beside this one.
    uint32_t exclusivity;
    // Rank by latency; lower is better.
    uint32_t latency;
    // Mbit/s
    uint32_t bandwidth;
    // The network interface, or what else it is; ends with zero.
    char device[64];
} hawser_btl_limits;

// A process to reach.
typedef struct hawser_peer {
    // Its name, as its own `hawser_host.name` says it.
    uint64_t name;
    // The node that it runs on, for messages to people; NULL: not known.
    const char *node;
} hawser_peer;

// A peer as a module reaches it. Borrowed from the module until `del_peers` or `finalize`.
typedef struct hawser_endpoint {
    // Opaque.
    uint64_t id;
} hawser_endpoint;

// A message has arrived. The bytes are borrowed for the time of the call; another process may be able to
// write there meanwhile: copy first what is to be believed. It may be called in any function of the module
// that makes progress: `progress`, `flush`, `del_peers`, `finalize`. Every function may be called in it but
// those that end what it was called from: `finalize` and `close` return HAWSER_ERR_BUSY, or
// HAWSER_ERR_STATE where they have been called already. A callback that makes
// progress may be called back in it, and that one again; where a thousand calls of a module lie in one another,
// `progress` and `flush` return HAWSER_ERR_BUSY, too. So in the other callbacks.
typedef void (*hawser_received)(void *context,
                                struct hawser_btl module,
                                struct hawser_endpoint endpoint,
                                uint8_t tag,
                                const void *bytes,
                                size_t length);

// A peer is lost: its process has ended, or does what none should. What was under way to it ends with an
// error; the endpoint is the caller's to delete.
typedef void (*hawser_lost)(void *context,
                            struct hawser_btl module,
                            struct hawser_endpoint endpoint,
                            uint64_t name);

// Something to send. Owned by whoever has it from `alloc` or `prepare_src`, until `send` takes it or `free`.
typedef struct hawser_fragment {
    // Opaque.
    uint64_t id;
} hawser_fragment;

// A send, PUT or GET has ended: what it used is the caller's again. HAWSER_SUCCESS, or why it has failed.
typedef void (*hawser_completed)(void *context,
                                 struct hawser_btl module,
                                 struct hawser_endpoint endpoint,
                                 int32_t status);

// The name of registered memory for peers: plain bytes, which any means may carry. What is not of
// `memory_key` is refused as far as that can be seen; peers that put and get are trusted with the memory
// that is open to them.
typedef struct hawser_remote {
    // Opaque.
    uint8_t bytes[HAWSER_REMOTE_BYTES];
} hawser_remote;

// Memory that is open to peers. Owned by whoever has registered it, until `deregister_memory` or `finalize`.
typedef struct hawser_memory {
    // Opaque.
    uint64_t id;
} hawser_memory;

// The functions of a module. All may be called by any thread at any time. A handle that is not the module's
// is HAWSER_ERR_STALE; NULL where something must be is HAWSER_ERR_ARGUMENT; nothing has happened then.
typedef struct hawser_btl_module {
    // Bytes of this structure.
    size_t size;
    // HAWSER_ABI
    uint32_t abi;
    // 0
    uint32_t reserved;
    // Fills in what the module is good for.
    int32_t (*limits)(struct hawser_btl module, struct hawser_btl_limits *limits);
    // Makes peers known: `endpoints` has room for as many, and gets zeros for those that are not reached
    // through this module. A peer that was added before has the same endpoint again. HAWSER_ERR_BUSY, and
    // nothing has happened, while one of them is being deleted: in what `del_peers` calls back, for example.
    int32_t (*add_peers)(struct hawser_btl module,
                         size_t count,
                         const struct hawser_peer *peers,
                         struct hawser_endpoint *endpoints);
    // Ends connections. What is queued is sent first, for a quarter of a second at most; all that is still
    // under way ends with an error. Nothing happens if one of the handles is stale; zeros are passed over.
    // The peers are to be done with this process, too: what they still get from its memory may end only when they
    // delete it, or when it ends. Who is deleted and keeps its own endpoint meets this process again when that adds it
    // again: what it sends before it has heard of that arrives then, or ends with an error, if it is awaited. Over `usnic` and
    // `verbs` this waits until the peers have heard, for two seconds at most. A device of iWARP is not told of arrival: what
    // one sends by it that has not heard by then may be in vain, whatever its callback says.
    int32_t (*del_peers)(struct hawser_btl module,
                         size_t count,
                         const struct hawser_endpoint *endpoints);
    // The name of the process behind an endpoint.
    int32_t (*peer_name)(struct hawser_btl module, struct hawser_endpoint endpoint, uint64_t *name);
    // Sets the function for messages with a tag, or takes it away (NULL); what comes without one is dropped.
    // Tags 0x22 and 0xFF are hawser's. Peers that have not been added may send, too: their endpoints are
    // new. One that was deleted may be heard only when it has been added again.
    int32_t (*register_receive)(struct hawser_btl module,
                                uint8_t tag,
                                hawser_received callback,
                                void *context);
    // Sets the function for lost peers, or takes it away (NULL).
    int32_t (*register_error)(struct hawser_btl module, hawser_lost callback, void *context);
    // A fragment of so many bytes, up to `max_send`: the caller writes them to `*memory` before `send`.
    int32_t (*alloc)(struct hawser_btl module,
                     size_t length,
                     struct hawser_fragment *fragment,
                     void **memory);
    // A fragment of so many bytes for a header, which the caller writes to `*memory`, and of data that lies
    // elsewhere. Data is borrowed: nobody writes there before the send has ended. Data on a device is
    // HAWSER_ERR_UNSUPPORTED.
    int32_t (*prepare_src)(struct hawser_btl module,
                           size_t header,
                           const void *data,
                           size_t length,
                           struct hawser_fragment *fragment,
                           void **memory);
    // Gives back a fragment that is not going to be sent.
    int32_t (*free)(struct hawser_btl module, struct hawser_fragment fragment);
    // Sends a fragment, now or as soon as it can be; `flags` are HAWSER_AWAITED, HAWSER_PRIORITY.
    // HAWSER_SUCCESS: the callback, if it is not NULL, tells the end, once, and not before this returns.
    // HAWSER_DONE: it is over, and nothing follows; never of one that is awaited. Either way the fragment is
    // hawser's. On an error it stays the caller's; HAWSER_ERR_AGAIN: make progress and send it again.
    int32_t (*send)(struct hawser_btl module,
                    struct hawser_endpoint endpoint,
                    struct hawser_fragment fragment,
                    uint8_t tag,
                    uint32_t flags,
                    hawser_completed callback,
                    void *context);
    // Sends a header and data, both of which may be empty, from where they lie; when this returns they are
    // the caller's again. HAWSER_ERR_AGAIN: there is no room, and nothing was sent.
    int32_t (*sendi)(struct hawser_btl module,
                     struct hawser_endpoint endpoint,
                     uint8_t tag,
                     const void *header,
                     size_t header_length,
                     const void *data,
                     size_t length);
    // Writes to a peer's memory: what it has registered, from an offset on. HAWSER_SUCCESS: the memory here is borrowed
    // until the callback (which may be NULL; `flush` tells, too). HAWSER_DONE: it is over, and nothing follows. The memory
    // here need not be registered.
    int32_t (*put)(struct hawser_btl module,
                   struct hawser_endpoint endpoint,
                   const void *local,
                   size_t length,
                   const struct hawser_remote *remote,
                   uint64_t offset,
                   hawser_completed callback,
                   void *context);
    // Reads a peer's memory, as `put` writes it. Either may be a device's where the module has
    // HAWSER_CAN_DEVICES.
    int32_t (*get)(struct hawser_btl module,
                   struct hawser_endpoint endpoint,
                   void *local,
                   size_t length,
                   const struct hawser_remote *remote,
                   uint64_t offset,
                   hawser_completed callback,
                   void *context);
    // Opens memory to peers, HAWSER_READ, HAWSER_WRITE or both. It is borrowed until `deregister_memory`.
    int32_t (*register_memory)(struct hawser_btl module,
                               void *address,
                               size_t length,
                               uint32_t access,
                               struct hawser_memory *memory);
    // Opens memory of a CUDA device, for one peer to read. Where the program has not loaded the CUDA driver,
    // or the address is host memory: HAWSER_ERR_UNSUPPORTED.
    int32_t (*register_device)(struct hawser_btl module,
                               struct hawser_endpoint endpoint,
                               void *address,
                               size_t length,
                               struct hawser_memory *memory);
    // The name of registered memory, for peers.
    int32_t (*memory_key)(struct hawser_btl module,
                          struct hawser_memory memory,
                          struct hawser_remote *remote);
    // Closes memory again. A PUT or GET that is under way may still touch it: end those first.
    int32_t (*deregister_memory)(struct hawser_btl module, struct hawser_memory memory);
    // Makes progress until all that this process has sent, put and got with an endpoint is over (with all,
    // if it is zeros), or so many milliseconds are: HAWSER_ERR_TIMEOUT.
    int32_t (*flush)(struct hawser_btl module,
                     struct hawser_endpoint endpoint,
                     uint32_t milliseconds);
    // Says in the log what there is to say about an endpoint, or the module (zeros).
    int32_t (*dump)(struct hawser_btl module, struct hawser_endpoint endpoint);
    // The value of a counter; the manual page of the transport names them.
    int32_t (*counter)(struct hawser_btl module, const char *name, uint64_t *value);
    // Ends the module, its connections first, as `del_peers` does. Callbacks that are still owed are called
    // with HAWSER_ERR_CLOSED before it returns; all handles are stale then. HAWSER_ERR_BUSY while another
    // call of the module runs.
    int32_t (*finalize)(struct hawser_btl module);
} hawser_btl_module;

// Publishes a record of this process to the others: `length` bytes under a key, borrowed for the call.
// Returns HAWSER_SUCCESS or an error. The record is to be had by `lookup` before the peers are added.
typedef int32_t (*hawser_publish)(void *context, const char *key, const void *bytes, size_t length);

// Looks up what a process has published under a key. `*length` is the room in `buffer` and becomes the
// length of the record. Returns HAWSER_SUCCESS; HAWSER_ERR_TOO_LONG where there is too little room, and says
// in `*length` how much it wants; or HAWSER_ERR_NOT_FOUND.
// Peers are looked up when they are added, and those that were not, or were deleted, when they send.
typedef int32_t (*hawser_lookup)(void *context,
                                 const char *key,
                                 uint64_t name,
                                 void *buffer,
                                 size_t *length);

// The value of a parameter as text, or NULL for its default. The text is borrowed until the next call.
// Numbers are read as Open MPI reads them: `12`, `0x10`, `8k`, `1G`.
typedef const char *(*hawser_value)(void *context, const char *name);

// A parameter, as `declare` is told of it. All texts are borrowed for the time of the call.
typedef struct hawser_parameter {
    // Bytes of this structure.
    size_t size;
    // Its whole name: `btl_smcuda_eager_limit`.
    const char *name;
    // What it does.
    const char *help;
    // Its value where nothing is said; NULL: none.
    const char *default_value;
    // HAWSER_KIND_*
    uint32_t kind;
    // For whom: 1 for every user to 9 for developers.
    uint32_t level;
} hawser_parameter;

// Told of each parameter that there is.
typedef void (*hawser_declare)(void *context, const struct hawser_parameter *parameter);

// Told one line for people, without an end of line; HAWSER_LOG_*.
typedef void (*hawser_log)(void *context, uint32_t level, const char *line);

// What the caller gives: who it is, and its functions. Copied by `open`; the caller keeps `context`, and
// what the functions use, until `close`. The functions are called by threads that are in a function of
// hawser's, never by others; they may call everything but `open`, `init`, `finalize` and `close`, and
// return: no exceptions, no longjmp.
typedef struct hawser_host {
    // Bytes of this structure: `sizeof(struct hawser_host)`.
    size_t size;
    // HAWSER_ABI
    uint32_t abi;
    // How many threads will call, HAWSER_THREAD_*. Nothing is cheaper for less; a wrong promise does no
    // harm.
    uint32_t threads;
    // The name of this process, unique among those that talk: the number of its job in the lower half, its
    // rank in the upper. Those of one job on one node share helpers.
    uint64_t name;
    // The name of this node, for messages to people; NULL: not known. Copied.
    const char *node;
    // For the functions.
    void *context;
    // Must be there.
    hawser_publish publish;
    // Must be there.
    hawser_lookup lookup;
    // NULL: all parameters have their defaults.
    hawser_value parameter;
    // NULL: nobody wants to know.
    hawser_declare declare;
    // NULL: lines go to standard error.
    hawser_log log;
    // Not 0: say what is chosen and why.
    uint32_t verbose;
    // 0
    uint32_t reserved;
} hawser_host;

// The functions of a component: `open`, `register_parameters`, `init`, then its modules', and `close`.
// Another order is HAWSER_ERR_STATE. A component has one user in a process.
typedef struct hawser_btl_component {
    // Bytes of this structure.
    size_t size;
    // HAWSER_ABI
    uint32_t abi;
    // 0
    uint32_t reserved;
    // `smcuda`, `usnic`, `verbs`
    const char *name;
    // The functions of its modules.
    const struct hawser_btl_module *module;
    // Takes the component, and copies the caller's table. HAWSER_ERR_BUSY where Open MPI has it in this
    // process.
    int32_t (*open)(const struct hawser_host *host);
    // Tells `declare` the parameters, and asks `parameter` for their values.
    int32_t (*register_parameters)(void);
    // Opens the modules, publishes how they are reached, and says how many there are.
    int32_t (*init)(size_t *count);
    // A module, counted from 0. HAWSER_ERR_NOT_FOUND: there are not so many, or it has ended.
    int32_t (*module_at)(size_t index, struct hawser_btl *module);
    // Receives, calls back, and does what is due, in all modules. Returns how much happened, or an error.
    int32_t (*progress)(void);
    // Ends the modules that are left, as `finalize` does, and gives the component back. It may be opened
    // again.
    int32_t (*close)(void);
} hawser_btl_component;

// A module of a matching transport. From `init`; borrowed from its component until `finalize` or `close`. All zeros
// are none, here and in the handles below.
typedef struct hawser_mtl {
    // Opaque.
    uint64_t id;
} hawser_mtl;

// What a module can match. The caller sets `size`; so much is filled in.
typedef struct hawser_mtl_limits {
    // Bytes of this structure: `sizeof(struct hawser_mtl_limits)`.
    size_t size;
    // Greatest context id.
    uint32_t max_context;
    // Greatest tag.
    int32_t max_tag;
    // Greatest rank of a process: the upper half of its name.
    int32_t max_rank;
    // 0
    uint32_t reserved;
} hawser_mtl_limits;

// A send or receive that has begun. Borrowed from its module until its callback is called.
typedef struct hawser_request {
    // Opaque.
    uint64_t id;
} hawser_request;

// What is known of a message.
typedef struct hawser_envelope {
    // Bytes of this structure: `sizeof(struct hawser_envelope)`. Who passes one sets it.
    size_t size;
    // Bytes of the message; of a receive: those that it has written.
    size_t length;
    // Who has sent it; zeros for a process that is not added.
    struct hawser_endpoint source;
    // The rank of that process, as the message says it: the upper half of its name.
    int32_t rank;
    // The tag.
    int32_t tag;
} hawser_envelope;

// A send or receive has ended: what it used is the caller's again, and its handle is stale. HAWSER_SUCCESS, or why it
// has failed: HAWSER_ERR_TRUNCATED, HAWSER_ERR_CANCELLED, HAWSER_ERR_UNREACHABLE, HAWSER_ERR_SYSTEM (the network has
// failed; as a rule the peer is lost), HAWSER_ERR_CLOSED. The envelope is that of a receive, borrowed for the time of
// the call, and NULL for a send; of one that is cancelled or has failed it says nothing. It may be called in any
// function of the module, and in `progress` and `close`, by any thread that is there. Every function may be called in
// it but those that end what it was called from: `finalize` and `close` return HAWSER_ERR_BUSY, or
// HAWSER_ERR_STATE where they have been called already. A callback that makes
// progress may be called back in it, and that one again; where a thousand calls of the module lie in one another,
// `progress`, `send`, `isend` and the probes return HAWSER_ERR_BUSY, too, and nothing has happened.
typedef void (*hawser_matched)(void *context,
                               struct hawser_mtl module,
                               struct hawser_request request,
                               int32_t status,
                               const struct hawser_envelope *envelope);

// A message that `improbe` has taken out of matching. Owned by whoever has it, until `imrecv` takes it: it must be
// received.
typedef struct hawser_message {
    // Opaque.
    uint64_t id;
} hawser_message;

// The functions of a module: messages are matched as MPI matches them. A message has a context (as a communicator has:
// who receives in another does not see it), a source and a tag; a receive asks for a context, for one source or any
// (an endpoint of zeros), and for one tag or any (HAWSER_ANY_TAG). Of two messages from one process to another that
// both match a receive, the first that was sent is received first. Buffers are one piece of host memory.
//
// All may be called by any thread at any time. A handle that is not the module's is HAWSER_ERR_STALE; NULL where
// something must be, a context or a tag out of its range, and a length that nothing has, are HAWSER_ERR_ARGUMENT;
// nothing has happened then.
typedef struct hawser_mtl_module {
    // Bytes of this structure.
    size_t size;
    // HAWSER_ABI
    uint32_t abi;
    // 0
    uint32_t reserved;
    // Fills in what the module can match.
    int32_t (*limits)(struct hawser_mtl module, struct hawser_mtl_limits *limits);
    // Makes peers known, by what they have published; this process may be one of them. `endpoints` has room for as
    // many, and gets zeros for those that are not reached. A peer that was added before has the same endpoint again.
    // Two peers of one rank, or a rank that is too great, are HAWSER_ERR_ARGUMENT.
    int32_t (*add_peers)(struct hawser_mtl module,
                         size_t count,
                         const struct hawser_peer *peers,
                         struct hawser_endpoint *endpoints);
    // Forgets peers. HAWSER_ERR_BUSY while a send to one of them, or a receive or a probe from one of them alone, is
    // under way, in another thread or in the call whose callback asks for it. Nothing happens then, nor if one of the
    // handles is stale; zeros are passed over. Other threads make no progress meanwhile, unless the peers have heard of
    // the receipt of all that they sent with HAWSER_SYNCHRONOUS.
    int32_t (*del_peers)(struct hawser_mtl module,
                         size_t count,
                         const struct hawser_endpoint *endpoints);
    // The name of the process behind an endpoint.
    int32_t (*peer_name)(struct hawser_mtl module, struct hawser_endpoint endpoint, uint64_t *name);
    // Sends, and returns when the memory is the caller's again: it makes progress meanwhile, so that callbacks are
    // called, and waits for as long as it takes; if the peer's process is stopped, until that goes on. Nobody ends it
    // before: who must not wait so long takes `isend`. `flags` are HAWSER_SYNCHRONOUS.
    int32_t (*send)(struct hawser_mtl module,
                    struct hawser_endpoint to,
                    uint32_t context_id,
                    int32_t tag,
                    const void *data,
                    size_t length,
                    uint32_t flags);
    // Starts a send. HAWSER_SUCCESS: the memory is borrowed, and nobody writes there, until the callback, which must
    // be there, tells the end, once, and not before this returns in this thread. HAWSER_DONE: it is over, the memory is
    // the caller's again, nothing follows, and the request is zeros. An error: nothing was sent. HAWSER_ERR_AGAIN: there
    // has been no room for some passes of progress, as before the peer has taken the connection, or while its process
    // is stopped; make progress, and send it again.
    int32_t (*isend)(struct hawser_mtl module,
                     struct hawser_endpoint to,
                     uint32_t context_id,
                     int32_t tag,
                     const void *data,
                     size_t length,
                     uint32_t flags,
                     hawser_matched callback,
                     void *context,
                     struct hawser_request *request);
    // Starts a receive into so many bytes, which are borrowed, and nobody touches, until the callback, which must be
    // there, tells the end, once, and not before this returns in this thread. A message that is longer is cut short:
    // HAWSER_ERR_TRUNCATED.
    int32_t (*irecv)(struct hawser_mtl module,
                     struct hawser_endpoint from,
                     uint32_t context_id,
                     int32_t tag,
                     void *data,
                     size_t length,
                     hawser_matched callback,
                     void *context,
                     struct hawser_request *request);
    // Whether a message is there that nobody has received: HAWSER_SUCCESS, and the envelope says which;
    // HAWSER_ERR_NOT_FOUND: there is none. Makes progress now and then.
    int32_t (*iprobe)(struct hawser_mtl module,
                      struct hawser_endpoint from,
                      uint32_t context_id,
                      int32_t tag,
                      struct hawser_envelope *envelope);
    // As `iprobe`; and the message that is found is nobody else's to receive. It is the caller's, until `imrecv`.
    int32_t (*improbe)(struct hawser_mtl module,
                       struct hawser_endpoint from,
                       uint32_t context_id,
                       int32_t tag,
                       struct hawser_envelope *envelope,
                       struct hawser_message *message);
    // Starts the receive of such a message, as `irecv` does. From here on the message is not the caller's, unless this
    // returns HAWSER_ERR_ARGUMENT, HAWSER_ERR_STALE or HAWSER_ERR_MEMORY.
    int32_t (*imrecv)(struct hawser_mtl module,
                      struct hawser_message message,
                      void *data,
                      size_t length,
                      hawser_matched callback,
                      void *context,
                      struct hawser_request *request);
    // Gives a receive up, if it has matched nothing yet: its callback tells HAWSER_ERR_CANCELLED then, and in any case
    // how it has ended, perhaps in this call. A send is HAWSER_ERR_UNSUPPORTED; what has ended is HAWSER_ERR_STALE.
    int32_t (*cancel)(struct hawser_mtl module, struct hawser_request request);
    // The value of a counter; hawser-ofi(7) names them. They count for the whole process, Open MPI's use included.
    int32_t (*counter)(struct hawser_mtl module, const char *name, uint64_t *value);
    // Ends the module. Who wants to be sure that its last messages have arrived sends them synchronously, or hears of
    // it before. Callbacks that are still owed are called with HAWSER_ERR_CLOSED before it returns; all handles are
    // stale then. HAWSER_ERR_BUSY while another call of the module runs.
    int32_t (*finalize)(struct hawser_mtl module);
} hawser_mtl_module;

// The functions of a component: `open`, `register_parameters`, `init`, then its module's, and `close`.
// Another order is HAWSER_ERR_STATE. It may be open in a process in which Open MPI has the component, too: both have
// an endpoint of their own.
typedef struct hawser_mtl_component {
    // Bytes of this structure.
    size_t size;
    // HAWSER_ABI
    uint32_t abi;
    // 0
    uint32_t reserved;
    // `ofi`
    const char *name;
    // The functions of its module.
    const struct hawser_mtl_module *module;
    // Takes the component, and copies the caller's table.
    int32_t (*open)(const struct hawser_host *host);
    // Tells `declare` the parameters, and asks `parameter` for their values.
    int32_t (*register_parameters)(void);
    // Opens the module, and publishes how it is reached. HAWSER_ERR_NOT_AVAILABLE, and one line in the log, where
    // there is no libfabric, or no provider of its that can do this.
    int32_t (*init)(struct hawser_mtl *module);
    // Sends, receives and calls back what is due. Returns how much happened, or an error.
    int32_t (*progress)(void);
    // Ends the module if it is left, as `finalize` does, and gives the component back. It may be opened again.
    int32_t (*close)(void);
} hawser_mtl_component;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of this library, as `major.minor.patch`. The text lives as long as the process.
const char *hawser_version(void);

// Why the Open MPI that loaded this library was refused; an empty text when it was accepted or
// when there is none. The text lives as long as the process.
const char *hawser_refusal(void);

// What a code means, in English. The text lives as long as the process.
const char *hawser_strerror(int32_t code);

// The byte transport of this name, `smcuda`, `usnic` or `verbs`; NULL when there is none, or no name. The table lives as
// long as the process.
// NULL, or a text that ends with zero.
const struct hawser_btl_component *hawser_btl_find(const char *name);

// The byte transports there are, counted from 0; NULL behind the last.
const struct hawser_btl_component *hawser_btl_list(size_t index);

// The matching transport of this name, `ofi`; NULL when there is none, or no name. The table lives as long as the
// process.
// NULL, or a text that ends with zero.
const struct hawser_mtl_component *hawser_mtl_find(const char *name);

// The matching transports there are, counted from 0; NULL behind the last.
const struct hawser_mtl_component *hawser_mtl_list(size_t index);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* HAWSER_H */
