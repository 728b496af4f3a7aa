/* SPDX-License-Identifier: Apache-2.0 */
/* Kernel -> LLVM module -> relocatable object, or text. */
#include "base/log.h"
#include "codegen/llvm/builder.h"
#include "codegen/render/render.h"

#include <llvm-c/Analysis.h>
#include <llvm-c/Support.h>
#include <llvm-c/Target.h>
#include <llvm-c/TargetMachine.h>
#include <llvm-c/Transforms/PassBuilder.h>
#include <link.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

/* Loop strength reduction is a third of the compile time and only multiplies induction variables here, where addresses
 * are base + index already. The machine scheduler puts the copies of an unrolled body one behind the other again, which
 * costs up to half of the speed of long bodies. LLVM has no switches for them but these, which hold for the process's
 * copy of the library. */
static void initialise(void) {
    const char *const options[] = {"onnxfuse", "-disable-lsr", "-enable-misched=false"};
    LLVMParseCommandLineOptions(sizeof options / sizeof *options, options, NULL);
#define INITIALISE(processor)                                                                                          \
    LLVMInitialize##processor##TargetInfo();                                                                           \
    LLVMInitialize##processor##Target();                                                                               \
    LLVMInitialize##processor##TargetMC();                                                                             \
    LLVMInitialize##processor##AsmPrinter()
    INITIALISE(X86); /* not all that LLVM has: each takes memory */
    INITIALISE(AArch64);
#undef INITIALISE
    emit_trim(); /* the constructors of the whole library have run: much of it is never needed again */
}

static Status take_message(const char *what, char *message) {
    Status status = status_error(STATUS_FAULT, "%s: %s", what, message ? message : "unknown error");
    LLVMDisposeMessage(message);
    return status;
}

static Status make_machine(const Target *target, LLVMTargetMachineRef *out_machine) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, initialise);
    const char *triple = render_isa(target).x86 ? "x86_64-unknown-linux-gnu" : "aarch64-unknown-linux-gnu";
    LLVMTargetRef found;
    char *message = NULL;
    if (LLVMGetTargetFromTriple(triple, &found, &message)) return take_message("LLVM has no such target", message);
    *out_machine = LLVMCreateTargetMachine(found, triple, target->cpu, target->features ? target->features : "",
                                           LLVMCodeGenLevelDefault, LLVMRelocPIC, LLVMCodeModelSmall);
    return *out_machine ? NULL : status_error(STATUS_FAULT, "LLVM cannot compile for %s", target->cpu);
}

static void function_attributes(IrBuilder *b, LLVMValueRef function) {
    char width[16];
    snprintf(width, sizeof width, "%d", b->vector_bytes * 8);
    const char *texts[][2] = {{"prefer-vector-width", width}, {"min-legal-vector-width", width}, {"no-builtins", ""}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        LLVMAttributeRef attribute = LLVMCreateStringAttribute(b->context, texts[i][0], (unsigned)strlen(texts[i][0]),
                                                               texts[i][1], (unsigned)strlen(texts[i][1]));
        LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, attribute);
    }
    unsigned kind = LLVMGetEnumAttributeKindForName("nounwind", 8);
    LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, LLVMCreateEnumAttribute(b->context, kind, 0));
    /* Else registers are put aside across cache lines: reading them back costs twice. */
    kind = LLVMGetEnumAttributeKindForName("alignstack", 10);
    LLVMAttributeRef align = LLVMCreateEnumAttribute(b->context, kind, (uint64_t)b->vector_bytes);
    LLVMAddAttributeAtIndex(function, LLVMAttributeFunctionIndex, align);
}

/* What the renderer leaves to be done: accumulators to registers, equal addresses once, what does not vary out of
 * loops. The rest of LLVM's pipeline finds nothing in such code and costs twice the time. */
static Status optimise(LLVMModuleRef module, LLVMTargetMachineRef machine) {
    LLVMPassBuilderOptionsRef options = LLVMCreatePassBuilderOptions();
    LLVMErrorRef error =
        LLVMRunPasses(module, "function(mem2reg,early-cse,simplifycfg,loop-mssa(licm),early-cse)", machine, options);
    LLVMDisposePassBuilderOptions(options);
    if (!error) return NULL;
    char *message = LLVMGetErrorMessage(error);
    Status status = status_error(STATUS_FAULT, "LLVM's optimiser: %s", message);
    LLVMDisposeErrorMessage(message);
    return status;
}

static Status verify(LLVMModuleRef module) {
    char *message = NULL;
    if (!log_verify()) return NULL;
    if (LLVMVerifyModule(module, LLVMReturnStatusAction, &message))
        return take_message("internal error: invalid LLVM IR", message);
    LLVMDisposeMessage(message);
    return NULL;
}

static void build(Render *r, LLVMTargetMachineRef machine) {
    IrBuilder *b = r->builder;
    LLVMTypeRef word = LLVMInt64TypeInContext(b->context), pointer = LLVMPointerTypeInContext(b->context, 0);
    LLVMTypeRef types[5] = {pointer, pointer, word, word, pointer};
    char *triple = LLVMGetTargetMachineTriple(machine);
    LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(machine);
    LLVMSetTarget(b->module, triple);
    LLVMSetModuleDataLayout(b->module, layout);
    LLVMDisposeMessage(triple);
    LLVMDisposeTargetData(layout);
    LLVMTypeRef type = LLVMFunctionType(LLVMVoidTypeInContext(b->context), types, 5, 0);
    b->function = LLVMAddFunction(b->module, KERNEL_SYMBOL, type);
    function_attributes(b, b->function);
    build_at(b, build_block_new(b, "entry"));
    render_analyse(r);
    render_kernel(r);
}

typedef enum Form { FORM_OBJECT, FORM_ASSEMBLY, FORM_IR } Form;

static Status write_module(LLVMModuleRef module, LLVMTargetMachineRef machine, Form form, char **out_data,
                           size_t *out_size) {
    if (form == FORM_IR) {
        char *text = LLVMPrintModuleToString(module);
        *out_data = strdup(text);
        *out_size = strlen(text);
        LLVMDisposeMessage(text);
        return *out_data ? NULL : status_out_of_memory();
    }
    LLVMMemoryBufferRef buffer = NULL;
    char *message = NULL;
    if (LLVMTargetMachineEmitToMemoryBuffer(machine, module, form == FORM_OBJECT ? LLVMObjectFile : LLVMAssemblyFile,
                                            &message, &buffer))
        return take_message("LLVM's code generator", message);
    size_t size = LLVMGetBufferSize(buffer);
    *out_data = malloc(size + 1);
    if (*out_data) {
        memcpy(*out_data, LLVMGetBufferStart(buffer), size);
        (*out_data)[size] = 0;
    }
    *out_size = size;
    LLVMDisposeMemoryBuffer(buffer);
    return *out_data ? NULL : status_out_of_memory();
}

static Status emit(const Kernel *kernel, const Target *target, Form form, char **out_data, size_t *out_size) {
    Arena *arena = arena_create(0);
    if (!arena) return status_out_of_memory();
    jmp_buf guard;
    LLVMTargetMachineRef volatile machine = NULL;
    IrBuilder *volatile b = NULL;
    Status status;
    if (setjmp(guard)) {
        status = status_out_of_memory();
    } else {
        arena_guard(arena, &guard);
        LLVMTargetMachineRef made = NULL;
        status = make_machine(target, &made);
        machine = made;
        if (!status) {
            b = ARENA_NEW(arena, IrBuilder);
            *b = (IrBuilder){.context = LLVMContextCreate(),
                             .vector_bytes = target->vector_bytes,
                             .attributes = function_attributes};
            b->module = LLVMModuleCreateWithNameInContext("kernel", b->context);
            b->builder = LLVMCreateBuilderInContext(b->context);
            Render r = {.kernel = kernel,
                        .arena = arena,
                        .isa = render_isa(target),
                        .cache_bytes = (int64_t)target->cache_bytes,
                        .builder = b};
            build(&r, made);
            status = verify(b->module);
            if (!status) status = optimise(b->module, made);
            if (!status) status = write_module(b->module, made, form, out_data, out_size);
        }
    }
    if (b && b->builder) LLVMDisposeBuilder(b->builder);
    if (b && b->module) LLVMDisposeModule(b->module);
    if (b) LLVMContextDispose(b->context);
    if (machine) LLVMDisposeTargetMachine(machine);
    arena_destroy(arena);
    return status;
}

Status emit_object(const Kernel *kernel, const Target *target, void **out_object, size_t *out_size) {
    char *data = NULL;
    TRY(emit(kernel, target, FORM_OBJECT, &data, out_size));
    *out_object = data;
    return NULL;
}

Status emit_listing(const Kernel *kernel, const Target *target, KernelListing what, char **out_text) {
    size_t size;
    return emit(kernel, target, what == LISTING_LLVM ? FORM_IR : FORM_ASSEMBLY, out_text, &size);
}

/* ---- memory ---- */

/* Segments that are not written hold what their file does, and nothing else. */
static void forget_segments(const struct dl_phdr_info *object) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        uintptr_t from = object->dlpi_addr + segment->p_vaddr, to = from + segment->p_memsz;
        if (segment->p_type == PT_LOAD && !(segment->p_flags & PF_W))
            madvise((void *)(from / page * page), to - from / page * page, MADV_DONTNEED);
    }
}

static int forget_object(struct dl_phdr_info *object, size_t size, void *code) {
    (void)size;
    bool found = false;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &object->dlpi_phdr[i];
        uintptr_t from = object->dlpi_addr + segment->p_vaddr;
        found |= segment->p_type == PT_LOAD && (uintptr_t)code >= from && (uintptr_t)code < from + segment->p_memsz;
    }
    if (found) forget_segments(object);
    return found;
}

void emit_trim(void) {
    dl_iterate_phdr(forget_object, (void *)(uintptr_t)LLVMContextCreate);
#ifdef __GLIBC__
    malloc_trim(0);
#endif
}
