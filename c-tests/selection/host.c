/* A stand-in for Open MPI: the symbols by which hawser recognises a host, and nothing behind them.
 * Compiled twice, with -DPAL for libopen-pal and without for libmpi. symbols.h is one SYMBOL(name)
 * for each function and object that hawser looks up, SYMBOL_CLASS(name) for a class; the script takes them
 * from hawser's sources.
 * Whoever calls one of them ends the process: hawser must not call a host that is loading it.
 *
 * VERSION          the host's version text; without it there is no opal_version_string
 * OMPI_5           the class sizes of 5.0; without it those of 4.1
 * OTHER_SIZE=NAME  this class states another size, as it does in a debug build */
#include <stdlib.h>

#ifdef OMPI_5
#include "hawser_v5_0.h"
#define OURS(name) hawser_v5_0_##name
#else
#include "hawser_v4_1.h"
#define OURS(name) hawser_v4_1_##name
#endif

#ifdef PAL

#ifdef VERSION
const char opal_version_string[] = VERSION;
#endif

#else

enum { NONE, opal_object_t, opal_convertor_t, opal_datatype_t, ompi_communicator_t, ompi_group_t,
       ompi_proc_t, ompi_request_t, ompi_message_t };

#ifndef OTHER_SIZE
#define OTHER_SIZE NONE
#endif

#define CLASS(name, layout) \
    OURS(Class) name##_class = {.size = sizeof(OURS(layout)) + (name == OTHER_SIZE ? 16 : 0)}

CLASS(opal_object_t, Object);
CLASS(opal_convertor_t, Convertor);
CLASS(opal_datatype_t, Datatype);
CLASS(ompi_communicator_t, Communicator);
CLASS(ompi_group_t, Group);
CLASS(ompi_proc_t, Proc);
CLASS(ompi_request_t, Request);
CLASS(ompi_message_t, Message);

#define SYMBOL(name) void name(void) { abort(); }
/* Of these, the size is only looked at of streams and events of devices. */
#define SYMBOL_CLASS(name) OURS(Class) name = {.size = sizeof(OURS(AcceleratorObject))};
#include "symbols.h"

#endif
