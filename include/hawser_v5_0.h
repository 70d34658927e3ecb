/* Generated from src/host/sys.rs, src/host/v5_0/sys.rs and src/host/btl/sys.rs by `make headers`. Do not edit. */

#ifndef HAWSER_V5_0_H
#define HAWSER_V5_0_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hawser_v5_0_BtlModule;
struct hawser_v5_0_Descriptor;
struct hawser_v5_0_Communicator;
struct hawser_v5_0_Convertor;
struct hawser_v5_0_OpModule;

// Numbers of datatypes that the host makes itself.
#define hawser_v5_0_PREDEFINED_TYPES 52

// The same with the one behind them, which is no type.
#define hawser_v5_0_BASIC_TYPES 53

// Types of elements that operations know.
#define hawser_v5_0_OP_TYPES 43

// What every component exports first: who it is and how it is opened.
//
// C: `mca_base_component_t`.
typedef struct hawser_v5_0_Component {
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
} hawser_v5_0_Component;

// The name of a process.
//
// C: `opal_process_name_t`.
typedef struct hawser_v5_0_ProcessName {
    // job
    uint32_t jobid;
    // rank in the job
    uint32_t vpid;
} hawser_v5_0_ProcessName;

// A process.
//
// C: `ompi_proc_t`.
typedef struct hawser_v5_0_Proc {
    uint8_t _pad0[40];
    // its name
    struct hawser_v5_0_ProcessName name;
    uint8_t _pad1[4];
    // how near it is
    uint16_t locality;
    uint8_t _pad2[26];
    // the slot of the matching transport
    void *endpoint;
    uint8_t _pad3[32];
} hawser_v5_0_Proc;

// The part of a group of processes that both versions have alike.
//
// C: `ompi_group_t`.
typedef struct hawser_v5_0_GroupHead {
    uint8_t _pad0[16];
    // processes
    int size;
    // rank of this process
    int rank;
    uint8_t _pad1[8];
    // processes, or sentinels with bit 0 set
    struct hawser_v5_0_Proc **procs;
} hawser_v5_0_GroupHead;

// A communicator.
//
// C: `ompi_communicator_t`.
typedef struct hawser_v5_0_Communicator {
    uint8_t _pad0[168];
    // extended id, upper half
    uint64_t cid_base;
    // extended id, lower half
    uint64_t cid_sub;
    uint8_t _pad1[32];
    // local index: the id that tags carry
    uint32_t index;
    // rank of this process
    int rank;
    // properties
    uint32_t flags;
    uint8_t _pad2[36];
    // local group
    struct hawser_v5_0_GroupHead *local_group;
    // remote group, or the local one
    struct hawser_v5_0_GroupHead *remote_group;
    uint8_t _pad3[56];
    // belongs to the matching transport
    void *mtl;
    uint8_t _pad4[40];
} hawser_v5_0_Communicator;

// A datatype.
//
// C: `opal_datatype_t`.
typedef struct hawser_v5_0_Datatype {
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
} hawser_v5_0_Datatype;

// The part of a convertor that both versions have alike.
//
// C: `opal_convertor_t`.
typedef struct hawser_v5_0_ConvertorHead {
    uint8_t _pad0[20];
    // state and properties
    uint32_t flags;
    // packed bytes
    size_t local_size;
    // packed bytes at the peer
    size_t remote_size;
    // the datatype
    const struct hawser_v5_0_Datatype *datatype;
    uint8_t _pad1[8];
    // elements
    size_t count;
    uint8_t _pad2[8];
    // user buffer
    uint8_t *base;
    uint8_t _pad3[40];
    // bytes already packed or unpacked
    size_t converted;
} hawser_v5_0_ConvertorHead;

// Packs and unpacks one (buffer, count, datatype).
//
// C: `opal_convertor_t`.
typedef struct hawser_v5_0_Convertor {
    struct hawser_v5_0_ConvertorHead _head;
    uint8_t _pad0[152];
} hawser_v5_0_Convertor;

// `MPI_Status`.
//
// C: `ompi_status_public_t`.
typedef struct hawser_v5_0_Status {
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
} hawser_v5_0_Status;

// The host's request.
//
// C: `ompi_request_t`.
typedef struct hawser_v5_0_Request {
    uint8_t _pad0[64];
    // status to be filled before completion
    struct hawser_v5_0_Status status;
    // completion marker
    void *complete;
    // state of the request
    int state;
    uint8_t _pad1[60];
} hawser_v5_0_Request;

// The request head that `pml/cm` puts in front of a transport's own memory.
//
// C: `mca_mtl_request_t`.
typedef struct hawser_v5_0_MtlRequest {
    // the host's request
    struct hawser_v5_0_Request *request;
    // called once, when the operation is over
    void (*complete)(struct hawser_v5_0_MtlRequest*);
} hawser_v5_0_MtlRequest;

// A matched message (`MPI_Message`).
//
// C: `ompi_message_t`.
typedef struct hawser_v5_0_Message {
    uint8_t _pad0[56];
    // Fortran handle
    int fortran;
    uint8_t _pad1[4];
    // communicator
    struct hawser_v5_0_Communicator *comm;
    // belongs to the transport
    void *request;
    // source
    int peer;
    uint8_t _pad2[4];
    // bytes
    size_t count;
} hawser_v5_0_Message;

// The table of a matching transport that `pml/cm` calls.
//
// C: `mca_mtl_base_module_t`.
typedef struct hawser_v5_0_MtlModule {
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
    int (*add_procs)(struct hawser_v5_0_MtlModule*, size_t, struct hawser_v5_0_Proc**);
    // forgets peers
    int (*del_procs)(struct hawser_v5_0_MtlModule*, size_t, struct hawser_v5_0_Proc**);
    // ends the module
    int (*finalize)(struct hawser_v5_0_MtlModule*);
    // blocking send
    int (*send)(struct hawser_v5_0_MtlModule*,
                struct hawser_v5_0_Communicator*,
                int,
                int,
                struct hawser_v5_0_Convertor*,
                int);
    // send
    int (*isend)(struct hawser_v5_0_MtlModule*,
                 struct hawser_v5_0_Communicator*,
                 int,
                 int,
                 struct hawser_v5_0_Convertor*,
                 int,
                 bool,
                 struct hawser_v5_0_MtlRequest*);
    // receive
    int (*irecv)(struct hawser_v5_0_MtlModule*,
                 struct hawser_v5_0_Communicator*,
                 int,
                 int,
                 struct hawser_v5_0_Convertor*,
                 struct hawser_v5_0_MtlRequest*);
    // probe
    int (*iprobe)(struct hawser_v5_0_MtlModule*,
                  struct hawser_v5_0_Communicator*,
                  int,
                  int,
                  int*,
                  struct hawser_v5_0_Status*);
    // receive of a matched message
    int (*imrecv)(struct hawser_v5_0_MtlModule*,
                  struct hawser_v5_0_Convertor*,
                  struct hawser_v5_0_Message**,
                  struct hawser_v5_0_MtlRequest*);
    // matched probe
    int (*improbe)(struct hawser_v5_0_MtlModule*,
                   struct hawser_v5_0_Communicator*,
                   int,
                   int,
                   int*,
                   struct hawser_v5_0_Message**,
                   struct hawser_v5_0_Status*);
    // cancel
    int (*cancel)(struct hawser_v5_0_MtlModule*, struct hawser_v5_0_MtlRequest*, int);
    // a communicator begins
    int (*add_comm)(struct hawser_v5_0_MtlModule*, struct hawser_v5_0_Communicator*);
    // a communicator ends
    int (*del_comm)(struct hawser_v5_0_MtlModule*, struct hawser_v5_0_Communicator*);
} hawser_v5_0_MtlModule;

// A matching transport's component.
//
// C: `mca_mtl_base_component_2_0_0_t`.
typedef struct hawser_v5_0_MtlComponent {
    // the part common to all components
    struct hawser_v5_0_Component base;
    // metadata flags
    uint32_t param_field;
    uint8_t _pad0[36];
    // makes the module of the selected component
    struct hawser_v5_0_MtlModule *(*init)(bool, bool, bool*);
    // whether device buffers may be handed to the module
    bool accelerator_support;
    uint8_t _pad1[7];
} hawser_v5_0_MtlComponent;

// A class of the host's object system.
//
// C: `opal_class_t`.
typedef struct hawser_v5_0_Class {
    // name of the class
    const char *name;
    // parent class
    struct hawser_v5_0_Class *parent;
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
} hawser_v5_0_Class;

// The head of every object of the host's class system.
//
// C: `opal_object_t`.
typedef struct hawser_v5_0_Object {
    // the object's class
    struct hawser_v5_0_Class *class_;
    // reference count
    int32_t references;
    uint8_t _pad0[4];
} hawser_v5_0_Object;

// A stream or an event of a device.
//
// C: `opal_accelerator_stream_t`, `opal_accelerator_event_t`.
typedef struct hawser_v5_0_AcceleratorObject {
    // head of every object
    struct hawser_v5_0_Object object;
    // the component's own
    void *inside;
} hawser_v5_0_AcceleratorObject;

// Where a device is on the PCI bus.
//
// C: `opal_accelerator_pci_attr_t`.
typedef struct hawser_v5_0_PciAttributes {
    // domain
    uint16_t domain;
    // bus
    uint8_t bus;
    // device
    uint8_t device;
    // function
    uint8_t function;
} hawser_v5_0_PciAttributes;

// The functions of the machine's devices.
//
// C: `opal_accelerator_base_module_t`.
typedef struct hawser_v5_0_Accelerator {
    // whether an address is on a device, and on which
    int (*check_addr)(const void*, int*, uint64_t*);
    // makes a stream
    int (*create_stream)(int, struct hawser_v5_0_AcceleratorObject**);
    // makes an event
    int (*create_event)(int, struct hawser_v5_0_AcceleratorObject**);
    // sets an event to where a stream is
    int (*record_event)(int,
                        struct hawser_v5_0_AcceleratorObject*,
                        struct hawser_v5_0_AcceleratorObject*);
    // whether a stream has come to an event
    int (*query_event)(int, struct hawser_v5_0_AcceleratorObject*);
    // begins a copy in a stream
    int (*mem_copy_async)(int,
                          int,
                          void*,
                          const void*,
                          size_t,
                          struct hawser_v5_0_AcceleratorObject*,
                          int);
    // copies
    int (*mem_copy)(int, int, void*, const void*, size_t, int);
    // copies between ranges that may overlap
    int (*mem_move)(int, int, void*, const void*, size_t, int);
    // allocates on a device
    int (*mem_alloc)(int, void**, size_t);
    // takes that back
    int (*mem_release)(int, void*);
    // the allocation that an address lies in
    int (*get_address_range)(int, const void*, void**, size_t*);
    // pins memory
    int (*host_register)(int, void*, size_t);
    // takes that back
    int (*host_unregister)(int, void*);
    // the device in use
    int (*get_device)(int*);
    // where a device is on the PCI bus
    int (*get_device_pci_attr)(int, struct hawser_v5_0_PciAttributes*);
    // whether a device can reach another's memory
    int (*device_can_access_peer)(int*, int, int);
    // the number of the allocation that an address lies in
    int (*get_buffer_id)(int, const void*, uint64_t*);
} hawser_v5_0_Accelerator;

// An accelerator's component.
//
// C: `opal_accelerator_base_component_t`.
typedef struct hawser_v5_0_AcceleratorComponent {
    // the part common to all components
    struct hawser_v5_0_Component base;
    // metadata flags
    uint32_t param_field;
    uint8_t _pad0[36];
    // offers the module
    struct hawser_v5_0_Accelerator *(*init)(void);
    // ends it
    void (*finalize)(struct hawser_v5_0_Accelerator*);
} hawser_v5_0_AcceleratorComponent;

// A group of processes.
//
// C: `ompi_group_t`.
typedef struct hawser_v5_0_Group {
    struct hawser_v5_0_GroupHead _head;
    uint8_t _pad0[40];
} hawser_v5_0_Group;

// What the runtime knows about this process.
//
// C: `opal_process_info_t`.
typedef struct hawser_v5_0_ProcessInfo {
    // its name
    struct hawser_v5_0_ProcessName name;
    uint8_t _pad0[264];
    // name of the node
    const char *node;
    uint8_t _pad1[24];
    // other processes of the job on this node
    uint32_t local_peers;
    // rank on this node
    uint16_t local_rank;
    uint8_t _pad2[10];
    // processors it is bound to
    const char *cpuset;
    // its locality, as the runtime writes it
    const char *locality;
    uint8_t _pad3[12];
    // processes in the job
    uint32_t universe_size;
    uint8_t _pad4[44];
    // whether it is bound to processors
    bool bound;
    uint8_t _pad5[19];
} hawser_v5_0_ProcessInfo;

// A value of the process management interface.
//
// C: `pmix_value_t`.
typedef struct hawser_v5_0_PmixValue {
    // 27 is a byte object
    uint16_t kind;
    uint8_t _pad0[6];
    // bytes of a byte object
    char *bytes;
    // their number
    size_t size;
    uint8_t _pad1[8];
} hawser_v5_0_PmixValue;

// A directive of that interface.
//
// C: `pmix_info_t`.
typedef struct hawser_v5_0_PmixInfo {
    // key, zero-ended
    uint8_t key[512];
    // whether it must be obeyed
    uint32_t flags;
    uint8_t _pad0[4];
    // value
    struct hawser_v5_0_PmixValue value;
} hawser_v5_0_PmixInfo;

// The name of a process in that interface.
//
// C: `pmix_proc_t`.
typedef struct hawser_v5_0_PmixProc {
    // job name, zero-ended
    uint8_t namespace_[256];
    // rank in the job
    uint32_t rank;
} hawser_v5_0_PmixProc;

// A byte transport's component.
//
// C: `mca_btl_base_component_3_0_0_t`.
typedef struct hawser_v5_0_BtlComponent {
    // the part common to all components
    struct hawser_v5_0_Component base;
    // metadata flags
    uint32_t param_field;
    uint8_t _pad0[36];
    // makes the modules
    struct hawser_v5_0_BtlModule **(*init)(int*, bool, bool);
    // advances all modules
    int (*progress)(void);
} hawser_v5_0_BtlComponent;

// The head of a process.
//
// C: `opal_proc_t`.
typedef struct hawser_v5_0_BtlProc {
    uint8_t _pad0[40];
    // job
    uint32_t jobid;
    // rank in the job
    uint32_t vpid;
} hawser_v5_0_BtlProc;

// A peer; the host only ever sees its address, which is a handle of ours.
//
// C: `struct mca_btl_base_endpoint_t`.
typedef void hawser_v5_0_BtlEndpoint;

// A piece of memory of a descriptor.
//
// C: `mca_btl_base_segment_t`.
typedef struct hawser_v5_0_Segment {
    // address
    uint8_t *start;
    // bytes
    uint64_t len;
} hawser_v5_0_Segment;

// What the transport tells when a descriptor has been sent.
//
// C: `mca_btl_base_completion_fn_t`.
typedef void (*hawser_v5_0_Sent)(struct hawser_v5_0_BtlModule*,
                                 hawser_v5_0_BtlEndpoint*,
                                 struct hawser_v5_0_Descriptor*,
                                 int);

// What is sent, and what 4.1 is handed when something was received.
//
// C: `mca_btl_base_descriptor_t`.
typedef struct hawser_v5_0_Descriptor {
    uint8_t _pad0[56];
    // pieces of memory
    struct hawser_v5_0_Segment *segments;
    // how many
    size_t segment_count;
    // called when it has been sent
    hawser_v5_0_Sent sent;
    // for the callback
    void *callback_data;
    // for the callback
    void *context;
    // wishes
    uint32_t flags;
    // ordering class
    uint8_t order;
    uint8_t _pad1[3];
} hawser_v5_0_Descriptor;

// The head of a convertor.
//
// C: `opal_convertor_t`.
typedef struct hawser_v5_0_BtlConvertor {
    uint8_t _pad0[20];
    // state and properties
    uint32_t flags;
    // packed bytes
    size_t local_size;
    uint8_t _pad1[8];
    // datatype of the elements
    const struct hawser_v5_0_Datatype *datatype;
    uint8_t _pad2[8];
    // elements
    size_t count;
    uint8_t _pad3[8];
    // where the first element is
    uint8_t *base;
    uint8_t _pad4[40];
    // bytes that have been packed
    size_t converted;
} hawser_v5_0_BtlConvertor;

// A registration handle; the host copies its bytes to the peer.
//
// C: `mca_btl_base_registration_handle_t`.
typedef void hawser_v5_0_BtlRegistration;

// What the transport tells when a PUT or GET has ended.
//
// C: `mca_btl_base_rdma_completion_fn_t`.
typedef void (*hawser_v5_0_Transferred)(struct hawser_v5_0_BtlModule*,
                                        hawser_v5_0_BtlEndpoint*,
                                        void*,
                                        hawser_v5_0_BtlRegistration*,
                                        void*,
                                        void*,
                                        int);

// Starts a PUT or a GET.
//
// C: `mca_btl_base_module_put_fn_t`, `mca_btl_base_module_get_fn_t`.
typedef int (*hawser_v5_0_Transfer)(struct hawser_v5_0_BtlModule*,
                                    hawser_v5_0_BtlEndpoint*,
                                    void*,
                                    uint64_t,
                                    hawser_v5_0_BtlRegistration*,
                                    hawser_v5_0_BtlRegistration*,
                                    size_t,
                                    int,
                                    int,
                                    hawser_v5_0_Transferred,
                                    void*,
                                    void*);

// Starts an atomic operation without a result.
//
// C: `mca_btl_base_module_atomic_op64_fn_t`.
typedef int (*hawser_v5_0_AtomicOp)(struct hawser_v5_0_BtlModule*,
                                    hawser_v5_0_BtlEndpoint*,
                                    uint64_t,
                                    hawser_v5_0_BtlRegistration*,
                                    int,
                                    uint64_t,
                                    int,
                                    int,
                                    hawser_v5_0_Transferred,
                                    void*,
                                    void*);

// Starts one with a result.
//
// C: `mca_btl_base_module_atomic_fop64_fn_t`.
typedef int (*hawser_v5_0_AtomicFop)(struct hawser_v5_0_BtlModule*,
                                     hawser_v5_0_BtlEndpoint*,
                                     void*,
                                     uint64_t,
                                     hawser_v5_0_BtlRegistration*,
                                     hawser_v5_0_BtlRegistration*,
                                     int,
                                     uint64_t,
                                     int,
                                     int,
                                     hawser_v5_0_Transferred,
                                     void*,
                                     void*);

// Starts a compare-and-swap.
//
// C: `mca_btl_base_module_atomic_cswap64_fn_t`.
typedef int (*hawser_v5_0_AtomicSwap)(struct hawser_v5_0_BtlModule*,
                                      hawser_v5_0_BtlEndpoint*,
                                      void*,
                                      uint64_t,
                                      hawser_v5_0_BtlRegistration*,
                                      hawser_v5_0_BtlRegistration*,
                                      uint64_t,
                                      uint64_t,
                                      int,
                                      int,
                                      hawser_v5_0_Transferred,
                                      void*,
                                      void*);

// What the transport tells when a peer or a device is lost.
//
// C: `mca_btl_base_module_error_cb_fn_t`.
typedef void (*hawser_v5_0_Failed)(struct hawser_v5_0_BtlModule*,
                                   int32_t,
                                   struct hawser_v5_0_BtlProc*,
                                   char*);

// The table of a byte transport.
//
// C: `mca_btl_base_module_t`.
typedef struct hawser_v5_0_BtlModule {
    // the component
    const struct hawser_v5_0_BtlComponent *component;
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
    int (*add_procs)(struct hawser_v5_0_BtlModule*,
                     size_t,
                     struct hawser_v5_0_BtlProc**,
                     hawser_v5_0_BtlEndpoint**,
                     void*);
    // forgets peers
    int (*del_procs)(struct hawser_v5_0_BtlModule*,
                     size_t,
                     struct hawser_v5_0_BtlProc**,
                     hawser_v5_0_BtlEndpoint**);
    // hears of receive callbacks
    void (*register_)(void);
    // ends the module
    int (*finalize)(struct hawser_v5_0_BtlModule*);
    // gives a descriptor with memory
    struct hawser_v5_0_Descriptor *(*alloc)(struct hawser_v5_0_BtlModule*,
                                            hawser_v5_0_BtlEndpoint*,
                                            uint8_t,
                                            size_t,
                                            uint32_t);
    // takes a descriptor back
    int (*free)(struct hawser_v5_0_BtlModule*, struct hawser_v5_0_Descriptor*);
    // gives a descriptor of user data
    struct hawser_v5_0_Descriptor *(*prepare_src)(struct hawser_v5_0_BtlModule*,
                                                  hawser_v5_0_BtlEndpoint*,
                                                  struct hawser_v5_0_BtlConvertor*,
                                                  uint8_t,
                                                  size_t,
                                                  size_t*,
                                                  uint32_t);
    // sends a descriptor
    int (*send)(struct hawser_v5_0_BtlModule*,
                hawser_v5_0_BtlEndpoint*,
                struct hawser_v5_0_Descriptor*,
                uint8_t);
    // sends at once or not at all
    int (*sendi)(struct hawser_v5_0_BtlModule*,
                 hawser_v5_0_BtlEndpoint*,
                 struct hawser_v5_0_BtlConvertor*,
                 void*,
                 size_t,
                 size_t,
                 uint8_t,
                 uint32_t,
                 uint8_t,
                 struct hawser_v5_0_Descriptor**);
    // writes to a peer's memory
    hawser_v5_0_Transfer put;
    // reads from a peer's memory
    hawser_v5_0_Transfer get;
    // says what state it is in
    void (*dump)(struct hawser_v5_0_BtlModule*, hawser_v5_0_BtlEndpoint*, int);
    // atomic operation without result
    hawser_v5_0_AtomicOp atomic_op;
    // atomic operation with result
    hawser_v5_0_AtomicFop atomic_fop;
    // compare and swap
    hawser_v5_0_AtomicSwap atomic_cswap;
    // registers memory
    hawser_v5_0_BtlRegistration *(*register_mem)(struct hawser_v5_0_BtlModule*,
                                                 hawser_v5_0_BtlEndpoint*,
                                                 void*,
                                                 size_t,
                                                 uint32_t);
    // takes a registration back
    int (*deregister_mem)(struct hawser_v5_0_BtlModule*, hawser_v5_0_BtlRegistration*);
    // memory pool
    void *mpool;
    // takes the host's error callback
    int (*register_error)(struct hawser_v5_0_BtlModule*, hawser_v5_0_Failed);
    // 4.1: checkpoint callback; 5.0: longest fragment of device memory
    size_t ft_event_or_accelerator_max_send_size;
    // waits for PUTs and GETs
    int (*flush)(struct hawser_v5_0_BtlModule*, hawser_v5_0_BtlEndpoint*);
    // 5.0 keeps its emulation of one-sided operations here
    uint8_t reserved[256];
} hawser_v5_0_BtlModule;

// The same table in a build of 5.0 with CUDA, which has two more fields.
//
// C: `mca_btl_base_module_t` with `OPAL_CUDA_GDR_SUPPORT`.
typedef struct hawser_v5_0_BtlModuleGdr {
    uint8_t _pad0[288];
    // longest message of device memory that is sent at once
    size_t accelerator_eager_limit;
    // longest message of device memory that is put or got
    size_t accelerator_rdma_limit;
    // longest fragment of device memory
    size_t accelerator_max_send_size;
    // waits for PUTs and GETs
    int (*flush)(struct hawser_v5_0_BtlModule*, hawser_v5_0_BtlEndpoint*);
    uint8_t _pad1[256];
} hawser_v5_0_BtlModuleGdr;

// Puts and gets by messages of a byte transport.
//
// C: `mca_btl_base_am_rdma_module_t`.
typedef struct hawser_v5_0_AmRdma {
    // the object
    struct hawser_v5_0_Object object;
    // the transport
    struct hawser_v5_0_BtlModule *transport;
    // whether the target of a get puts
    bool puts;
    // whether the target of a put gets
    bool gets;
    uint8_t _pad0[6];
    size_t _pad1[4];
    // begins a put; its first argument is this structure
    hawser_v5_0_Transfer put;
    // begins a get; its first argument is this structure
    hawser_v5_0_Transfer get;
    size_t _pad2[2];
} hawser_v5_0_AmRdma;

// What a byte transport's receive callback is handed.
//
// C: `mca_btl_base_receive_descriptor_t`.
typedef struct hawser_v5_0_ReceiveDescriptor {
    // the sender
    hawser_v5_0_BtlEndpoint *endpoint;
    // pieces of memory
    const struct hawser_v5_0_Segment *segments;
    // how many
    size_t segment_count;
    // who it is for
    uint8_t tag;
    uint8_t _pad0[7];
    // registered with the callback
    void *callback_data;
} hawser_v5_0_ReceiveDescriptor;

// A predefined operation.
//
// C: `ompi_op_t`.
typedef struct hawser_v5_0_Op {
    uint8_t _pad0[96];
    // functions by type
    void (*fns[hawser_v5_0_OP_TYPES])(const void*, void*, int*, void**, struct hawser_v5_0_OpModule*);
    // the modules that they are of
    struct hawser_v5_0_OpModule *modules[hawser_v5_0_OP_TYPES];
    // functions with three buffers by type
    void (*fns3[hawser_v5_0_OP_TYPES])(const void*,
                                       const void*,
                                       void*,
                                       int*,
                                       void**,
                                       struct hawser_v5_0_OpModule*);
    // the modules that they are of
    struct hawser_v5_0_OpModule *modules3[hawser_v5_0_OP_TYPES];
} hawser_v5_0_Op;

// What a component supplies for an operation; null where it has nothing for a type.
//
// C: `ompi_op_base_module_t`.
typedef struct hawser_v5_0_OpModule {
    // the host's object
    struct hawser_v5_0_Object object;
    // called when the module is going to be used
    int (*enable)(struct hawser_v5_0_OpModule*, struct hawser_v5_0_Op*);
    // the operation
    struct hawser_v5_0_Op *op;
    // functions by type
    void (*fns[hawser_v5_0_OP_TYPES])(const void*, void*, int*, void**, struct hawser_v5_0_OpModule*);
    // functions with three buffers by type
    void (*fns3[hawser_v5_0_OP_TYPES])(const void*,
                                       const void*,
                                       void*,
                                       int*,
                                       void**,
                                       struct hawser_v5_0_OpModule*);
} hawser_v5_0_OpModule;

// The structure of a component for operations.
//
// C: `ompi_op_base_component_t`.
typedef struct hawser_v5_0_OpComponent {
    // who it is
    struct hawser_v5_0_Component base;
    uint8_t _pad0[40];
    // whether it can be used at all
    int (*init)(bool, bool);
    // a module for an operation, and its priority
    struct hawser_v5_0_OpModule *(*query)(struct hawser_v5_0_Op*, int*);
} hawser_v5_0_OpComponent;

// What `pml/cm` puts behind the host's request: only the kind matters here.
//
// C: `mca_pml_cm_request_t`.
typedef struct hawser_v5_0_CmRequest {
    // the host's request
    struct hawser_v5_0_Request request;
    uint8_t _pad0[8];
    // 0 heavy send, 1 thin send, 2 heavy receive, 3 thin receive
    int kind;
    uint8_t _pad1[4];
} hawser_v5_0_CmRequest;

// An item of a list or a stack.
//
// C: `opal_list_item_t`.
typedef struct hawser_v5_0_ListItem {
    // its object head
    struct hawser_v5_0_Object object;
    // next item
    struct hawser_v5_0_ListItem *next;
    // previous item
    struct hawser_v5_0_ListItem *previous;
    // whether it is on a stack
    int32_t free;
    uint8_t _pad0[4];
} hawser_v5_0_ListItem;

// A list.
//
// C: `opal_list_t`.
typedef struct hawser_v5_0_List {
    // its object head
    struct hawser_v5_0_Object object;
    // before the first and behind the last
    struct hawser_v5_0_ListItem sentinel;
    // the number of its items
    size_t length;
} hawser_v5_0_List;

// A registered receive callback; its type differs by version.
//
// C: `mca_btl_active_message_callback_t`.
typedef struct hawser_v5_0_ActiveMessage {
    // the callback
    const void *callback;
    // for the callback
    void *callback_data;
} hawser_v5_0_ActiveMessage;

// The head of a performance variable.
//
// C: `mca_base_pvar_t`.
typedef struct hawser_v5_0_BtlPvar {
    uint8_t _pad0[96];
    // what it was registered with
    void *context;
} hawser_v5_0_BtlPvar;

// A module that the host has taken, in its list of them.
//
// C: `mca_btl_base_selected_module_t`.
typedef struct hawser_v5_0_BtlSelected {
    // its place in the list
    struct hawser_v5_0_ListItem item;
    // the module's component
    const struct hawser_v5_0_BtlComponent *component;
    // the module
    struct hawser_v5_0_BtlModule *module;
} hawser_v5_0_BtlSelected;

#endif  /* HAWSER_V5_0_H */
