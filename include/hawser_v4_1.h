/* Generated from src/host/sys.rs, src/host/v4_1/sys.rs and src/host/btl/sys.rs by `make headers`. Do not edit. */

#ifndef HAWSER_V4_1_H
#define HAWSER_V4_1_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hawser_v4_1_BtlModule;
struct hawser_v4_1_Descriptor;
struct hawser_v4_1_Communicator;
struct hawser_v4_1_Convertor;

// What every component exports first: who it is and how it is opened.
//
// C: `mca_base_component_t`.
typedef struct hawser_v4_1_Component {
    // version of the component architecture: 2.1.0
    int mca_version[3];
    // project name, zero-ended
    uint8_t project[16];
    // version of the host
    int project_version[3];
    // framework name, zero-ended
    uint8_t type_name[32];
    // version of the framework's interface
    int type_version[3];
    // component name, zero-ended
    uint8_t name[64];
    // version of the component
    int version[3];
    // called when the framework opens the component
    int (*open)(void);
    // called when the framework drops it
    int (*close)(void);
    // offers a module and a priority
    int (*query)(void**, int*);
    // registers the parameters
    int (*register_)(void);
    // component flags
    int32_t flags;
    uint8_t _pad0[28];
} hawser_v4_1_Component;

// The name of a process.
//
// C: `opal_process_name_t`.
typedef struct hawser_v4_1_ProcessName {
    // job
    uint32_t jobid;
    // rank in the job
    uint32_t vpid;
} hawser_v4_1_ProcessName;

// A process.
//
// C: `ompi_proc_t`.
typedef struct hawser_v4_1_Proc {
    uint8_t _pad0[40];
    // its name
    struct hawser_v4_1_ProcessName name;
    uint8_t _pad1[4];
    // how near it is
    uint16_t locality;
    uint8_t _pad2[26];
    // the slot of the matching transport
    void *endpoint;
    uint8_t _pad3[32];
} hawser_v4_1_Proc;

// The part of a group of processes that both versions have alike.
//
// C: `ompi_group_t`.
typedef struct hawser_v4_1_GroupHead {
    uint8_t _pad0[16];
    // processes
    int size;
    // rank of this process
    int rank;
    uint8_t _pad1[8];
    // processes, or sentinels with bit 0 set
    struct hawser_v4_1_Proc **procs;
} hawser_v4_1_GroupHead;

// A communicator.
//
// C: `ompi_communicator_t`.
typedef struct hawser_v4_1_Communicator {
    uint8_t _pad0[224];
    // context id: the id that tags carry
    uint32_t index;
    // rank of this process
    int rank;
    // properties
    uint32_t flags;
    uint8_t _pad1[12];
    // local group
    struct hawser_v4_1_GroupHead *local_group;
    // remote group, or the local one
    struct hawser_v4_1_GroupHead *remote_group;
    uint8_t _pad2[88];
} hawser_v4_1_Communicator;

// Blocks of numbers of one kind.
//
// C: `ddt_elem_desc_t`.
typedef struct hawser_v4_1_Element {
    uint8_t _pad0[2];
    // kind of number
    uint16_t kind;
    uint8_t _pad1[20];
    // of the first block
    ptrdiff_t displacement;
} hawser_v4_1_Element;

// What a datatype is made of.
//
// C: `dt_type_desc_t`.
typedef struct hawser_v4_1_Description {
    uint8_t _pad0[16];
    // its elements
    const struct hawser_v4_1_Element *elements;
} hawser_v4_1_Description;

// Where a convertor stands in a loop.
//
// C: `dt_stack_t`.
typedef struct hawser_v4_1_Level {
    // element of the description; -1 is the whole
    int32_t index;
    uint8_t _pad0[12];
    // from the begin of the buffer
    ptrdiff_t displacement;
} hawser_v4_1_Level;

// Packs and unpacks one (buffer, count, datatype).
//
// C: `opal_convertor_t`.
typedef struct hawser_v4_1_Convertor {
    uint8_t _pad0[20];
    // state and properties
    uint32_t flags;
    // packed bytes
    size_t local_size;
    uint8_t _pad1[16];
    // what is packed or unpacked for each datatype
    const struct hawser_v4_1_Description *description;
    uint8_t _pad2[16];
    // user buffer
    uint8_t *base;
    // where it stands, from the outermost loop inwards
    struct hawser_v4_1_Level *levels;
    uint8_t _pad3[16];
    // the level it stands in
    uint32_t level;
    uint8_t _pad4[4];
    // bytes of an element that were unpacked before the rest
    size_t partial;
    // bytes already packed or unpacked
    size_t converted;
    uint8_t _pad5[136];
} hawser_v4_1_Convertor;

// `MPI_Status`.
//
// C: `ompi_status_public_t`.
typedef struct hawser_v4_1_Status {
    // `MPI_SOURCE`
    int source;
    // `MPI_TAG`
    int tag;
    // `MPI_ERROR`
    int error;
    // whether the operation was cancelled
    int cancelled;
    // bytes received
    size_t count;
} hawser_v4_1_Status;

// The host's request.
//
// C: `ompi_request_t`.
typedef struct hawser_v4_1_Request {
    uint8_t _pad0[64];
    // status to be filled before completion
    struct hawser_v4_1_Status status;
    // completion marker
    void *complete;
    // state of the request
    int state;
    uint8_t _pad1[60];
} hawser_v4_1_Request;

// The request head that `pml/cm` puts in front of a transport's own memory.
//
// C: `mca_mtl_request_t`.
typedef struct hawser_v4_1_MtlRequest {
    // the host's request
    struct hawser_v4_1_Request *request;
    // called once, when the operation is over
    void (*complete)(struct hawser_v4_1_MtlRequest*);
} hawser_v4_1_MtlRequest;

// A matched message (`MPI_Message`).
//
// C: `ompi_message_t`.
typedef struct hawser_v4_1_Message {
    uint8_t _pad0[56];
    // Fortran handle
    int fortran;
    uint8_t _pad1[4];
    // communicator
    struct hawser_v4_1_Communicator *comm;
    // belongs to the transport
    void *request;
    // source
    int peer;
    uint8_t _pad2[4];
    // bytes
    size_t count;
} hawser_v4_1_Message;

// The table of a matching transport that `pml/cm` calls.
//
// C: `mca_mtl_base_module_t`.
typedef struct hawser_v4_1_MtlModule {
    // greatest communicator id
    int max_contextid;
    // greatest MPI tag
    int max_tag;
    // bytes wanted behind the request head
    size_t request_size;
    // properties of the module
    uint32_t flags;
    uint8_t _pad0[4];
    // makes peers known
    int (*add_procs)(struct hawser_v4_1_MtlModule*, size_t, struct hawser_v4_1_Proc**);
    // forgets peers
    int (*del_procs)(struct hawser_v4_1_MtlModule*, size_t, struct hawser_v4_1_Proc**);
    // ends the module
    int (*finalize)(struct hawser_v4_1_MtlModule*);
    // blocking send
    int (*send)(struct hawser_v4_1_MtlModule*,
                struct hawser_v4_1_Communicator*,
                int,
                int,
                struct hawser_v4_1_Convertor*,
                int);
    // send
    int (*isend)(struct hawser_v4_1_MtlModule*,
                 struct hawser_v4_1_Communicator*,
                 int,
                 int,
                 struct hawser_v4_1_Convertor*,
                 int,
                 bool,
                 struct hawser_v4_1_MtlRequest*);
    // receive
    int (*irecv)(struct hawser_v4_1_MtlModule*,
                 struct hawser_v4_1_Communicator*,
                 int,
                 int,
                 struct hawser_v4_1_Convertor*,
                 struct hawser_v4_1_MtlRequest*);
    // probe
    int (*iprobe)(struct hawser_v4_1_MtlModule*,
                  struct hawser_v4_1_Communicator*,
                  int,
                  int,
                  int*,
                  struct hawser_v4_1_Status*);
    // receive of a matched message
    int (*imrecv)(struct hawser_v4_1_MtlModule*,
                  struct hawser_v4_1_Convertor*,
                  struct hawser_v4_1_Message**,
                  struct hawser_v4_1_MtlRequest*);
    // matched probe
    int (*improbe)(struct hawser_v4_1_MtlModule*,
                   struct hawser_v4_1_Communicator*,
                   int,
                   int,
                   int*,
                   struct hawser_v4_1_Message**,
                   struct hawser_v4_1_Status*);
    // cancel
    int (*cancel)(struct hawser_v4_1_MtlModule*, struct hawser_v4_1_MtlRequest*, int);
    // a communicator begins
    int (*add_comm)(struct hawser_v4_1_MtlModule*, struct hawser_v4_1_Communicator*);
    // a communicator ends
    int (*del_comm)(struct hawser_v4_1_MtlModule*, struct hawser_v4_1_Communicator*);
} hawser_v4_1_MtlModule;

// A matching transport's component.
//
// C: `mca_mtl_base_component_2_0_0_t`.
typedef struct hawser_v4_1_MtlComponent {
    // the part common to all components
    struct hawser_v4_1_Component base;
    // metadata flags
    uint32_t param_field;
    uint8_t _pad0[36];
    // makes the module of the selected component
    struct hawser_v4_1_MtlModule *(*init)(bool, bool);
} hawser_v4_1_MtlComponent;

// A window.
//
// C: `ompi_win_t`.
typedef struct hawser_v4_1_Window {
    uint8_t _pad0[272];
    // the functions of its component: the first part of what that has made
    const void **module;
    uint8_t _pad1[8];
} hawser_v4_1_Window;

// A group of processes.
//
// C: `ompi_group_t`.
typedef struct hawser_v4_1_Group {
    struct hawser_v4_1_GroupHead _head;
    uint8_t _pad0[32];
} hawser_v4_1_Group;

// What the runtime knows about this process.
//
// C: `orte_proc_info_t`.
typedef struct hawser_v4_1_ProcessInfo {
    uint8_t _pad0[72];
    // its name
    struct hawser_v4_1_ProcessName name;
    uint8_t _pad1[48];
    // processes in the job
    uint32_t processes;
    uint8_t _pad2[12];
    // name of the node
    const char *node;
    uint8_t _pad3[26];
    // rank on this node
    uint16_t local_rank;
    // other processes of the job on this node
    int32_t local_peers;
    uint8_t _pad4[72];
    // processors it is bound to
    const char *cpuset;
    uint8_t _pad5[8];
} hawser_v4_1_ProcessInfo;

// A class of the host's object system.
//
// C: `opal_class_t`.
typedef struct hawser_v4_1_Class {
    // name of the class
    const char *name;
    // parent class
    struct hawser_v4_1_Class *parent;
    // its own constructor
    void (*construct_own)(void*);
    // its own destructor
    void (*destruct_own)(void*);
    // epoch of initialisation
    int32_t initialized;
    uint8_t _pad1[4];
    // constructors, base first, ended by null
    void (**construct)(void*);
    // destructors, derived first, ended by null
    void (**destruct)(void*);
    // bytes of an instance
    size_t size;
} hawser_v4_1_Class;

// The head of every object of the host's class system.
//
// C: `opal_object_t`.
typedef struct hawser_v4_1_Object {
    // the object's class
    struct hawser_v4_1_Class *class_;
    // reference count
    int32_t references;
    uint8_t _pad0[4];
} hawser_v4_1_Object;

// An item of a list or a stack.
//
// C: `opal_list_item_t`.
typedef struct hawser_v4_1_ListItem {
    // its object head
    struct hawser_v4_1_Object object;
    // next item
    struct hawser_v4_1_ListItem *next;
    // previous item
    struct hawser_v4_1_ListItem *previous;
    // whether it is on a stack
    int32_t free;
    uint8_t _pad0[4];
} hawser_v4_1_ListItem;

// A value of the process management interface.
//
// C: `opal_value_t`.
typedef struct hawser_v4_1_Value {
    // its list head
    struct hawser_v4_1_ListItem item;
    // key
    char *key;
    // 20 is a byte object
    uint8_t kind;
    uint8_t _pad0[7];
    // bytes of a byte object
    int32_t size;
    uint8_t _pad1[4];
    // where they are
    uint8_t *bytes;
    uint8_t _pad2[64];
} hawser_v4_1_Value;

// A list.
//
// C: `opal_list_t`.
typedef struct hawser_v4_1_List {
    // its object head
    struct hawser_v4_1_Object object;
    // before the first and behind the last
    struct hawser_v4_1_ListItem sentinel;
    // the number of its items
    size_t length;
} hawser_v4_1_List;

// The first entries of the process management interface's table.
//
// C: `opal_pmix_base_module_t`.
typedef struct hawser_v4_1_Pmix {
    uint8_t _pad0[64];
    // publishes a value
    int (*put)(int, struct hawser_v4_1_Value*);
    // looks a value up
    int (*get)(const struct hawser_v4_1_ProcessName*,
               const char*,
               struct hawser_v4_1_List*,
               struct hawser_v4_1_Value**);
} hawser_v4_1_Pmix;

// What `pml/cm` puts behind the host's request: only the kind matters here.
//
// C: `mca_pml_cm_request_t`.
typedef struct hawser_v4_1_CmRequest {
    // the host's request
    struct hawser_v4_1_Request request;
    uint8_t _pad0[8];
    // 0 heavy send, 1 thin send, 2 heavy receive, 3 thin receive
    int kind;
    uint8_t _pad1[4];
} hawser_v4_1_CmRequest;

// A datatype.
//
// C: `opal_datatype_t`.
typedef struct hawser_v4_1_Datatype {
    uint8_t _pad0[16];
    // properties
    uint16_t flags;
    uint8_t _pad1[6];
    // bytes of data
    size_t size;
    // displacement of the first byte of data
    ptrdiff_t true_lb;
    // displacement behind the last byte of data
    ptrdiff_t true_ub;
    // lower bound
    ptrdiff_t lb;
    // upper bound
    ptrdiff_t ub;
    uint8_t _pad2[136];
} hawser_v4_1_Datatype;

// The part of a convertor that both versions have alike.
//
// C: `opal_convertor_t`.
typedef struct hawser_v4_1_ConvertorHead {
    uint8_t _pad0[20];
    // state and properties
    uint32_t flags;
    // packed bytes
    size_t local_size;
    // packed bytes at the peer
    size_t remote_size;
    // the datatype
    const struct hawser_v4_1_Datatype *datatype;
    uint8_t _pad1[8];
    // elements
    size_t count;
    uint8_t _pad2[8];
    // user buffer
    uint8_t *base;
    uint8_t _pad3[40];
    // bytes already packed or unpacked
    size_t converted;
} hawser_v4_1_ConvertorHead;

// The head of a process.
//
// C: `opal_proc_t`.
typedef struct hawser_v4_1_BtlProc {
    uint8_t _pad0[40];
    // job
    uint32_t jobid;
    // rank in the job
    uint32_t vpid;
} hawser_v4_1_BtlProc;

// A peer; the host only ever sees its address, which is a handle of ours.
//
// C: `struct mca_btl_base_endpoint_t`.
typedef void hawser_v4_1_BtlEndpoint;

// A piece of memory of a descriptor.
//
// C: `mca_btl_base_segment_t`.
typedef struct hawser_v4_1_Segment {
    // address
    uint8_t *start;
    // bytes
    uint64_t len;
} hawser_v4_1_Segment;

// What the transport tells when a descriptor has been sent.
//
// C: `mca_btl_base_completion_fn_t`.
typedef void (*hawser_v4_1_Sent)(struct hawser_v4_1_BtlModule*,
                                 hawser_v4_1_BtlEndpoint*,
                                 struct hawser_v4_1_Descriptor*,
                                 int);

// What is sent, and what 4.1 is handed when something was received.
//
// C: `mca_btl_base_descriptor_t`.
typedef struct hawser_v4_1_Descriptor {
    uint8_t _pad0[56];
    // pieces of memory
    struct hawser_v4_1_Segment *segments;
    // how many
    size_t segment_count;
    // called when it has been sent
    hawser_v4_1_Sent sent;
    // for the callback
    void *callback_data;
    // for the callback
    void *context;
    // wishes
    uint32_t flags;
    // ordering class
    uint8_t order;
    uint8_t _pad1[3];
} hawser_v4_1_Descriptor;

// The head of a convertor.
//
// C: `opal_convertor_t`.
typedef struct hawser_v4_1_BtlConvertor {
    uint8_t _pad0[20];
    // state and properties
    uint32_t flags;
    // packed bytes
    size_t local_size;
    uint8_t _pad1[8];
    // datatype of the elements
    const struct hawser_v4_1_Datatype *datatype;
    uint8_t _pad2[8];
    // elements
    size_t count;
    uint8_t _pad3[8];
    // where the first element is
    uint8_t *base;
    uint8_t _pad4[40];
    // bytes that have been packed
    size_t converted;
} hawser_v4_1_BtlConvertor;

// A registration handle; the host copies its bytes to the peer.
//
// C: `mca_btl_base_registration_handle_t`.
typedef void hawser_v4_1_BtlRegistration;

// What the transport tells when a PUT or GET has ended.
//
// C: `mca_btl_base_rdma_completion_fn_t`.
typedef void (*hawser_v4_1_Transferred)(struct hawser_v4_1_BtlModule*,
                                        hawser_v4_1_BtlEndpoint*,
                                        void*,
                                        hawser_v4_1_BtlRegistration*,
                                        void*,
                                        void*,
                                        int);

// Starts a PUT or a GET.
//
// C: `mca_btl_base_module_put_fn_t`, `mca_btl_base_module_get_fn_t`.
typedef int (*hawser_v4_1_Transfer)(struct hawser_v4_1_BtlModule*,
                                    hawser_v4_1_BtlEndpoint*,
                                    void*,
                                    uint64_t,
                                    hawser_v4_1_BtlRegistration*,
                                    hawser_v4_1_BtlRegistration*,
                                    size_t,
                                    int,
                                    int,
                                    hawser_v4_1_Transferred,
                                    void*,
                                    void*);

// Starts an atomic operation without a result.
//
// C: `mca_btl_base_module_atomic_op64_fn_t`.
typedef int (*hawser_v4_1_AtomicOp)(struct hawser_v4_1_BtlModule*,
                                    hawser_v4_1_BtlEndpoint*,
                                    uint64_t,
                                    hawser_v4_1_BtlRegistration*,
                                    int,
                                    uint64_t,
                                    int,
                                    int,
                                    hawser_v4_1_Transferred,
                                    void*,
                                    void*);

// Starts one with a result.
//
// C: `mca_btl_base_module_atomic_fop64_fn_t`.
typedef int (*hawser_v4_1_AtomicFop)(struct hawser_v4_1_BtlModule*,
                                     hawser_v4_1_BtlEndpoint*,
                                     void*,
                                     uint64_t,
                                     hawser_v4_1_BtlRegistration*,
                                     hawser_v4_1_BtlRegistration*,
                                     int,
                                     uint64_t,
                                     int,
                                     int,
                                     hawser_v4_1_Transferred,
                                     void*,
                                     void*);

// Starts a compare-and-swap.
//
// C: `mca_btl_base_module_atomic_cswap64_fn_t`.
typedef int (*hawser_v4_1_AtomicSwap)(struct hawser_v4_1_BtlModule*,
                                      hawser_v4_1_BtlEndpoint*,
                                      void*,
                                      uint64_t,
                                      hawser_v4_1_BtlRegistration*,
                                      hawser_v4_1_BtlRegistration*,
                                      uint64_t,
                                      uint64_t,
                                      int,
                                      int,
                                      hawser_v4_1_Transferred,
                                      void*,
                                      void*);

// What the transport tells when a peer or a device is lost.
//
// C: `mca_btl_base_module_error_cb_fn_t`.
typedef void (*hawser_v4_1_Failed)(struct hawser_v4_1_BtlModule*,
                                   int32_t,
                                   struct hawser_v4_1_BtlProc*,
                                   char*);

// The table of a byte transport.
//
// C: `mca_btl_base_module_t`.
typedef struct hawser_v4_1_BtlModule {
    // the component
    const struct hawser_v4_1_BtlComponent *component;
    // longest message sent at once, header included
    size_t eager_limit;
    // data in the first fragment of a long message
    size_t rndv_eager_limit;
    // longest fragment
    size_t max_send_size;
    // data that is sent, not put, at the beginning of a pipelined message
    size_t rdma_pipeline_send_length;
    // longest fragment of a pipelined message
    size_t rdma_pipeline_frag_size;
    // shortest pipelined message
    size_t min_rdma_pipeline_size;
    // transports of lower value are not used beside this one
    uint32_t exclusivity;
    // rank among transports by latency; lower is better
    uint32_t latency;
    // share among transports by bandwidth
    uint32_t bandwidth;
    // properties
    uint32_t flags;
    // atomic operations
    uint32_t atomic_flags;
    uint8_t _pad0[4];
    // bytes of a registration handle
    size_t registration_handle_size;
    // longest GET
    size_t get_limit;
    // alignment of a GET
    size_t get_alignment;
    // longest PUT
    size_t put_limit;
    // alignment of a PUT
    size_t put_alignment;
    // GETs from this length on need registered local memory
    size_t get_local_registration_threshold;
    // PUTs from this length on need registered local memory
    size_t put_local_registration_threshold;
    // makes peers known
    int (*add_procs)(struct hawser_v4_1_BtlModule*,
                     size_t,
                     struct hawser_v4_1_BtlProc**,
                     hawser_v4_1_BtlEndpoint**,
                     void*);
    // forgets peers
    int (*del_procs)(struct hawser_v4_1_BtlModule*,
                     size_t,
                     struct hawser_v4_1_BtlProc**,
                     hawser_v4_1_BtlEndpoint**);
    // hears of receive callbacks
    void (*register_)(void);
    // ends the module
    int (*finalize)(struct hawser_v4_1_BtlModule*);
    // gives a descriptor with memory
    struct hawser_v4_1_Descriptor *(*alloc)(struct hawser_v4_1_BtlModule*,
                                            hawser_v4_1_BtlEndpoint*,
                                            uint8_t,
                                            size_t,
                                            uint32_t);
    // takes a descriptor back
    int (*free)(struct hawser_v4_1_BtlModule*, struct hawser_v4_1_Descriptor*);
    // gives a descriptor of user data
    struct hawser_v4_1_Descriptor *(*prepare_src)(struct hawser_v4_1_BtlModule*,
                                                  hawser_v4_1_BtlEndpoint*,
                                                  struct hawser_v4_1_BtlConvertor*,
                                                  uint8_t,
                                                  size_t,
                                                  size_t*,
                                                  uint32_t);
    // sends a descriptor
    int (*send)(struct hawser_v4_1_BtlModule*,
                hawser_v4_1_BtlEndpoint*,
                struct hawser_v4_1_Descriptor*,
                uint8_t);
    // sends at once or not at all
    int (*sendi)(struct hawser_v4_1_BtlModule*,
                 hawser_v4_1_BtlEndpoint*,
                 struct hawser_v4_1_BtlConvertor*,
                 void*,
                 size_t,
                 size_t,
                 uint8_t,
                 uint32_t,
                 uint8_t,
                 struct hawser_v4_1_Descriptor**);
    // writes to a peer's memory
    hawser_v4_1_Transfer put;
    // reads from a peer's memory
    hawser_v4_1_Transfer get;
    // says what state it is in
    void (*dump)(struct hawser_v4_1_BtlModule*, hawser_v4_1_BtlEndpoint*, int);
    // atomic operation without result
    hawser_v4_1_AtomicOp atomic_op;
    // atomic operation with result
    hawser_v4_1_AtomicFop atomic_fop;
    // compare and swap
    hawser_v4_1_AtomicSwap atomic_cswap;
    // registers memory
    hawser_v4_1_BtlRegistration *(*register_mem)(struct hawser_v4_1_BtlModule*,
                                                 hawser_v4_1_BtlEndpoint*,
                                                 void*,
                                                 size_t,
                                                 uint32_t);
    // takes a registration back
    int (*deregister_mem)(struct hawser_v4_1_BtlModule*, hawser_v4_1_BtlRegistration*);
    // memory pool
    void *mpool;
    // takes the host's error callback
    int (*register_error)(struct hawser_v4_1_BtlModule*, hawser_v4_1_Failed);
    // 4.1: checkpoint callback; 5.0: longest fragment of device memory
    size_t ft_event_or_accelerator_max_send_size;
    // waits for PUTs and GETs
    int (*flush)(struct hawser_v4_1_BtlModule*, hawser_v4_1_BtlEndpoint*);
    // 5.0 keeps its emulation of one-sided operations here
    uint8_t reserved[256];
} hawser_v4_1_BtlModule;

// A byte transport's component.
//
// C: `mca_btl_base_component_3_0_0_t`.
typedef struct hawser_v4_1_BtlComponent {
    // the part common to all components
    struct hawser_v4_1_Component base;
    // metadata flags
    uint32_t param_field;
    uint8_t _pad0[36];
    // makes the modules
    struct hawser_v4_1_BtlModule **(*init)(int*, bool, bool);
    // advances all modules
    int (*progress)(void);
} hawser_v4_1_BtlComponent;

// A registered receive callback; its type differs by version.
//
// C: `mca_btl_active_message_callback_t`.
typedef struct hawser_v4_1_ActiveMessage {
    // the callback
    const void *callback;
    // for the callback
    void *callback_data;
} hawser_v4_1_ActiveMessage;

// The head of a performance variable.
//
// C: `mca_base_pvar_t`.
typedef struct hawser_v4_1_BtlPvar {
    uint8_t _pad0[96];
    // what it was registered with
    void *context;
} hawser_v4_1_BtlPvar;

// A module that the host has taken, in its list of them.
//
// C: `mca_btl_base_selected_module_t`.
typedef struct hawser_v4_1_BtlSelected {
    // its place in the list
    struct hawser_v4_1_ListItem item;
    // the module's component
    const struct hawser_v4_1_BtlComponent *component;
    // the module
    struct hawser_v4_1_BtlModule *module;
} hawser_v4_1_BtlSelected;

#endif  /* HAWSER_V4_1_H */
