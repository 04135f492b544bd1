// Runs CUDA kernels that were compiled for the CPU, with the counts of a profiler.
//
// The kernel's object calls the hooks below before every access to memory (-fsanitize=thread) and at
// every basic block (-fsanitize-coverage=trace-pc); no sanitizer library is linked. The threads of a
// block are fibers of one system thread. A lane runs until it waits or ends. Its accesses are kept
// until the whole warp has come as far, and then counted as the warp's requests: two lanes belong to
// the same request if they reached the same instruction on the same path, which is the call stack with
// the iteration of every loop around it.
//
//   program SPEC DATA REPORT    what to launch, its arrays, and where the report (JSON) goes

#include "order.h"

// -- what the kernel's object calls -------------------------------------------------------------------

using namespace il;

extern "C" {

Place il_where(int which) { return places[which]; }
void il_barrier() { wait(AT_BARRIER, CALLER); }
int il_barrier_vote(int kind, int predicate) {
    current->value = predicate != 0;
    wait(AT_BARRIER, CALLER);
    return kind == 0 ? (int)votes : kind == 1 ? votes == threads : votes != 0;
}
void il_syncwarp(unsigned int mask) { collective(SYNCWARP, 0, mask, 0, 0, 32, CALLER); }
unsigned long long il_shuffle(int kind, unsigned int mask, unsigned long long value, int lane, int width) {
    if (width < 1 || width > 32 || (width & (width - 1))) {
        end_launch(here("shuffle_width", CALLER) + format(", \"width\": %d}", width));
        return 0;
    }
    collective(SHUFFLE, kind, mask, value, lane, width, CALLER);
    return current->result;
}
unsigned int il_ballot(int kind, unsigned int mask, int predicate) {
    collective(BALLOT, kind, mask, predicate != 0, 0, 32, CALLER);
    return (unsigned int)current->result;
}
long long il_warp_reduce(int kind, unsigned int mask, long long value) {
    collective(REDUCE, kind, mask, (u64)value, 0, 32, CALLER);
    return (long long)current->result;
}
unsigned int il_match(int kind, unsigned int mask, unsigned long long value) {
    collective(MATCH, kind, mask, value, 0, 32, CALLER);
    return (unsigned int)current->result;
}
void il_fence(int scope) {
    settle();
    if (scope == 0) return;
    ++fences;
    for (Warp &w : warps) w.moment = NOBODY;
    mark = mark_of(NOBODY, current->number);
    const u64 blocks = (u64)settings.grid[0] * settings.grid[1] * settings.grid[2];
    if (published.empty()) {
        published.assign(blocks, 0);
        if (blocks * threads < (1u << 26)) last_fence.assign(blocks * threads, 0);
    }
    // Publishes what came before the block's last barrier and what this thread wrote itself.
    published[block_number] = std::max(published[block_number], epoch);
    const u64 thread = (u64)block_number * threads + current->thread;
    if (thread < last_fence.size()) last_fence[thread] = fences;
}
void il_atomic(void *address, unsigned int bytes) { access((Address)address, bytes, ATOMIC, CALLER); }
void il_atomic_of_block(void *address, unsigned int bytes) {
    of_block = true;
    access((Address)address, bytes, ATOMIC, CALLER);
    of_block = false;
}
void il_trap() { end_launch(here("trap", CALLER) + "}"); }
void il_assert_failed(const char *text) {
    end_launch(here("assertion", CALLER) + ", \"text\": " + quoted(text) + "}");
}
void __stack_chk_fail() {
    end_launch(here("local_array", last_pc) + "}");
    abort();
}

void __tsan_init() {}
void __tsan_func_entry(void *caller) {
    enter_function((Address)caller, FRAME);
}
void __tsan_func_exit() {
    leave_function();
}
void __sanitizer_cov_trace_pc() {
    enter_block(CALLER, FRAME);
}
#define IL_HOOKS(size)                                                                             \
    void __tsan_read##size(void *a) { access<READ, size>((Address)a, CALLER); }                    \
    void __tsan_write##size(void *a) { access<WRITE, size>((Address)a, CALLER); }                  \
    void __tsan_read_write##size(void *a) {                                                        \
        access<READ, size>((Address)a, CALLER);                                                    \
        access<WRITE, size>((Address)a, CALLER);                                                   \
    }                                                                                              \
    void __tsan_unaligned_read##size(void *a) { access<READ, size>((Address)a, CALLER); }          \
    void __tsan_unaligned_write##size(void *a) { access<WRITE, size>((Address)a, CALLER); }        \
    void __tsan_volatile_read##size(void *a) { access<READ, size>((Address)a, CALLER); }           \
    void __tsan_volatile_write##size(void *a) { access<WRITE, size>((Address)a, CALLER); }
IL_HOOKS(1)
IL_HOOKS(2)
IL_HOOKS(4)
IL_HOOKS(8)
IL_HOOKS(16)
void __tsan_read_range(void *a, size_t bytes) { access_range((Address)a, bytes, READ, CALLER); }
void __tsan_write_range(void *a, size_t bytes) { access_range((Address)a, bytes, WRITE, CALLER); }
void __tsan_vptr_update(void *, void *) {}
void __tsan_vptr_read(void *) {}
void *__tsan_memcpy(void *to, const void *from, size_t bytes) {
    access_range((Address)from, bytes, READ, CALLER);
    access_range((Address)to, bytes, WRITE, CALLER);
    return memcpy(to, from, bytes);
}
void *__tsan_memmove(void *to, const void *from, size_t bytes) {
    access_range((Address)from, bytes, READ, CALLER);
    access_range((Address)to, bytes, WRITE, CALLER);
    return memmove(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes) {
    access_range((Address)to, bytes, WRITE, CALLER);
    return memset(to, value, bytes);
}
}

int main(int count, char **given) {
    if (count != 4) refuse("program SPEC DATA REPORT");
    const rlimit no_core = {0, 0}, file = {16u << 20, 16u << 20};
    setrlimit(RLIMIT_CORE, &no_core);
    setrlimit(RLIMIT_FSIZE, &file); // ends endless printing; arrays are mapped, not written
    signal(SIGXFSZ, SIG_IGN);
    std::set_new_handler([] { refuse("there is not enough memory for this launch"); });
    report_path = given[3];
    read_spec(given[1], given[2]);
    watch_faults();
    run_grid();
    fflush(stdout);
    write_report();
    _exit(0);
}
