/* A byte transport as the host drives it. */
#include "btl.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "opal/runtime/opal_progress.h"

/* By transport. */
static const struct {
    const char *name, *component, *sends, *devices;
    const char *parameters[5], *wrong[5];
} kinds[] = {
    [USNIC] = {"usnic",
               "mca_btl_usnic_component",
               "btl_usnic_num_total_sends",
               "btl_usnic_devices",
               {"btl=usnic,self", "btl_usnic_if_include=lo", "btl_usnic_link=socket", "btl_usnic_base_udp_port=0"},
               {"btl=usnic,self", "btl_usnic_if_include=lo", "btl_usnic_link=socket", "btl_usnic_ack_delay=-5"}},
    [SMCUDA] = {"smcuda",
                "mca_btl_smcuda_component",
                "btl_smcuda_num_sends",
                "btl_smcuda_devices",
                {"btl=smcuda,self"},
                {"btl=smcuda,self", "btl_smcuda_eager_limit=99"}},
    [VERBS] = {"verbs",
               "mca_btl_verbs_component",
               "btl_verbs_num_sends",
               "btl_verbs_devices",
               {"btl=verbs,self", "btl_verbs_ipaddr_include=127.0.0.0/8"},
               {"btl=verbs,self", "btl_verbs_ipaddr_include=127.0.0.0/8", "btl_verbs_receive_queues=X,128,256"}},
};

const char *const *btl_parameters(void) { return kinds[transport].parameters; }

const char *const *btl_wrong_parameters(void) { return kinds[transport].wrong; }

const char *btl_sends(void) { return kinds[transport].sends; }

const char *btl_devices(void) { return kinds[transport].devices; }

struct books books;
void (*on_sent)(struct btl *btl, uint64_t number, int status);
void (*on_received)(struct btl *btl, uint64_t number, size_t size);
enum keeping keeping;
_Thread_local int depth;

void btl_load(struct btl *btl)
{
    btl->component = host_component(kinds[transport].component);
    CHECK(strcmp(btl->component->btl_version.mca_component_name, kinds[transport].name) == 0);
    CHECK(btl->component->btl_version.mca_register_component_params() == OPAL_SUCCESS);
    CHECK(btl->component->btl_version.mca_open_component() == OPAL_SUCCESS);
}

void btl_init(struct btl *btl, bool threads)
{
    btl->modules = btl->component->btl_init(&btl->count, false, threads);
    CHECK(btl->modules != NULL && btl->count >= 1, "%d modules", btl->count);
    for (int index = 0; index < btl->count; index++)
        CHECK(btl->modules[index]->btl_component == btl->component);
    btl->module = btl->modules[0];
    CHECK(opal_progress_register(btl->component->btl_progress) == OPAL_SUCCESS);
}

bool btl_has_itself(const struct btl *btl) { return btl->module->btl_atomic_op != NULL; }

void btl_meet(struct btl *btl)
{
    uint64_t bits[1] = {0};
    opal_bitmap_t reachable = {.bitmap = bits, .array_size = 1, .max_size = 64};
    opal_proc_t *procs[RANKS] = {&host_proc[0]->super, &host_proc[1]->super};

    for (int index = btl->count - 1; index >= 0; index--) {
        endpoint_t found[RANKS] = {(endpoint_t)1, (endpoint_t)1};
        CHECK(btl->modules[index]->btl_add_procs(btl->modules[index], RANKS, procs, found, &reachable) ==
              OPAL_SUCCESS);
        CHECK((found[self] != NULL) == btl_has_itself(btl), "a process is a peer of its own where its device changes words");
        btl->peer = found[other], btl->itself = found[self];
    }
    CHECK(btl->peer != NULL);
    CHECK(bits[0] == ((uint64_t)1 << other | (uint64_t)btl_has_itself(btl) << self));
}

void btl_begin(struct btl *btl, const char *const parameters[], bool threads)
{
    host_begin(parameters);
    host_set_threads(threads);
    step("opens the component");
    btl_load(btl);
    btl_init(btl, threads);
    fence();
    btl_meet(btl);
    btl_listen(btl);
    step("has met its peer");
    fence();
}

void btl_part(struct btl *btl)
{
    opal_proc_t *procs[1] = {&host_proc[other]->super};

    step("gives its peer up");
    CHECK(btl->module->btl_del_procs(btl->module, 1, procs, &btl->peer) == OPAL_SUCCESS);
}

void btl_finalize(struct btl *btl)
{
    step("finalizes");
    CHECK(opal_progress_unregister(btl->component->btl_progress) == OPAL_SUCCESS);
    for (int index = 0; index < btl->count; index++)
        CHECK(btl->modules[index]->btl_finalize(btl->modules[index]) == OPAL_SUCCESS);
    books.closed = true;
    free(btl->modules);
    btl->modules = NULL;
    btl->count = 0;
    CHECK(btl->component->btl_version.mca_close_component() == OPAL_SUCCESS);
}

void btl_end(struct btl *btl)
{
    btl_part(btl);
    btl_finalize(btl);
}

/* Messages. */

static uint64_t mix(uint64_t number)
{
    number = (number ^ number >> 30) * 0xbf58476d1ce4e5b9u;
    number = (number ^ number >> 27) * 0x94d049bb133111ebu;
    return number ^ number >> 31;
}

void message_fill(unsigned char *bytes, size_t size, uint64_t number)
{
    uint64_t head[3] = {number, size, mix(number ^ size << 32)}, state = head[2];

    for (size_t at = 0; at < size; at += 8) {
        uint64_t word = at < HEADER ? head[at / 8] : (state = state * 6364136223846793005u + 1442695040888963407u);
        memcpy(bytes + at, &word, size - at < 8 ? size - at : 8);
    }
}

uint64_t message_check(const unsigned char *bytes, size_t size)
{
    uint64_t head[3], state;

    CHECK(size >= HEADER, "%zu bytes", size);
    memcpy(head, bytes, HEADER);
    CHECK(head[1] == size, "%zu bytes, and %llu were sent", size, (unsigned long long)head[1]);
    CHECK(head[2] == mix(head[0] ^ head[1] << 32));
    state = head[2];
    for (size_t at = HEADER; at < size; at += 8) {
        size_t part = size - at < 8 ? size - at : 8;
        state = state * 6364136223846793005u + 1442695040888963407u;
        CHECK(memcmp(bytes + at, &state, part) == 0, "byte %zu of %zu", at, size);
    }
    return head[0];
}

/* Sends. */

static pthread_mutex_t later_lock = PTHREAD_MUTEX_INITIALIZER;
static mca_btl_base_descriptor_t *later[MOST];
static unsigned later_count;

void btl_free_later(struct btl *btl)
{
    for (;;) {
        mca_btl_base_descriptor_t *descriptor = NULL;
        pthread_mutex_lock(&later_lock);
        if (later_count > 0)
            descriptor = later[--later_count];
        pthread_mutex_unlock(&later_lock);
        if (descriptor == NULL)
            return;
        CHECK(btl->module->btl_free(btl->module, descriptor) == OPAL_SUCCESS);
    }
}

static void sent(mca_btl_base_module_t *module, endpoint_t endpoint, mca_btl_base_descriptor_t *descriptor,
                 int status)
{
    struct btl *btl = descriptor->des_cbdata;
    uint64_t number = (uintptr_t)descriptor->des_context;

    CHECK(!books.closed, "a completion after finalize");
    CHECK(module == btl->module);
    CHECK(endpoint != NULL);
    CHECK(number < MOST && atomic_exchange(&books.sent[number], 2) == 1, "send %lu is completed twice", number);
    books.completed++;
    if (status != OPAL_SUCCESS)
        books.failed++;
    note_progress();
    if (!(descriptor->des_flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP)) {
        if (keeping == FREE_IN_CALLBACK) {
            CHECK(module->btl_free(module, descriptor) == OPAL_SUCCESS);
        } else {
            pthread_mutex_lock(&later_lock);
            CHECK(later_count < MOST);
            later[later_count++] = descriptor;
            pthread_mutex_unlock(&later_lock);
        }
    }
    if (on_sent != NULL) {
        depth++;
        on_sent(btl, number, status);
        depth--;
    }
}

int btl_post(struct btl *btl, uint64_t number, size_t size, uint32_t flags)
{
    mca_btl_base_module_t *module = btl->module;
    mca_btl_base_descriptor_t *descriptor =
        module->btl_alloc(module, btl->peer, MCA_BTL_NO_ORDER, size, flags);
    int result;

    CHECK(number < MOST);
    CHECK(descriptor != NULL);
    CHECK(descriptor->des_segment_count == 1 && descriptor->des_segments->seg_len == size);
    message_fill(descriptor->des_segments->seg_addr.pval, size, number);
    descriptor->des_cbfunc = sent;
    descriptor->des_cbdata = btl;
    descriptor->des_context = (void *)(uintptr_t)number;
    CHECK(atomic_exchange(&books.sent[number], 1) == 0, "the test sends %lu twice", number);
    books.posted++;
    /* Of what no callback follows, smcuda and verbs take so much and no more: the host keeps it, and sends it again. */
    while ((result = module->btl_send(module, btl->peer, descriptor, TAG)) == OPAL_ERR_OUT_OF_RESOURCE &&
           transport != USNIC && !(flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK))
        host_progress();
    if (result == 1) {
        /* At once: no callback follows, and whose descriptor it is, is as agreed. */
        CHECK(!(flags & MCA_BTL_DES_SEND_ALWAYS_CALLBACK));
        CHECK(atomic_exchange(&books.sent[number], 2) == 1);
        books.completed++;
        books.silent++;
        if (!(flags & MCA_BTL_DES_FLAGS_BTL_OWNERSHIP))
            CHECK(module->btl_free(module, descriptor) == OPAL_SUCCESS);
    } else if (result != OPAL_SUCCESS) {
        CHECK(result < 0, "%d", result);
        CHECK(atomic_exchange(&books.sent[number], 3) == 1, "a refused send is completed");
        books.posted--;
        books.refused++;
        CHECK(module->btl_free(module, descriptor) == OPAL_SUCCESS);
    }
    return result;
}

static void received(mca_btl_base_module_t *module, uint8_t tag, const unsigned char *bytes, size_t size,
                     void *data)
{
    struct btl *btl = data;
    uint64_t number = message_check(bytes, size);

    CHECK(!books.closed, "a delivery after finalize");
    CHECK(tag == TAG && module == btl->module);
    CHECK(number < MOST && atomic_exchange(&books.seen[number], 1) == 0, "%lu is delivered twice", number);
    books.delivered++;
    note_progress();
    if (on_received != NULL) {
        depth++;
        on_received(btl, number, size);
        depth--;
        /* The bytes are ours until we return, whatever we did meanwhile. */
        CHECK(message_check(bytes, size) == number);
    }
}

void btl_listen(struct btl *btl) { version_listen(TAG, received, btl); }

void btl_await_sent(unsigned long count)
{
    while (books.completed < count)
        host_progress();
    CHECK(books.completed == count);
}

void btl_await_received(unsigned long count)
{
    while (books.delivered < count)
        host_progress();
    CHECK(books.delivered == count);
}

void btl_settle(struct btl *btl)
{
    step("waits for its sends");
    while (books.completed < books.posted)
        host_progress();
    tell(books.posted);
    fence();
    step("waits for the peer's sends");
    btl_await_received(told());
    fence();
    CHECK(books.completed == books.posted, "%lu completed, %lu posted", books.completed, books.posted);
    btl_free_later(btl);
}
