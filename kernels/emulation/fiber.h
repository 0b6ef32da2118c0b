// Stacks and the switch between them: what lets one OS thread stand for all threads of a block.
//
// AddressSanitizer and ThreadSanitizer are told of each switch. A switch makes no happens-before edge: to
// ThreadSanitizer each fiber is a thread of its own, so that only the block's own synchronisation orders accesses.
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define KT_ASAN 1
#endif

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
#define KT_TSAN 1
// The emulation's own bookkeeping is shared by all fibers, and is no part of the kernel under test.
#define KT_QUIET __attribute__((no_sanitize("thread")))
#else
#define KT_QUIET
#endif

#ifdef KT_VALGRIND
#include <valgrind/valgrind.h>
#endif

#if !defined(__x86_64__) && !defined(KT_UCONTEXT)
#define KT_UCONTEXT 1
#endif
#ifdef KT_UCONTEXT
#include <ucontext.h>
#endif

namespace kt {

#if defined(KT_ASAN) || defined(KT_TSAN)
constexpr size_t STACK_BYTES = 256 << 10;
#else
constexpr size_t STACK_BYTES = 64 << 10;
#endif

// A place to come back to: the scheduler, or a thread of the block.
struct Context {
#ifdef KT_UCONTEXT
    ucontext_t saved;
#else
    void* stack_pointer = nullptr;
#endif
    const void* stack = nullptr;  // lowest address
    size_t stack_bytes = 0;
    void* fake_stack = nullptr;  // of AddressSanitizer
    void* tsan_fiber = nullptr;
};

// Where the last switch came from.
inline thread_local Context* switched_from = nullptr;

#ifndef KT_UCONTEXT
// Keeps what a call must keep (System V ABI), and changes stacks.
extern "C" void kt_switch(void** save, void* load);
asm(R"(
.text
.weak kt_switch
.type kt_switch,@function
kt_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp,(%rdi)
    movq %rsi,%rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size kt_switch,.-kt_switch
)");
#endif

// The first thing on a new stack, and the last part of each switch.
KT_QUIET inline void switched(void* fake_stack) {
#ifdef KT_ASAN
    // Also says where the other stack lies; the scheduler's is known from nowhere else.
    __sanitizer_finish_switch_fiber(fake_stack, &switched_from->stack, &switched_from->stack_bytes);
#else
    (void)fake_stack;
#endif
}

// Goes on at `to`, until somebody switches back; never, where `last`.
KT_QUIET inline void switch_context(Context* from, Context* to, bool last) {
    switched_from = from;
    (void)last;
#ifdef KT_ASAN
    __sanitizer_start_switch_fiber(last ? nullptr : &from->fake_stack, to->stack, to->stack_bytes);
#endif
#ifdef KT_TSAN
    __tsan_switch_to_fiber(to->tsan_fiber, 1 /* no happens-before edge */);
#endif
#ifdef KT_UCONTEXT
    swapcontext(&from->saved, &to->saved);
#else
    kt_switch(&from->stack_pointer, to->stack_pointer);
#endif
    switched(from->fake_stack);
}

// Makes a context that begins with `entry` on an empty stack. To ThreadSanitizer it is the thread `tsan_fiber`.
KT_QUIET inline void prepare_context(Context* c, unsigned char* stack, void* tsan_fiber, void (*entry)()) {
    c->stack = stack;
    c->stack_bytes = STACK_BYTES;
    c->fake_stack = nullptr;
    c->tsan_fiber = tsan_fiber;
#ifdef KT_ASAN
    __asan_unpoison_memory_region(stack, STACK_BYTES);
#endif
#ifdef KT_UCONTEXT
    getcontext(&c->saved);
    c->saved.uc_stack.ss_sp = stack;
    c->saved.uc_stack.ss_size = STACK_BYTES;
    c->saved.uc_link = nullptr;
    makecontext(&c->saved, entry, 0);
#else
    // Six registers, then the address that the switch returns to; there the stack is aligned as after a call.
    void** top = (void**)(stack + STACK_BYTES) - 2;
    top[0] = (void*)entry;
    for (int i = 1; i <= 6; i++) top[-i] = nullptr;
    c->stack_pointer = top - 6;
#endif
}

}  // namespace kt
