/* Arguments at the edge: nothing, too much, null, tags that nobody listens to, buffers that fail. */
#include "btl.h"

#include <stdlib.h>
#include <string.h>

static const uint32_t CALLED = MCA_BTL_DES_SEND_ALWAYS_CALLBACK;

/* Each length around the sizes where something changes. */
static void lengths(void)
{
    static const size_t edges[] = {HEADER, 512, 768, 1024, 1472, 4096, 8192, 8972, 16384, 65507, 65536, 131072};
    struct btl btl;
    uint64_t number = 0;

    btl_begin(&btl, btl_parameters(), false);
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        for (int off = -3; off <= 3; off++)
            if (edges[i] + off >= HEADER && edges[i] + off <= btl.module->btl_max_send_size)
                CHECK(btl_post(&btl, number++, edges[i] + off, CALLED) >= 0);
    for (size_t less = 0; less < 3; less++)
        CHECK(btl_post(&btl, number++, btl.module->btl_max_send_size - less, CALLED) >= 0);
    btl_settle(&btl);
    btl_end(&btl);
}

static unsigned long empty, tiny;

static void count_short(mca_btl_base_module_t *module, uint8_t tag, const unsigned char *bytes, size_t size,
                        void *data)
{
    (void)module, (void)tag, (void)data;
    note_progress();
    if (size == 0) {
        empty++;
        return;
    }
    for (size_t at = 0; at < size; at++)
        CHECK(bytes[at] == (unsigned char)(size + at));
    tiny++;
}

/* Fragments of no bytes, and shorter than any header; a descriptor that is shortened before it is sent. */
static void no_bytes(void)
{
    struct btl btl;
    mca_btl_base_module_t *module;

    btl_begin(&btl, btl_parameters(), false);
    module = btl.module;
    version_listen(TAG + 1, count_short, NULL);
    fence();
    for (int i = 0; i < 100; i++) {
        size_t size = i % 2 ? 0 : (size_t)i % 23 + 1;
        mca_btl_base_descriptor_t *descriptor = module->btl_alloc(
            module, btl.peer, MCA_BTL_NO_ORDER, i % 3 ? size : 700, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
        CHECK(descriptor != NULL);
        descriptor->des_segments->seg_len = size;
        for (size_t at = 0; at < size; at++)
            ((unsigned char *)descriptor->des_segments->seg_addr.pval)[at] = (unsigned char)(size + at);
        CHECK(module->btl_send(module, btl.peer, descriptor, TAG + 1) >= 0);
    }
    while (empty + tiny < 100)
        host_progress();
    CHECK(empty == 50 && tiny == 50);
    fence();
    btl_end(&btl);
}

/* More than a transport has room for: it gives less, or nothing, and says so. */
static void too_long(void)
{
    static const size_t sizes[] = {(1 << 19) + 1, 1 << 24, SIZE_MAX / 2, SIZE_MAX - 64, SIZE_MAX};
    static unsigned char bytes[1 << 20];
    struct btl btl;
    mca_btl_base_module_t *module;
    mca_btl_base_descriptor_t *left;
    opal_convertor_t convertor;

    btl_begin(&btl, btl_parameters(), false);
    module = btl.module;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        mca_btl_base_descriptor_t *descriptor =
            module->btl_alloc(module, btl.peer, MCA_BTL_NO_ORDER, sizes[i], 0);
        if (descriptor != NULL) {
            CHECK(descriptor->des_segments->seg_len < sizes[i]);
            memset(descriptor->des_segments->seg_addr.pval, 1, descriptor->des_segments->seg_len);
            module->btl_free(module, descriptor);
        }
    }
    /* No room for the reserve alone, wherever the data is to come from. */
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t size = 10; size < sizeof bytes; size *= 1000) {
            size_t wanted = size;
            host_contiguous(&convertor, bytes, size);
            CHECK(module->btl_prepare_src(module, btl.peer, &convertor, MCA_BTL_NO_ORDER, sizes[i], &wanted,
                                          0) == NULL);
        }
        left = (mca_btl_base_descriptor_t *)1;
        host_contiguous(&convertor, bytes, 10);
        CHECK(module->btl_sendi(module, btl.peer, &convertor, bytes, 10, sizes[i], MCA_BTL_NO_ORDER, 0, TAG,
                                &left) < 0 &&
              left == NULL);
    }
    for (size_t reserve = 0; reserve < 100; reserve += 99) {
        opal_datatype_t type;
        size_t size = sizeof bytes / 2;
        mca_btl_base_descriptor_t *descriptor;

        host_strided(&convertor, &type, bytes, sizeof bytes / 2, 1, 2);
        descriptor = module->btl_prepare_src(module, btl.peer, &convertor, MCA_BTL_NO_ORDER, reserve, &size, 0);
        CHECK(descriptor != NULL);
        CHECK(size < sizeof bytes && descriptor->des_segments->seg_len == reserve + size);
        module->btl_free(module, descriptor);
    }
    for (size_t i = 0; i < 2; i++) {
        left = (mca_btl_base_descriptor_t *)1;
        host_contiguous(&convertor, bytes, sizeof bytes);
        CHECK(module->btl_sendi(module, btl.peer, &convertor, bytes, 64, sizeof bytes, MCA_BTL_NO_ORDER, 0, TAG,
                                i == 0 ? &left : NULL) < 0);
        CHECK(i == 1 || left == NULL || module->btl_free(module, left) == OPAL_SUCCESS);
    }
    btl_settle(&btl);
    btl_end(&btl);
}

/* Where the header allows it: callbacks, headers, payloads, descriptors to be filled, endpoints. */
static void nulls(void)
{
    struct btl btl;
    mca_btl_base_module_t *module;
    mca_btl_base_descriptor_t *descriptor, *left;
    unsigned char header[HEADER];
    unsigned lines;

    btl_begin(&btl, btl_parameters(), false);
    module = btl.module;
    version_listen(TAG + 1, count_short, NULL);
    fence();
    /* Nobody wants to hear that it was sent. */
    for (int i = 0; i < 10; i++) {
        descriptor = module->btl_alloc(module, btl.peer, MCA_BTL_NO_ORDER, HEADER,
                                       MCA_BTL_DES_FLAGS_BTL_OWNERSHIP | (i % 2 ? CALLED : 0));
        CHECK(descriptor != NULL && descriptor->des_cbfunc == NULL);
        message_fill(descriptor->des_segments->seg_addr.pval, HEADER, 60000 + i);
        CHECK(module->btl_send(module, btl.peer, descriptor, TAG) >= 0);
    }
    /* Only a header; neither header nor payload. Over verbs, at once means to whom there is a connection. */
    while (transport == VERBS && books.delivered < 10)
        host_progress();
    for (int i = 0; i < 10; i++) {
        left = (mca_btl_base_descriptor_t *)1;
        message_fill(header, HEADER, 60010 + i);
        CHECK(module->btl_sendi(module, btl.peer, NULL, header, HEADER, 0, MCA_BTL_NO_ORDER, 0, TAG,
                                i % 2 ? &left : NULL) == OPAL_SUCCESS);
        CHECK(module->btl_sendi(module, btl.peer, NULL, NULL, 0, 0, MCA_BTL_NO_ORDER, 0, TAG + 1,
                                i % 2 ? &left : NULL) == OPAL_SUCCESS);
    }
    while (books.delivered < 20 || empty < 10)
        host_progress();
    fence();
    /* Everybody, whoever that is. */
    if (module->btl_flush != NULL)
        CHECK(module->btl_flush(module, NULL) == OPAL_SUCCESS);
    lines = host_lines;
    module->btl_dump(module, NULL, 0);
    module->btl_dump(module, btl.peer, 1);
    CHECK(host_lines > lines);
    CHECK(module->btl_register_error(module, NULL) == OPAL_SUCCESS);
    /* No peers; peers, but no interest in who can be reached. */
    CHECK(module->btl_add_procs(module, 0, NULL, NULL, NULL) == OPAL_SUCCESS);
    CHECK(module->btl_del_procs(module, 0, NULL, NULL) == OPAL_SUCCESS);
    opal_proc_t *procs[1] = {&host_proc[other]->super};
    endpoint_t again[1] = {NULL};
    CHECK(module->btl_add_procs(module, 1, procs, again, NULL) == OPAL_SUCCESS && again[0] == btl.peer);
    again[0] = NULL;
    CHECK(module->btl_del_procs(module, 1, procs, again) == OPAL_SUCCESS);
    btl_end(&btl);
}

/* Tags without a callback, and one that no table has: dropped, and what follows is delivered. */
static void tags_of_nobody(void)
{
    struct btl btl;
    mca_btl_base_module_t *module;

    btl_begin(&btl, btl_parameters(), false);
    module = btl.module;
    for (int i = 0; i < 200; i++) {
        static const uint8_t tags[] = {0, 1, MCA_BTL_TAG_PML, 254, 255};
        size_t size = i % 4 * 3000;
        mca_btl_base_descriptor_t *descriptor = module->btl_alloc(
            module, btl.peer, MCA_BTL_NO_ORDER, size, MCA_BTL_DES_FLAGS_BTL_OWNERSHIP);
        CHECK(descriptor != NULL);
        memset(descriptor->des_segments->seg_addr.pval, i, size);
        CHECK(module->btl_send(module, btl.peer, descriptor, tags[i % 5]) >= 0);
        if (i % 10 == 0)
            CHECK(btl_post(&btl, i, HEADER + i, CALLED) >= 0);
    }
    btl_settle(&btl);
    CHECK(books.delivered == 20);
    btl_end(&btl);
}

/* Data prepared by the transport: in pieces, in one piece sent from where it lies, behind a reserve. */
static unsigned char data[200000];
static unsigned long arrived;

static void check_data(mca_btl_base_module_t *module, uint8_t tag, const unsigned char *bytes, size_t size,
                       void *context)
{
    uint32_t reserve, stride, length;

    (void)module, (void)tag, (void)context;
    CHECK(size >= 12);
    memcpy(&reserve, bytes, 4);
    memcpy(&stride, bytes + 4, 4);
    memcpy(&length, bytes + 8, 4);
    CHECK(size == reserve + length, "%zu bytes, %u and %u", size, reserve, length);
    for (size_t at = 0; at < length; at++)
        CHECK(bytes[reserve + at] == (unsigned char)(at * stride * 31 >> 3), "byte %zu", at);
    arrived++;
    note_progress();
}

static void prepared_sent(mca_btl_base_module_t *module, endpoint_t endpoint,
                          mca_btl_base_descriptor_t *descriptor, int status)
{
    (void)endpoint;
    CHECK(status == OPAL_SUCCESS && !books.closed);
    books.completed++;
    note_progress();
    CHECK(module->btl_free(module, descriptor) == OPAL_SUCCESS);
}

static void prepare(struct btl *btl, uint32_t reserve, uint32_t stride, size_t wanted)
{
    mca_btl_base_module_t *module = btl->module;
    mca_btl_base_descriptor_t *descriptor;
    opal_convertor_t convertor;
    opal_datatype_t type;
    size_t size = wanted;
    uint32_t head[3];

    if (stride == 1)
        host_contiguous(&convertor, data, wanted);
    else
        host_strided(&convertor, &type, data, wanted, 1, stride);
    descriptor = module->btl_prepare_src(module, btl->peer, &convertor, MCA_BTL_NO_ORDER, reserve, &size, CALLED);
    if (host_on_convert != NULL && descriptor == NULL)
        return;
    CHECK(descriptor != NULL);
    CHECK(size > 0 && size <= wanted, "%zu", size);
    head[0] = reserve, head[1] = stride, head[2] = (uint32_t)size;
    memcpy(descriptor->des_segments->seg_addr.pval, head, 12);
    descriptor->des_cbfunc = prepared_sent;
    books.posted++;
    CHECK(module->btl_send(module, btl->peer, descriptor, TAG + 2) >= 0);
}

static int fail_sometimes(opal_convertor_t *convertor)
{
    static int turn;

    (void)convertor;
    return turn++ % 3 == 0 ? OPAL_ERROR : 0;
}

static int call_back(opal_convertor_t *convertor)
{
    (void)convertor;
    host_progress();
    return 0;
}

static void prepared(void)
{
    static const uint32_t reserves[] = {12, 13, 64, 600};
    struct btl btl;

    for (size_t at = 0; at < sizeof data; at++)
        data[at] = (unsigned char)(at * 31 >> 3);
    btl_begin(&btl, btl_parameters(), false);
    version_listen(TAG + 2, check_data, NULL);
    fence();
    for (size_t i = 0; i < 4; i++)
        for (uint32_t stride = 1; stride < 4; stride++)
            for (size_t wanted = 1; wanted < 60000; wanted = wanted * 3 + 1)
                prepare(&btl, reserves[i], stride, wanted);
    host_on_convert = call_back;
    for (size_t wanted = 1; wanted < 60000; wanted = wanted * 3 + 1)
        prepare(&btl, 40, 2, wanted);
    host_on_convert = fail_sometimes;
    for (size_t wanted = 1; wanted < 60000; wanted = wanted * 3 + 1)
        prepare(&btl, 40, 2, wanted);
    host_on_convert = NULL;
    while (books.completed < books.posted)
        host_progress();
    tell(books.posted);
    fence();
    while (arrived < told())
        host_progress();
    CHECK(arrived == told());
    fence();
    btl_end(&btl);
}

/* Sends at once, from a convertor that packs, fails, and calls back. */
static void sent_at_once(void)
{
    struct btl btl;
    mca_btl_base_module_t *module;
    unsigned long good = 0;

    for (size_t at = 0; at < sizeof data; at++)
        data[at] = (unsigned char)(at * 31 >> 3);
    btl_begin(&btl, btl_parameters(), false);
    module = btl.module;
    version_listen(TAG + 2, check_data, NULL);
    fence();
    /* Over verbs, there is a connection first, and then what the peer has room for, which it says while it makes progress. */
    if (transport == VERBS) {
        CHECK(btl_post(&btl, 0, HEADER, CALLED) >= 0);
        btl_settle(&btl);
    }
    for (int i = 0; i < 600; i++) {
        mca_btl_base_descriptor_t *left = NULL;
        opal_convertor_t convertor;
        opal_datatype_t type;
        uint32_t size = (uint32_t)i * 37 % 9000 + 1, stride = (uint32_t)i % 3 + 1;
        uint32_t head[3] = {12, stride, size};
        int result;

        /* Over verbs, at once means from where it lies, and when the peer has room. */
        bool is_taken_in_the_end = transport == VERBS && i % 4 != 0;

    again:
        left = NULL;
        if (is_taken_in_the_end) {
            head[1] = 1;
            host_contiguous(&convertor, data, size);
        } else {
            host_strided(&convertor, &type, data, size, 1, stride);
        }
        host_on_convert = i % 5 == 0 ? fail_sometimes : i % 5 == 1 ? call_back : NULL;
        result = module->btl_sendi(module, btl.peer, &convertor, head, 12, size, MCA_BTL_NO_ORDER, 0, TAG + 2,
                                   i % 2 ? &left : NULL);
        if (result == OPAL_SUCCESS)
            good++;
        else if (left != NULL)
            CHECK(module->btl_free(module, left) == OPAL_SUCCESS);
        if (result != OPAL_SUCCESS && is_taken_in_the_end) {
            host_progress();
            goto again;
        }
        note_progress();
    }
    host_on_convert = NULL;
    CHECK(good > 400, "%lu", good);
    tell(good);
    fence();
    while (arrived < told())
        host_progress();
    fence();
    CHECK(arrived == told());
    btl_end(&btl);
}

const struct test btl_argument_tests[] = {
    {"btl lengths", lengths, RETURNS},
    {"btl no bytes", no_bytes, RETURNS},
    {"btl too long", too_long, RETURNS},
    {"btl nulls", nulls, RETURNS},
    {"btl tags of nobody", tags_of_nobody, RETURNS},
    {"btl prepared", prepared, RETURNS},
    {"btl sent at once", sent_at_once, RETURNS},
    {0},
};
