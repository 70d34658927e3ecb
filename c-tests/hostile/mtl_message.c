/* Messages of a matching transport: callbacks that call, probes, cancels, short buffers, bad convertors. */
#include "mtl.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "btl.h"

static struct mtl mtl;

/* Of all lengths, awaited or not, plain or synchronous, blocking or not. */
static void lengths(void)
{
    static const size_t sizes[] = {HEADER, 63, 64, 65, 128, 192, 1000, 4096, 16384, 65536, 100000, 1 << 20};
    enum { COUNT = sizeof sizes / sizeof *sizes };

    mtl_begin(&mtl, "hawser", false);
    for (int late = 0; late < 2; late++) {
        for (int synchronous = 0; synchronous < 2; synchronous++) {
            struct request *in[COUNT], *out[COUNT];

            for (int i = 0; i < COUNT; i++) {
                in[i] = request_new(&mtl, sizes[i] + 10, true);
                if (!late)
                    CHECK(mtl_irecv(in[i], mtl.world, i % 2 ? other : MPI_ANY_SOURCE, i) == OMPI_SUCCESS);
            }
            for (int i = 0; i < COUNT; i++) {
                out[i] = request_new(&mtl, sizes[i], false);
                CHECK(mtl_isend(out[i], mtl.world, i, i, synchronous) == OMPI_SUCCESS);
            }
            fence();
            for (int i = COUNT - 1; i >= 0; i--) {
                if (late)
                    CHECK(mtl_irecv(in[i], mtl.world, i % 2 ? other : MPI_ANY_SOURCE, i) == OMPI_SUCCESS);
                request_wait(in[i]);
                CHECK(request_check(in[i]) == (uint64_t)i);
                CHECK(in[i]->pml.req_ompi.req_status.MPI_TAG == i);
                request_free(in[i]);
            }
            for (int i = 0; i < COUNT; i++) {
                request_wait(out[i]);
                CHECK(out[i]->pml.req_ompi.req_status.MPI_ERROR == MPI_SUCCESS);
                request_free(out[i]);
            }
            fence();
        }
    }
    /* No bytes at all, and no datatype. */
    for (int i = 0; i < 20; i++) {
        struct request *in = request_new(&mtl, 0, true), *out = request_new(&mtl, 0, false);
        in->convertor.pDesc = out->convertor.pDesc = NULL;
        in->convertor.pBaseBuf = out->convertor.pBaseBuf = NULL;
        CHECK(mtl_isend(out, mtl.world, i, 0, i % 2) == OMPI_SUCCESS);
        CHECK(mtl_irecv(in, mtl.world, other, i) == OMPI_SUCCESS);
        request_wait(in);
        request_wait(out);
        CHECK(in->pml.req_ompi.req_status._ucount == 0);
        request_free(in);
        request_free(out);
    }
    mtl_end(&mtl);
}

/* Every completion frees its request, starts the next ones and lets the host make progress. */
static uint64_t sent, received, limit;
static unsigned char arrived[1 << 16];

static void receive_next(struct mtl *m, struct request *request);

static void post_receive(void)
{
    struct request *request = request_new(&mtl, 9000, true);

    request->on_end = receive_next;
    CHECK(mtl_irecv(request, mtl.world, received % 2 ? other : MPI_ANY_SOURCE, MPI_ANY_TAG) == OMPI_SUCCESS);
}

static void send_next(struct mtl *m, struct request *request)
{
    struct request *next;

    (void)m;
    if (request != NULL) {
        CHECK(request->pml.req_ompi.req_status.MPI_ERROR == MPI_SUCCESS);
        request_free(request);
    }
    if (sent < limit) {
        next = request_new(&mtl, HEADER + sent * 37 % 8900, false);
        next->on_end = send_next;
        sent++;
        CHECK(mtl_isend(next, mtl.world, (int)(sent % 1000), sent - 1, sent % 7 == 0) == OMPI_SUCCESS);
    }
    if (depth < 10)
        host_progress();
}

static void receive_next(struct mtl *m, struct request *request)
{
    uint64_t number = request_check(request);

    CHECK(number < limit && arrived[number]++ == 0);
    received++;
    request_free(request);
    /* As many receives are posted as messages will come. */
    if (received + 15 < limit)
        post_receive();
    send_next(m, NULL);
    if (depth < 10)
        host_progress();
}

static void callbacks_call(void)
{
    limit = is_slow ? 500 : 5000;
    mtl_begin(&mtl, "hawser", false);
    for (int i = 0; i < 16; i++)
        post_receive();
    for (int i = 0; i < 8; i++)
        send_next(&mtl, NULL);
    while (received < limit || requests_ended < requests_started) {
        host_progress();
        if (requests_ended < requests_started && sent < limit && received == sent)
            send_next(&mtl, NULL);
    }
    CHECK(sent == limit && received == limit);
    mtl_end(&mtl);
}

/* Probes that find and that do not, matched ones, without a status; messages received in another order. */
static void probes(void)
{
    enum { COUNT = 40 };
    struct request *out[COUNT];
    ompi_message_t *message[COUNT];
    ompi_status_public_t status;
    int flag;

    mtl_begin(&mtl, "hawser", false);
    flag = 7;
    CHECK(mtl.module->mtl_iprobe(mtl.module, mtl.world, other, 5, &flag, &status) == OMPI_SUCCESS && flag == 0);
    message[0] = NULL;
    flag = 7;
    CHECK(mtl.module->mtl_improbe(mtl.module, mtl.world, MPI_ANY_SOURCE, MPI_ANY_TAG, &flag, &message[0],
                                  NULL) == OMPI_SUCCESS &&
          flag == 0 && message[0] == &ompi_message_null.message);
    fence();
    for (int i = 0; i < COUNT; i++) {
        out[i] = request_new(&mtl, HEADER + i * 500, false);
        CHECK(mtl_isend(out[i], mtl.world, i, i, i % 4 == 3) == OMPI_SUCCESS);
    }
    for (int i = 0; i < COUNT; i++) {
        bool without = i % 3 == 0;
        step("probes");
        do
            CHECK(mtl.module->mtl_iprobe(mtl.module, mtl.world, MPI_ANY_SOURCE, i, &flag,
                                         without ? NULL : &status) == OMPI_SUCCESS);
        while (!flag);
        CHECK(without || (status.MPI_SOURCE == other && status.MPI_TAG == i &&
                          status._ucount == HEADER + (size_t)i * 500));
        do
            CHECK(mtl.module->mtl_improbe(mtl.module, mtl.world, other, i, &flag, &message[i],
                                          without ? NULL : &status) == OMPI_SUCCESS);
        while (!flag);
        CHECK(message[i] != NULL && message[i] != &ompi_message_null.message);
        CHECK(message[i]->peer == other && message[i]->count == HEADER + (size_t)i * 500);
        CHECK(mtl.module->mtl_iprobe(mtl.module, mtl.world, other, i, &flag, NULL) == OMPI_SUCCESS && !flag,
              "a claimed message is seen again");
    }
    for (int i = COUNT - 1; i >= 0; i--) {
        struct request *in = request_new(&mtl, HEADER + i * 500, true);
        requests_started++;
        CHECK(mtl.module->mtl_imrecv(mtl.module, &in->convertor, &message[i], in->head) == OMPI_SUCCESS);
        CHECK(message[i] == &ompi_message_null.message);
        request_wait(in);
        CHECK(request_check(in) == (uint64_t)i);
        request_free(in);
    }
    for (int i = 0; i < COUNT; i++) {
        request_wait(out[i]);
        request_free(out[i]);
    }
    mtl_end(&mtl);
}

/* No message at all is handed to imrecv: it refuses, and what follows is right. */
static void messages_of_nothing(void)
{
    ompi_message_t *message, *again;
    struct request *in, *out;
    int flag = 0;

    mtl_begin(&mtl, "hawser", false);
    in = request_new(&mtl, 100, true);
    message = NULL;
    CHECK(mtl.module->mtl_imrecv(mtl.module, &in->convertor, &message, in->head) < 0);
    for (int i = 0; i < 3; i++) {
        message = &ompi_message_null.message;
        CHECK(mtl.module->mtl_imrecv(mtl.module, &in->convertor, &message, in->head) < 0);
    }
    CHECK(in->ended == 0);
    out = request_new(&mtl, 100, false);
    CHECK(mtl_isend(out, mtl.world, 3, 9, false) == OMPI_SUCCESS);
    while (!flag)
        CHECK(mtl.module->mtl_improbe(mtl.module, mtl.world, other, 3, &flag, &message, NULL) == OMPI_SUCCESS);
    CHECK(message != &ompi_message_null.message);
    again = message;
    requests_started++;
    CHECK(mtl.module->mtl_imrecv(mtl.module, &in->convertor, &again, in->head) == OMPI_SUCCESS);
    request_wait(in);
    CHECK(request_check(in) == 9);
    request_wait(out);
    request_free(in);
    request_free(out);
    mtl_end(&mtl);
}

/* Receives that are cancelled before, during and after; sends, which are not. */
static void cancels(void)
{
    enum { COUNT = 60 };
    struct request *in[COUNT], *out;

    mtl_begin(&mtl, "hawser", false);
    for (int i = 0; i < COUNT; i++) {
        in[i] = request_new(&mtl, 1000, true);
        CHECK(mtl_irecv(in[i], mtl.world, other, i % 5) == OMPI_SUCCESS);
    }
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < COUNT; i += 2)
            CHECK(mtl.module->mtl_cancel(mtl.module, in[i]->head, 0) == OMPI_SUCCESS);
    for (int i = 0; i < COUNT; i += 2) {
        request_wait(in[i]);
        CHECK(in[i]->pml.req_ompi.req_status._cancelled == 1);
        /* After its end. */
        CHECK(mtl.module->mtl_cancel(mtl.module, in[i]->head, 0) == OMPI_SUCCESS);
        request_free(in[i]);
    }
    fence();
    for (int i = 1; i < COUNT; i += 2) {
        out = request_new(&mtl, 900, false);
        CHECK(mtl_isend(out, mtl.world, i % 5, i, i % 3 == 0) == OMPI_SUCCESS);
        CHECK(mtl.module->mtl_cancel(mtl.module, out->head, 0) == OMPI_SUCCESS);
        request_wait(out);
        CHECK(out->pml.req_ompi.req_status._cancelled == 0);
        request_free(out);
    }
    for (int i = 1; i < COUNT; i += 2) {
        request_wait(in[i]);
        CHECK(request_check(in[i]) == (uint64_t)i, "in order");
        CHECK(mtl.module->mtl_cancel(mtl.module, in[i]->head, 0) == OMPI_SUCCESS);
        CHECK(in[i]->ended == 1);
        request_free(in[i]);
    }
    mtl_end(&mtl);
}

/* Buffers that are too short: an error each, nothing is written behind them, the others are right. */
static void truncated(void)
{
    static const size_t shorter[] = {0, 1, 30, 4000, 60000};

    mtl_begin(&mtl, "hawser", false);
    for (int late = 0; late < 2; late++) {
        for (int i = 0; i < 25; i++) {
            size_t size = 100 + (size_t)i * i * 200;
            size_t room = i % 5 < 4 ? shorter[i % 5] : size;
            struct request *in = request_new(&mtl, room < size ? room : size, true);
            struct request *out = request_new(&mtl, size, false);
            const ompi_status_public_t *status = &in->pml.req_ompi.req_status;

            if (!late)
                CHECK(mtl_irecv(in, mtl.world, other, i) == OMPI_SUCCESS);
            fence();
            CHECK(mtl_isend(out, mtl.world, i, i, i % 2) == OMPI_SUCCESS);
            if (late) {
                fence();
                CHECK(mtl_irecv(in, mtl.world, MPI_ANY_SOURCE, i) == OMPI_SUCCESS);
            }
            request_wait(in);
            request_wait(out);
            CHECK(status->MPI_TAG == i && status->MPI_SOURCE == other);
            if (in->size < size)
                CHECK(status->MPI_ERROR == MPI_ERR_TRUNCATE, "%d", status->MPI_ERROR);
            else
                CHECK(request_check(in) == (uint64_t)i);
            request_free(in);
            request_free(out);
        }
    }
    mtl_end(&mtl);
}

/* Data in pieces; convertors that fail or call back. */
static int turns;

static int fail_sometimes(opal_convertor_t *convertor)
{
    (void)convertor;
    return turns++ % 3 == 1 ? OMPI_ERROR : 0;
}

static int call_back(opal_convertor_t *convertor)
{
    (void)convertor;
    if (depth < 5)
        host_progress();
    return 0;
}

static void pieces(void)
{
    mtl_begin(&mtl, "hawser", false);
    for (int i = 0; i < 60; i++) {
        size_t size = 100 + (size_t)i * 300;
        struct request *in = request_new(&mtl, size * 3, true), *out = request_new(&mtl, size * 2, false);
        const ompi_status_public_t *status = &in->pml.req_ompi.req_status;
        mca_mtl_base_module_t *module = mtl.module;
        int result;

        for (size_t at = 0; at < size; at++)
            out->bytes[at * 2] = (unsigned char)(at * 13 + i);
        host_strided(&in->convertor, &in->type, in->bytes, size, 1, 3);
        host_strided(&out->convertor, &out->type, out->bytes, size, 1, 2);
        host_on_convert = i >= 30 ? call_back : NULL;
        CHECK(mtl_irecv(in, mtl.world, other, i) == OMPI_SUCCESS);
        requests_started++;
        /* It cannot be packed: refused, and the same request is used again. */
        host_on_convert = i >= 40 && i < 50 ? fail_sometimes : host_on_convert;
        while ((result = module->mtl_isend(module, mtl.world, other, i, &out->convertor,
                                           i % 2 ? MCA_PML_BASE_SEND_SYNCHRONOUS : MCA_PML_BASE_SEND_STANDARD,
                                           false, out->head)) < 0)
            CHECK(host_on_convert == fail_sometimes && out->ended == 0);
        host_on_convert = i >= 30 ? call_back : NULL;
        request_wait(in);
        request_wait(out);
        CHECK(status->MPI_ERROR == MPI_SUCCESS && status->_ucount == size);
        for (size_t at = 0; at < size; at++) {
            CHECK(in->bytes[at * 3] == (unsigned char)(at * 13 + i));
            CHECK(at == 0 || (in->bytes[at * 3 - 1] == 0 && in->bytes[at * 3 - 2] == 0));
        }
        request_free(in);
        request_free(out);
    }
    /* What arrives cannot be unpacked: an error, once. */
    for (int i = 0; i < 9; i++) {
        struct request *in = request_new(&mtl, 3000, true), *out = request_new(&mtl, 1000, false);
        host_strided(&in->convertor, &in->type, in->bytes, 1000, 1, 3);
        turns = 1;
        host_on_convert = fail_sometimes;
        CHECK(mtl_irecv(in, mtl.world, other, i) == OMPI_SUCCESS);
        CHECK(mtl_isend(out, mtl.world, i, i, false) == OMPI_SUCCESS);
        request_wait(in);
        request_wait(out);
        host_on_convert = NULL;
        CHECK(in->pml.req_ompi.req_status.MPI_ERROR != MPI_SUCCESS);
        request_free(in);
        request_free(out);
        fence();
    }
    mtl_end(&mtl);
}

/* Communicators that come and go, twice; groups of names instead of processes; peers given up and met. */
static void communicators(void)
{
    mtl_begin(&mtl, "hawser", false);
    for (uint32_t id = 1; id < 40; id++) {
        ompi_communicator_t *comm = mtl_communicator(id % 13 + 1);
        struct request *in = request_new(&mtl, 2000, true), *out = request_new(&mtl, 1000 + id, false);
        uint64_t sentinel = (uint64_t)other << 32 | (job & 0xffff0000u) | (job & 0x7fff) << 1 | 1;

        CHECK(mtl.module->mtl_add_comm(mtl.module, comm) == OMPI_SUCCESS);
        if (id % 2)
            comm->c_remote_group->grp_proc_pointers[other] = (ompi_proc_t *)(uintptr_t)sentinel;
        if (id % 3 == 0) {
            CHECK(mtl.module->mtl_add_procs(mtl.module, RANKS, host_proc) == OMPI_SUCCESS);
            CHECK(mtl.module->mtl_add_procs(mtl.module, 0, NULL) == OMPI_SUCCESS);
        }
        CHECK(mtl_irecv(in, comm, other, 7) == OMPI_SUCCESS);
        CHECK(mtl_isend(out, comm, 7, id, id % 2) == OMPI_SUCCESS);
        request_wait(in);
        request_wait(out);
        CHECK(request_check(in) == id);
        CHECK(comm->c_remote_group->grp_proc_pointers[other] == host_proc[other]);
        CHECK(mtl.module->mtl_del_comm(mtl.module, comm) == OMPI_SUCCESS);
        if (id % 5 == 0)
            CHECK(mtl.module->mtl_del_comm(mtl.module, comm) == OMPI_SUCCESS);
        mtl_free_communicator(comm);
        request_free(in);
        request_free(out);
        fence();
    }
    mtl_end(&mtl);
}

/* A message says that it is from a rank that the communicator does not have: it is received, and not answered. */
static void forged_source(void)
{
    static const int ranks[] = {RANKS, 200000};
    struct request *out[2];

    mtl_begin(&mtl, "hawser", false);
    for (int i = 0; i < 2; i++) {
        if (self == 0) {
            out[i] = request_new(&mtl, 100, false);
            mtl.world->c_my_rank = ranks[i];
            /* Never answered, so it never ends. */
            CHECK(mtl_isend(out[i], mtl.world, 5, i, true) == OMPI_SUCCESS);
            mtl.world->c_my_rank = self;
        } else {
            struct request *in = request_new(&mtl, 100, true);
            unsigned told_before = host_help + host_lines;
            CHECK(mtl_irecv(in, mtl.world, MPI_ANY_SOURCE, 5) == OMPI_SUCCESS);
            request_wait(in);
            CHECK(in->pml.req_ompi.req_status.MPI_SOURCE == ranks[i]);
            CHECK(host_help + host_lines > told_before, "the user hears of it");
            request_free(in);
        }
        fence();
    }
    mtl_finalize(&mtl);
    for (int i = 0; self == 0 && i < 2; i++) {
        CHECK(out[i]->ended == 0, "answered by a rank that is not there");
        request_free(out[i]);
    }
}

const struct test mtl_message_tests[] = {
    {"mtl lengths", lengths, RETURNS},
    {"mtl callbacks call", callbacks_call, RETURNS},
    {"mtl probes", probes, RETURNS},
    {"mtl messages of nothing", messages_of_nothing, RETURNS},
    {"mtl cancels", cancels, RETURNS},
    {"mtl truncated", truncated, RETURNS},
    {"mtl pieces", pieces, RETURNS},
    {"mtl communicators", communicators, RETURNS},
    {"mtl forged source", forged_source, RETURNS},
    {0},
};
