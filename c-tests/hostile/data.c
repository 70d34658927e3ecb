/* The host's convertors: a buffer in one piece, or in pieces of one length at one distance. The real ones
 * know every datatype; a transport can only tell those that must be packed from those that need not be. */
#include "host.h"

#include <string.h>

int (*host_on_convert)(opal_convertor_t *convertor);

static const opal_datatype_t one_byte = {
    .flags = OPAL_DATATYPE_FLAG_PREDEFINED | OPAL_DATATYPE_FLAG_COMMITTED | OPAL_DATATYPE_FLAG_CONTIGUOUS |
             OPAL_DATATYPE_FLAG_NO_GAPS,
    .size = 1,
    .true_ub = 1,
    .ub = 1,
};

void host_contiguous(opal_convertor_t *convertor, const void *bytes, size_t size)
{
    memset(convertor, 0, sizeof *convertor);
    convertor->flags = CONVERTOR_HOMOGENEOUS | CONVERTOR_NO_OP | one_byte.flags;
    convertor->local_size = convertor->remote_size = size;
    convertor->pDesc = &one_byte;
    convertor->count = size;
    convertor->pBaseBuf = (unsigned char *)(uintptr_t)bytes;
}

void host_strided(opal_convertor_t *convertor, opal_datatype_t *type, const void *bytes, size_t pieces,
                  size_t block, size_t stride)
{
    memset(type, 0, sizeof *type);
    type->flags = OPAL_DATATYPE_FLAG_COMMITTED | OPAL_DATATYPE_FLAG_CONTIGUOUS;
    type->size = block;
    type->true_ub = (ptrdiff_t)block;
    type->ub = (ptrdiff_t)stride;
    memset(convertor, 0, sizeof *convertor);
    convertor->flags = CONVERTOR_HOMOGENEOUS | type->flags;
    convertor->local_size = convertor->remote_size = pieces * block;
    convertor->pDesc = type;
    convertor->count = pieces;
    convertor->pBaseBuf = (unsigned char *)(uintptr_t)bytes;
}

/* Where byte `at` of the packed data lies, and how many follow it in one piece. */
static unsigned char *place(const opal_convertor_t *convertor, size_t at, size_t *run)
{
    const opal_datatype_t *type = convertor->pDesc;
    size_t within = at % type->size;

    if (type->flags & OPAL_DATATYPE_FLAG_NO_GAPS) {
        *run = convertor->local_size - at;
        return convertor->pBaseBuf + at;
    }
    *run = type->size - within;
    return convertor->pBaseBuf + at / type->size * (size_t)type->ub + within;
}

static int32_t convert(opal_convertor_t *convertor, struct iovec *vector, uint32_t *count, size_t *size,
                       bool packs)
{
    size_t left = convertor->local_size - convertor->bConverted, done = 0;

    if (host_on_convert != NULL) {
        int result = host_on_convert(convertor);
        if (result != 0)
            return result;
    }
    CHECK(*count == 1 && (packs || vector->iov_base != NULL));
    if (left > vector->iov_len)
        left = vector->iov_len;
    if (left > *size)
        left = *size;
    if (vector->iov_base == NULL && left > 0) {
        size_t run;
        vector->iov_base = place(convertor, convertor->bConverted, &run);
        CHECK(run >= left, "data in pieces cannot be sent from where it lies");
        done = left;
        convertor->bConverted += left;
    }
    while (done < left) {
        size_t run;
        unsigned char *there = place(convertor, convertor->bConverted, &run);
        unsigned char *here = (unsigned char *)vector->iov_base + done;

        if (run > left - done)
            run = left - done;
        memcpy(packs ? here : there, packs ? there : here, run);
        done += run;
        convertor->bConverted += run;
    }
    vector->iov_len = *size = done;
    return convertor->bConverted == convertor->local_size;
}

int32_t opal_convertor_pack(opal_convertor_t *convertor, struct iovec *vector, uint32_t *count, size_t *size)
{
    return convert(convertor, vector, count, size, true);
}

int32_t opal_convertor_unpack(opal_convertor_t *convertor, struct iovec *vector, uint32_t *count,
                              size_t *size)
{
    return convert(convertor, vector, count, size, false);
}
