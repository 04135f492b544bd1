// The threads of a block as fibers of one system thread.
#pragma once

#include "write_report.h"

namespace il {

extern "C" void il_switch(void **save, void *next);
#if defined(__x86_64__)
asm(R"(
    .text
    .globl il_switch
    .type il_switch,@function
il_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size il_switch,.-il_switch
)");
const size_t SAVED_WORDS = 6;
void *prepared(char *stack, size_t bytes, void (*entry)()) {
    void **top = (void **)((Address)(stack + bytes) & ~(Address)15);
    *--top = nullptr; // as if `entry` had been called
    *--top = (void *)entry;
    for (size_t i = 0; i < SAVED_WORDS; ++i) *--top = nullptr;
    return top;
}
#elif defined(__aarch64__)
asm(R"(
    .text
    .globl il_switch
    .type il_switch,%function
il_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .size il_switch,.-il_switch
)");
void *prepared(char *stack, size_t bytes, void (*entry)()) {
    char *top = (char *)((Address)(stack + bytes) & ~(Address)15) - 160;
    memset(top, 0, 160);
    *(void **)(top + 88) = (void *)entry;
    return top;
}
#else
#error "kernels run on x86-64 and arm64 only"
#endif

const int GUARD_INSTALL = 102; // MADV_GUARD_INSTALL, which older headers lack

char *new_stack() {
    if (!free_stacks.empty()) {
        char *stack = free_stacks.back();
        free_stacks.pop_back();
        return stack;
    }
    const size_t many = 32, each = STACK_BYTES + GUARD_BYTES;
    if (!unused_stacks) {
        unused = (char *)mmap(nullptr, many * each, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (unused == MAP_FAILED) _exit(5);
        unused_stacks = many;
    }
    // A guard in the page table alone, where the kernel (Linux 6.13) has it, is set in half the time.
    if (madvise(unused, GUARD_BYTES, GUARD_INSTALL)) mprotect(unused, GUARD_BYTES, PROT_NONE);
    char *stack = unused + GUARD_BYTES;
    unused += each, --unused_stacks;
    return stack;
}

// Where a lane's stack begins, growing down. Stacks at equal offsets in a page would compete for
// the same few cache lines.
Address beginning(const Lane &l) { return (Address)l.stack + STACK_BYTES - l.thread % 56 * 128; }

void to_scheduler() { il_switch(&current->stack_pointer, scheduler); }

} // namespace il
