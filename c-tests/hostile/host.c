/* What both versions of the host have alike: objects, parameters, output, progress. */
#include "host.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opal/mca/base/mca_base_pvar.h"
#include "opal/mca/base/mca_base_var.h"
#include "opal/mca/base/mca_base_var_enum.h"
#include "opal/mca/memory/base/base.h"
#include "opal/memoryhooks/memory.h"
#include "opal/runtime/opal.h"
#include "opal/runtime/opal_params.h"
#include "opal/runtime/opal_progress.h"
#include "opal/util/output.h"
#include "opal/util/show_help.h"

const char *host_library;
static void *library;
ompi_proc_t *host_proc[RANKS];
_Atomic unsigned host_help, host_lines;
char host_topic[64];
_Atomic int host_values;
enum host_modex host_modex;
static const char *const *wanted;

/* Classes: only their sizes are looked at. */
#define CLASS(type) \
    opal_class_t type##_class = {.cls_name = #type, .cls_initialized = 1, .cls_sizeof = sizeof(type)}
CLASS(opal_object_t);
CLASS(opal_convertor_t);
CLASS(opal_datatype_t);
CLASS(ompi_communicator_t);
CLASS(ompi_group_t);
CLASS(ompi_proc_t);
CLASS(ompi_request_t);
CLASS(ompi_message_t);

ompi_predefined_message_t ompi_message_null;
mca_btl_active_message_callback_t mca_btl_base_active_message_trigger[MCA_BTL_TAG_MAX];
opal_list_t mca_btl_base_modules_initialized = {
    .opal_list_sentinel = {.opal_list_next = &mca_btl_base_modules_initialized.opal_list_sentinel,
                           .opal_list_prev = &mca_btl_base_modules_initialized.opal_list_sentinel}};
mca_base_var_enum_flag_t *mca_btl_base_flag_enum;
bool opal_built_with_cuda_support;

/* Parameters. */

enum { VARIABLES = 512 };

static struct variable {
    char *name;
    void *storage;
    char *text;
    mca_base_var_type_t type;
} variables[VARIABLES];
static int variable_count;

static char *join(const char *framework, const char *component, const char *variable)
{
    char *name = NULL;
    const char *parts[] = {framework, component, variable};
    size_t room = 1;

    for (int i = 0; i < 3; i++)
        room += parts[i] == NULL ? 0 : strlen(parts[i]) + 1;
    name = calloc(1, room);
    for (int i = 0; i < 3; i++) {
        if (parts[i] == NULL)
            continue;
        if (*name != '\0')
            strcat(name, "_");
        strcat(name, parts[i]);
    }
    return name;
}

static int find_variable(const char *name)
{
    for (int index = 0; index < variable_count; index++)
        if (strcmp(variables[index].name, name) == 0)
            return index;
    return OPAL_ERR_NOT_FOUND;
}

static const char *setting(const char *name)
{
    size_t length = strlen(name);

    for (int i = 0; wanted != NULL && wanted[i] != NULL; i++)
        if (strncmp(wanted[i], name, length) == 0 && wanted[i][length] == '=')
            return wanted[i] + length + 1;
    return NULL;
}

/* As the real one: a text becomes the host's own copy, a wish of the user's replaces the default. */
static void assign(struct variable *variable)
{
    const char *wish = setting(variable->name);

    switch (variable->type) {
    case MCA_BASE_VAR_TYPE_STRING: {
        char **text = variable->storage;
        const char *source = wish != NULL ? wish : *text;
        char *copy = source == NULL ? NULL : strdup(source);
        free(variable->text);
        variable->text = *text = copy;
        break;
    }
    case MCA_BASE_VAR_TYPE_BOOL:
        if (wish != NULL)
            *(bool *)variable->storage = atoi(wish) != 0;
        break;
    case MCA_BASE_VAR_TYPE_SIZE_T:
        if (wish != NULL)
            *(size_t *)variable->storage = strtoul(wish, NULL, 10);
        break;
    default:
        if (wish != NULL)
            *(int *)variable->storage = atoi(wish);
    }
}

static int add_variable(char *name, mca_base_var_type_t type, void *storage)
{
    int index = find_variable(name);

    if (index < 0) {
        CHECK(variable_count < VARIABLES);
        index = variable_count++;
        variables[index] = (struct variable){.name = name};
    } else {
        free(name);
    }
    variables[index].type = type;
    variables[index].storage = storage;
    assign(&variables[index]);
    return index;
}

int mca_base_var_register(const char *project, const char *framework, const char *component,
                          const char *variable, const char *description, mca_base_var_type_t type,
                          mca_base_var_enum_t *enumerator, int bind, mca_base_var_flag_t flags,
                          mca_base_var_info_lvl_t level, mca_base_var_scope_t scope, void *storage)
{
    (void)project, (void)enumerator, (void)bind, (void)flags, (void)level, (void)scope;
    CHECK(description != NULL && storage != NULL);
    return add_variable(join(framework, component, variable), type, storage);
}

int mca_base_var_find(const char *project, const char *framework, const char *component,
                      const char *variable)
{
    char *name = join(framework, component, variable);
    int index = find_variable(name);

    (void)project;
    free(name);
    return index;
}

int mca_base_var_get_value(int index, const void *value, mca_base_var_source_t *source, const char **file)
{
    if (index < 0 || index >= variable_count)
        return OPAL_ERR_BAD_PARAM;
    CHECK(source == NULL && file == NULL);
    *(const void **)(uintptr_t)value = variables[index].storage;
    return OPAL_SUCCESS;
}

int mca_base_var_register_synonym(int of, const char *project, const char *framework, const char *component,
                                  const char *variable, mca_base_var_syn_flag_t flags)
{
    const char *wish;
    char *name = join(framework, component, variable);

    (void)project, (void)flags;
    CHECK(of >= 0 && of < variable_count);
    wish = setting(name);
    if (wish != NULL && variables[of].type == MCA_BASE_VAR_TYPE_STRING) {
        free(variables[of].text);
        *(char **)variables[of].storage = variables[of].text = strdup(wish);
    }
    if (find_variable(name) >= 0) {
        free(name);
        return of;
    }
    CHECK(variable_count < VARIABLES);
    variables[variable_count] = variables[of];
    variables[variable_count].name = name;
    variables[variable_count].text = NULL;
    return variable_count++;
}

/* A list of components to be used, as `--mca btl` gives it. */
static char *selection[2];

static void select_components(const char *framework, char **list)
{
    *list = NULL;
    add_variable(strdup(framework), MCA_BASE_VAR_TYPE_STRING, list);
}

enum { ENUMERATIONS = 512 };
static void *enumerations[ENUMERATIONS];
static int enumeration_count;

int mca_base_var_enum_create(const char *name, const mca_base_var_enum_value_t values[],
                             mca_base_var_enum_t **enumeration)
{
    int count = 0;

    CHECK(name != NULL && enumeration_count < ENUMERATIONS);
    while (values[count].string != NULL)
        count++;
    remark("names of %s: %d", name, count);
    *enumeration = enumerations[enumeration_count++] = calloc(1, sizeof **enumeration);
    return OPAL_SUCCESS;
}

/* Performance variables. */

enum { COUNTERS = 256 };
static mca_base_pvar_t counters[COUNTERS];
static int counter_count;

int mca_base_pvar_register(const char *project, const char *framework, const char *component,
                           const char *name, const char *description, mca_base_var_info_lvl_t level,
                           int class, mca_base_var_type_t type, mca_base_var_enum_t *enumerator, int bind,
                           mca_base_pvar_flag_t flags, mca_base_get_value_fn_t get_value,
                           mca_base_set_value_fn_t set_value, mca_base_notify_fn_t notify, void *context)
{
    char *full = join(framework, component, name);
    int index = 0;

    (void)project, (void)level, (void)class, (void)enumerator, (void)bind, (void)flags;
    CHECK(description != NULL && set_value == NULL);
    while (index < counter_count && strcmp(counters[index].name, full) != 0)
        index++;
    CHECK(index < COUNTERS);
    if (index == counter_count)
        counter_count++;
    else
        free(counters[index].name);
    counters[index].name = full;
    counters[index].type = type;
    counters[index].get_value = get_value;
    counters[index].notify = notify;
    counters[index].ctx = context;
    return index;
}

void *host_find_counter(const char *name)
{
    for (int index = 0; index < counter_count; index++)
        if (strcmp(counters[index].name, name) == 0)
            return &counters[index];
    return NULL;
}

int host_read_counter(void *found, unsigned long long *values, int room)
{
    mca_base_pvar_t *counter = found;
    int count = 1;

    if (counter->get_value == NULL) {
        *values = *(unsigned long long *)counter->ctx;
        return 1;
    }
    if (counter->notify != NULL)
        CHECK(counter->notify(counter, MCA_BASE_PVAR_HANDLE_BIND, NULL, &count) == OPAL_SUCCESS);
    CHECK(count <= room);
    memset(values, 0, sizeof *values * room);
    CHECK(counter->get_value(counter, values, NULL) == OPAL_SUCCESS);
    return count;
}

int host_counter(const char *name, unsigned long long *values, int room)
{
    void *found = host_find_counter(name);

    return found == NULL ? -1 : host_read_counter(found, values, room);
}

/* Output. */

static int say_help(const char *file, const char *topic, int framed, ...)
{
    va_list rest;

    va_start(rest, framed);
    host_help++;
    snprintf(host_topic, sizeof host_topic, "%s", topic);
    remark("%s, %s: %s", file, topic, va_arg(rest, const char *));
    va_end(rest);
    return OPAL_SUCCESS;
}

opal_show_help_fn_t opal_show_help = say_help;

char *opal_show_help_string(const char *file, const char *topic, int framed, ...)
{
    va_list rest;
    const char *line;

    va_start(rest, framed);
    line = va_arg(rest, const char *);
    va_end(rest);
    say_help(file, topic, framed, line);
    return strdup("");
}

int opal_show_help_add_dir(const char *folder)
{
    CHECK(folder != NULL);
    return OPAL_SUCCESS;
}

void opal_output(int stream, const char *format, ...)
{
    char line[1024];
    va_list rest;

    va_start(rest, format);
    vsnprintf(line, sizeof line, format, rest);
    va_end(rest);
    host_lines++;
    remark("output %d: %s", stream, line);
}

/* What tells when memory goes: this host cannot. */

int opal_leave_pinned = -1;
bool opal_leave_pinned_pipeline;
mca_base_framework_t opal_memory_base_framework;
static int memory_users;

int mca_base_framework_open(mca_base_framework_t *framework, mca_base_open_flag_t flags)
{
    CHECK(framework == &opal_memory_base_framework && flags == 0);
    memory_users++;
    return OPAL_SUCCESS;
}

int mca_base_framework_close(mca_base_framework_t *framework)
{
    CHECK(framework == &opal_memory_base_framework && memory_users > 0);
    memory_users--;
    return OPAL_SUCCESS;
}

int opal_mem_hooks_support_level(void) { return 0; }

int opal_mem_hooks_register_release(opal_mem_hooks_callback_fn_t *function, void *data)
{
    CHECK(function != NULL && data == NULL);
    return OPAL_ERR_NOT_SUPPORTED;
}

int opal_mem_hooks_unregister_release(opal_mem_hooks_callback_fn_t *function)
{
    CHECK(function != NULL);
    return OPAL_ERR_NOT_FOUND;
}

/* Progress. */

enum { FUNCTIONS = 8 };
static _Atomic(opal_progress_callback_t) functions[FUNCTIONS];

int opal_progress_register(opal_progress_callback_t function)
{
    for (int index = 0; index < FUNCTIONS; index++) {
        opal_progress_callback_t empty = NULL;
        if (atomic_compare_exchange_strong(&functions[index], &empty, function))
            return OPAL_SUCCESS;
    }
    return OPAL_ERR_OUT_OF_RESOURCE;
}

int opal_progress_unregister(opal_progress_callback_t function)
{
    for (int index = 0; index < FUNCTIONS; index++) {
        opal_progress_callback_t found = function;
        if (atomic_compare_exchange_strong(&functions[index], &found, NULL))
            return OPAL_SUCCESS;
    }
    return OPAL_ERR_NOT_FOUND;
}

void host_progress(void)
{
    static _Thread_local unsigned calls;

    for (int index = 0; index < FUNCTIONS; index++) {
        opal_progress_callback_t function = atomic_load(&functions[index]);
        if (function != NULL)
            function();
    }
    /* Who only waits gives its turn away: under valgrind one thread runs at a time, and on a busy machine the
     * one that is waited for may have none of the cores. Otherwise rarely, so that threads do meet. */
    if (is_slow || ++calls % 16 == 0)
        sched_yield();
}

int host_progress_functions(void)
{
    int count = 0;

    for (int index = 0; index < FUNCTIONS; index++)
        count += atomic_load(&functions[index]) != NULL;
    return count;
}

/* Processes. */

opal_proc_t *opal_proc_local_get(void) { return &host_proc[self]->super; }

opal_proc_t *ompi_proc_for_name(const opal_process_name_t name)
{
    return name.jobid == job && name.vpid < RANKS ? &host_proc[name.vpid]->super : NULL;
}

ompi_proc_t *ompi_proc_find(const ompi_process_name_t *name) { return (ompi_proc_t *)ompi_proc_for_name(*name); }

int ompi_proc_world_size(void) { return RANKS; }

opal_proc_t *(*opal_proc_for_name)(const opal_process_name_t name) = ompi_proc_for_name;

int opal_bitmap_set_bit(opal_bitmap_t *bitmap, int bit)
{
    CHECK(bit >= 0 && bit < bitmap->array_size * 64, "bit %d", bit);
    bitmap->bitmap[bit / 64] |= (uint64_t)1 << bit % 64;
    return OPAL_SUCCESS;
}

/* Life. */

void host_begin(const char *const parameters[])
{
    const char *(*refusal)(void);

    wanted = parameters;
    for (int rank = 0; rank < RANKS; rank++) {
        host_proc[rank] = calloc(1, sizeof *host_proc[rank]);
        host_proc[rank]->super.super.super.obj_class = &ompi_proc_t_class;
        host_proc[rank]->super.super.super.obj_reference_count = 1;
        host_proc[rank]->super.proc_name.jobid = job;
        host_proc[rank]->super.proc_name.vpid = (uint32_t)rank;
    }
    select_components("btl", &selection[0]);
    select_components("mtl", &selection[1]);
    version_begin();
    step("loads the library");
    library = dlopen(host_library, RTLD_LAZY | RTLD_GLOBAL);
    CHECK(library != NULL, "%s", dlerror());
    *(void **)&refusal = dlsym(library, "hawser_refusal");
    CHECK(refusal != NULL);
    CHECK(refusal() == NULL || *refusal() == '\0', "%s", refusal());
}

void *host_component(const char *name)
{
    void *component = dlsym(library, name);

    CHECK(component != NULL, "%s", dlerror());
    return component;
}

void host_end(void)
{
    CHECK(host_values == 0, "%d values of the modex were not given back", host_values);
    CHECK(host_progress_functions() == 0);
    for (int index = 0; index < variable_count; index++) {
        free(variables[index].name);
        free(variables[index].text);
    }
    for (int index = 0; index < counter_count; index++)
        free(counters[index].name);
    for (int index = 0; index < enumeration_count; index++)
        free(enumerations[index]);
    for (int rank = 0; rank < RANKS && host_proc[rank] != NULL; rank++) {
        CHECK(host_proc[rank]->super.super.super.obj_reference_count >= 1);
        free(host_proc[rank]);
    }
}
