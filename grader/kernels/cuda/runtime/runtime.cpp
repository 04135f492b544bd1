// Runs CUDA kernels that were compiled for the CPU and counts what a profiler would tell.
//
// The kernel's object calls the hooks below before every access to memory (-fsanitize=thread) and at
// every basic block (-fsanitize-coverage=trace-pc); no sanitizer library is linked. The threads of a
// block are fibers of one system thread. A lane runs until it waits or ends; its accesses are kept
// until the whole warp has come as far, and then counted as the warp's requests: two lanes belong to
// the same request if they reached the same instruction on the same path, which is the call stack with
// the turn of every loop around it.
//
//   program SPEC DATA REPORT    what to launch, its arrays, and where the report (JSON) goes

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

typedef uint32_t u32;
typedef uint64_t u64;
typedef uintptr_t Address;

// What the kernel's object lists; declared in shim.h too.
struct il_parameter {
    unsigned int bytes, element;
    int read_only;
};
struct il_kernel {
    const char *name;
    void (*call)(void **arguments);
    const il_parameter *parameters;
    int count;
};
extern "C" const il_kernel il_kernels[];
extern "C" const int il_kernel_count;
extern "C" char *il_touch_shared();

#define COLD __attribute__((noinline, cold))
#define INLINE inline __attribute__((always_inline))
#define LIKELY(condition) __builtin_expect(!!(condition), 1)
#define CALLER ((Address)__builtin_return_address(0))
#define FRAME ((Address)__builtin_frame_address(1))

namespace il {

enum Kind { READ, WRITE, ATOMIC, FLOW, ENTERED, LEFT };
enum Space { GLOBAL, SHARED, CONSTANT };
enum State { NEW, READY, AT_BARRIER, AT_COLLECTIVE, DONE };
enum Collective { SHUFFLE, BALLOT, REDUCE, SYNCWARP };
const char *const KINDS[] = {"read", "write", "atomic", "flow"};
const char *const SPACES[] = {"global", "shared", "constant"};

const size_t STACK_BYTES = 128 << 10, GUARD_BYTES = 16 << 10;
const u32 NOBODY = 0;

// -- memory that a kernel may touch -----------------------------------------------------------------

// Who touched a word, when: `epoch` counts the block's barriers, `turn` the warp's, `fences` all.
struct Touch {
    u32 block1 = NOBODY; // the block's number plus one
    u32 epoch = 0, turn = 0, fences = 0, site = 0;
    uint16_t thread = 0, atomic = 0;
};
// The same in eight bytes, since every word of every array has three: `moment` stands for all that a
// warp's accesses share until the next barrier.
struct Moment {
    u32 block1, epoch, turn, fences, warp;
};
struct Mark {
    u64 bits = 0; // from the lowest: 32 of the moment, 16 of the site, 8 of the lane, 1 for an atomic
    u32 moment() const { return (u32)bits; }
    u32 site() const { return (u32)(bits >> 32) & 0xffff; }
    u32 lane() const { return (u32)(bits >> 48) & 0xff; }
    bool atomic() const { return bits >> 56; }
};
const u64 WHO_AND_WHEN = 0x00ff0000ffffffff; // of a mark's bits
inline Mark mark_of(u32 moment, u32 lane) { return {moment | (u64)lane << 48}; }
inline Mark marked(const Mark &mark, u32 site, bool atomic) { return {mark.bits | (u64)site << 32 | (u64)atomic << 56}; }
// The marks of a region's cells, kind by kind: most arrays are only read or only written, and what
// has not a single mark is not looked at.
struct Marks {
    Mark *of = nullptr;
    bool any = false;
    Mark &at(Address cell) {
        any = true;
        return of[cell];
    }
    void forget(size_t many) {
        if (any) memset((void *)of, 0, many * sizeof(Mark));
        any = false;
    }
};

struct Region {
    std::string name;
    Address base = 0;
    size_t bytes = 0;
    u32 element = 4;
    Space space = GLOBAL;
    bool read_only = false, dynamic = false, used = false;
    u32 shift = 2; // a cell stands for a word, or for a byte once something smaller was touched
    bool watched = false, plain = false; // it has marks; and they are of words, for races
    Marks writer, first, last; // the last who wrote, and two who read since
};

struct Site {
    Address pc = 0;
    Kind kind = READ;
    u32 region = 0, size = 0;
    u64 requests = 0, lanes = 0, sectors = 0, ideal_sectors = 0, wavefronts = 0, ideal_wavefronts = 0;
    u64 operations = 0;
    u32 worst = 0, worst_same = 0;
    u64 ways[33] = {};
    bool sampled = false;
    u32 sample_mask = 0, sample_block = 0, sample_warp = 0;
    int64_t sample[32] = {};
};

// A row of what the first block did: one instruction between two barriers.
struct Step {
    u32 epoch, site;
    u64 requests = 0, lanes = 0, sectors = 0, wavefronts = 0;
    u32 worst = 0, most = 0;
    u32 masks[32] = {}; // by warp: the lanes that took part at least once
};

struct Loop {
    Address head, latch;
    u64 before, turns;
};
struct Frame {
    u32 loops;
    u64 path;
    Address last, base; // base: the function's frame pointer
};
const u32 MAX_LOOPS = 64, MAX_FRAMES = 64;
struct Path {
    u64 hash;
    u32 loops_used, frames_used;
    Loop loops[MAX_LOOPS];
    Frame frames[MAX_FRAMES];
    void clear() { hash = 0, loops_used = frames_used = 0; }
    void copy(const Path &from) {
        hash = from.hash, loops_used = from.loops_used, frames_used = from.frames_used;
        std::copy(from.loops, from.loops + loops_used, loops);
        std::copy(from.frames, from.frames + frames_used, frames);
    }
};

struct Suspect { // a second write to a word, which may turn out to store the same value
    bool open = false;
    Address address = 0;
    u32 size = 0, region = 0;
    unsigned char before[16];
    Touch other, mine;
};

struct Place {
    u32 x, y, z;
};

struct Lane {
    State state = NEW;
    u32 thread = 0, number = 0; // in the block; in the warp
    Place place = {0, 0, 0};
    void *stack_pointer = nullptr;
    char *stack = nullptr;
    Address waits_at = 0;
    u64 steps = 0;
    u32 cursor = 0;
    // The first lane of a warp leads: from each barrier on, what it meets is written down. Another
    // one follows it, event by event, as long as both meet the same: then its path is the leader's,
    // and need not be computed. `followed` is how many events that were, when it last stopped.
    bool placed = false, leads = false, follows = false;
    bool alike = false; // its path is the one that the leader had at the last barrier
    u32 followed = 0;
    Path *path = nullptr; // of those that once went alone
    // at a warp-level function
    Collective collective = SHUFFLE;
    int what = 0, argument = 0, width = 0;
    u32 mask = 0;
    u64 value = 0, result = 0;
};

// A request in the making.
struct Head {
    u64 key;
    u32 site, mask, addresses;
};
const u32 NONE = ~0u, IS_FLOW = ~0u; // the latter stands in `addresses`
struct Addresses {
    Addresses() {} // only what lanes write is read
    Address of[32];
};
// What the lane that leads met: `tag` says what and where. `head` is its request, or NONE where it
// made none: a call, a return, or the block behind a return. The list ends with a tag of 0.
struct Event {
    u64 tag;
    Region *region;
    u32 head, addresses;
    u32 site; // of ENTERED: how deep in the lane's stack the frame lies
    u32 last; // the lanes that followed up to here and no further
    u32 steps; // basic blocks before this one
};

struct Warp {
    u32 first = 0, count = 0; // lanes
    u32 turn = 1, moment = NOBODY;
    u32 met[32][32] = {};
    std::vector<Event> led;
    Path began; // the leader's at the last barrier
    u64 start = 0;
    Address leaders = 0; // where its stack begins
    std::vector<Head> heads;
    std::vector<Addresses> addresses;
    std::vector<u64> table; // generation in the upper half, index in the lower
    u32 generation = 1;
};

struct Race {
    Touch other, mine;
    Kind kind, other_kind;
    u32 region;
    Address address;
    u64 count;
};

struct Settings {
    u32 grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
    size_t dynamic_bytes = 0;
    u64 max_steps = 1u << 25;
    u64 max_total = 1u << 29; // steps of all threads together
    // Between two barriers, in a block: what is kept until the whole warp has come as far.
    u64 max_requests = 1u << 19, max_heads = 1u << 22;
    u64 seed = 0;
    bool races = true;
};

Settings settings;
std::string report_path;
std::vector<Region> regions;
std::vector<Site> sites;
std::vector<Step> steps;
std::vector<Race> races;
std::vector<Moment> moments(1); // the first is nobody's
u32 first_moment = 1;           // of the present block
u32 epoch_moment = 1;           // since its last barrier
u64 races_seen = 0;
std::vector<Lane> lanes;
std::vector<Warp> warps;
std::vector<char *> free_stacks;
char *unused = nullptr; // memory of stacks that no lane has had yet
size_t unused_stacks = 0;
Lane *current = nullptr;
Warp *warp = nullptr;
u32 block_number = 0, epoch = 0, fences = 0, threads = 0;
Place places[4]; // the current thread, the block, their sizes
// Of the current lane, for the hooks: what it meets next if it goes on as the leader did, how many
// steps it may take, where its addresses go, and what its accesses are marked with.
const Event nothing = {0, nullptr, NONE, 0, 0, 0, 0}; // for one that does not follow, or has to stop
const Event *next = &nothing;
u64 budget = 0, allowed = 0;
Address *slots = nullptr;
Mark mark;
Suspect suspect;
bool kernel_runs = false, aborted = false, reported = false;
void *scheduler = nullptr;
const il_kernel *kernel = nullptr;
std::vector<void *> arguments;
u64 total_steps = 0, total_barriers = 0, most_barriers = 0, flow_requests = 0, flow_lanes = 0;
u64 blocks_run = 0, shuffles = 0;
u64 heads_kept = 0, requests_kept = 0; // of the block, since its last barrier
std::vector<u32> published;   // by block: writes before this epoch are known to all
std::vector<u32> last_fence;  // by thread of the grid
std::string error;            // JSON of what ended the launch
u32 last_region = 0;
Address last_pc = 0;
Address literals = 0; // the section of strings and of tables without a name
size_t literals_bytes = 0;

// -- JSON ---------------------------------------------------------------------------------------------

std::string format(const char *pattern, ...) {
    char text[1024];
    va_list list, again;
    va_start(list, pattern);
    va_copy(again, list);
    const int length = vsnprintf(text, sizeof text, pattern, list);
    std::string out = text;
    if (length >= (int)sizeof text) { // a long template's name
        out.resize((size_t)length + 1);
        vsnprintf(&out[0], out.size(), pattern, again);
        out.pop_back();
    }
    va_end(again);
    va_end(list);
    return out;
}

std::string quoted(const std::string &text) {
    std::string out = "\"";
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') out += '\\', out += (char)c;
        else if (c < 32 || c > 126) out += format("\\u%04x", c);
        else out += (char)c;
    }
    return out + "\"";
}

void write_report() {
    if (reported) return;
    reported = true;
    FILE *out = fopen(report_path.c_str(), "w");
    if (!out) _exit(4);
    fprintf(out, "{\"error\": %s,\n", error.empty() ? "null" : error.c_str());
    fprintf(out, "\"races_seen\": %llu, \"races\": [", (unsigned long long)races_seen);
    for (size_t i = 0; i < races.size(); ++i) {
        const Race &r = races[i];
        const Region &region = regions[r.region];
        fprintf(out,
                "%s{\"array\": %s, \"offset\": %lld, \"element\": %u, \"space\": \"%s\", \"kind\": \"%s\", "
                "\"other_kind\": \"%s\", \"pc\": %llu, \"other_pc\": %llu, \"thread\": %u, "
                "\"other_thread\": %u, \"block\": %u, \"other_block\": %u, \"count\": %llu}",
                i ? ",\n" : "", quoted(region.name).c_str(), (long long)(r.address - region.base),
                region.element, SPACES[region.space], KINDS[r.kind], KINDS[r.other_kind],
                (unsigned long long)sites[r.mine.site].pc, (unsigned long long)sites[r.other.site].pc,
                (u32)r.mine.thread, (u32)r.other.thread, r.mine.block1 - 1, r.other.block1 - 1,
                (unsigned long long)r.count);
    }
    fprintf(out, "],\n\"sites\": [");
    bool first = true;
    for (size_t i = 0; i < sites.size(); ++i) {
        const Site &s = sites[i];
        if (!s.requests) continue;
        fprintf(out,
                "%s{\"site\": %zu, \"pc\": %llu, \"kind\": \"%s\", \"space\": \"%s\", \"array\": %s, "
                "\"size\": %u, \"requests\": %llu, \"lanes\": %llu, \"sectors\": %llu, "
                "\"ideal_sectors\": %llu, \"wavefronts\": %llu, \"ideal_wavefronts\": %llu, "
                "\"operations\": %llu, \"worst\": %u, \"worst_same\": %u, \"ways\": {",
                first ? "" : ",\n", i, (unsigned long long)s.pc, KINDS[s.kind],
                SPACES[regions[s.region].space], quoted(regions[s.region].name).c_str(), s.size,
                (unsigned long long)s.requests, (unsigned long long)s.lanes,
                (unsigned long long)s.sectors, (unsigned long long)s.ideal_sectors,
                (unsigned long long)s.wavefronts, (unsigned long long)s.ideal_wavefronts,
                (unsigned long long)s.operations, s.worst, s.worst_same);
        first = false;
        bool more = false;
        for (int way = 1; way <= 32; ++way)
            if (s.ways[way]) {
                fprintf(out, "%s\"%d\": %llu", more ? ", " : "", way, (unsigned long long)s.ways[way]);
                more = true;
            }
        fprintf(out, "}, \"sample\": ");
        if (!s.sampled) fprintf(out, "null}");
        else {
            fprintf(out, "{\"block\": %u, \"warp\": %u, \"offsets\": [", s.sample_block, s.sample_warp);
            for (int lane = 0; lane < 32; ++lane)
                if (s.sample_mask >> lane & 1)
                    fprintf(out, "%s%lld", lane ? ", " : "", (long long)s.sample[lane]);
                else fprintf(out, "%snull", lane ? ", " : "");
            fprintf(out, "]}}");
        }
    }
    fprintf(out, "],\n\"steps\": [");
    for (size_t i = 0; i < steps.size(); ++i) {
        const Step &s = steps[i];
        fprintf(out,
                "%s{\"epoch\": %u, \"site\": %u, \"requests\": %llu, \"lanes\": %llu, \"sectors\": %llu, "
                "\"wavefronts\": %llu, \"worst\": %u, \"most\": %u, \"masks\": [",
                i ? ",\n" : "", s.epoch, s.site, (unsigned long long)s.requests,
                (unsigned long long)s.lanes, (unsigned long long)s.sectors,
                (unsigned long long)s.wavefronts, s.worst, s.most);
        for (size_t w = 0; w < warps.size(); ++w) fprintf(out, "%s%u", w ? ", " : "", s.masks[w]);
        fprintf(out, "]}");
    }
    fprintf(out, "],\n\"arrays\": [");
    for (size_t i = 0; i < regions.size(); ++i) {
        const Region &r = regions[i];
        fprintf(out, "%s{\"name\": %s, \"space\": \"%s\", \"bytes\": %zu, \"element\": %u, \"used\": %s, \"dynamic\": %s}",
                i ? ", " : "", quoted(r.name).c_str(), SPACES[r.space], r.bytes, r.element,
                r.used ? "true" : "false", r.dynamic ? "true" : "false");
    }
    fprintf(out,
            "],\n\"totals\": {\"blocks\": %llu, \"threads\": %u, \"barriers\": %llu, \"most_barriers\": %llu, "
            "\"shuffles\": %llu, \"steps\": %llu, \"flow_requests\": %llu, \"flow_lanes\": %llu}}\n",
            (unsigned long long)blocks_run, threads, (unsigned long long)total_barriers,
            (unsigned long long)most_barriers, (unsigned long long)shuffles,
            (unsigned long long)total_steps, (unsigned long long)flow_requests,
            (unsigned long long)flow_lanes);
    if (fclose(out) != 0) _exit(4);
}

// -- fibers -------------------------------------------------------------------------------------------

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
    mprotect(unused, GUARD_BYTES, PROT_NONE);
    char *stack = unused + GUARD_BYTES;
    unused += each, --unused_stacks;
    return stack;
}

// Where a lane's stack begins, downwards: all at one offset in a page would share a few cache lines.
Address beginning(const Lane &l) { return (Address)l.stack + STACK_BYTES - l.thread % 56 * 128; }

void to_scheduler() { il_switch(&current->stack_pointer, scheduler); }

// -- errors: what ends a launch -----------------------------------------------------------------------

u32 block_of(const Touch &t) { return t.block1 - 1; }

void end_launch(const std::string &json) {
    if (error.empty()) error = json;
    aborted = true;
    if (current && kernel_runs) {
        kernel_runs = false;
        to_scheduler();
    }
}

std::string here(const char *kind, Address pc) {
    return format("{\"kind\": \"%s\", \"pc\": %llu, \"thread\": %u, \"block\": %u", kind,
                  (unsigned long long)pc, current ? current->thread : 0, block_number);
}

u64 steps_taken() { return allowed - budget; } // by the current lane

std::string endless(Address pc) {
    return here("endless", pc) + format(", \"limit\": %llu}", (unsigned long long)steps_taken() - 1);
}
std::string too_long(Address pc) {
    return here("too_long", pc) + format(", \"limit\": %llu}", (unsigned long long)settings.max_total);
}
std::string too_many(const char *kind, Address pc, u64 limit) {
    return here(kind, pc) + format(", \"limit\": %llu}", (unsigned long long)limit);
}

void out_of_bounds(Address a, u32 size, Kind kind, Address pc) {
    const Region *nearest = nullptr;
    u64 least = ~0ull;
    for (const Region &r : regions) {
        if (r.name.empty()) continue;
        u64 distance = a < r.base ? r.base - a : a >= r.base + r.bytes ? a - (r.base + r.bytes) + 1 : 0;
        if (distance < least || (distance == least && a == r.base)) least = distance, nearest = &r;
    }
    const bool local = current && a - (Address)current->stack + (1u << 20) < (2u << 20);
    const bool near = nearest && least < (64u << 20);
    const bool shared = near && nearest->space == SHARED;
    const char *what = a < 4096 ? "null_pointer" : local ? "local_memory" : !near ? "no_array" : !shared ? "out_of_bounds" : nearest->bytes ? "out_of_shared" : "no_dynamic_shared";
    std::string text = here(what, pc) + format(", \"access\": \"%s\"", KINDS[kind]);
    if (a >= 4096 && !local && near)
        text += format(", \"array\": %s, \"offset\": %lld, \"element\": %u, \"bytes\": %zu", quoted(nearest->name).c_str(),
                       (long long)(a - nearest->base), nearest->element, nearest->bytes);
    end_launch(text + "}");
}

// -- sites and requests -------------------------------------------------------------------------------

COLD void stop_for_moments() { end_launch(here("too_large", last_pc) + "}"); }

struct SiteKey {
    Address pc;
    u32 kind, region, size;
    bool operator==(const SiteKey &o) const {
        return pc == o.pc && kind == o.kind && region == o.region && size == o.size;
    }
};
struct SiteHash {
    size_t operator()(const SiteKey &k) const {
        return (k.pc * 0x9e3779b97f4a7c15ull) ^ (k.region * 131 + k.kind * 7 + k.size);
    }
};
std::unordered_map<SiteKey, u32, SiteHash> known_sites;

u32 site_of(Address pc, Kind kind, u32 region, u32 size) {
    const SiteKey key = {pc, (u32)kind, region, size};
    const auto found = known_sites.find(key);
    if (found != known_sites.end()) return found->second;
    if (sites.size() > 65535) stop_for_moments();
    Site site;
    site.pc = pc, site.kind = kind, site.region = region, site.size = size;
    sites.push_back(site);
    return known_sites[key] = (u32)sites.size() - 1;
}

inline u64 mix(u64 a, u64 b) {
    u64 x = (a ^ b) * 0x9e3779b97f4a7c15ull;
    x ^= x >> 29;
    x = (x + b) * 0xbf58476d1ce4e5b9ull;
    return x ^ (x >> 32);
}

// The path is well mixed already; its low bits choose the place in the table.
inline u64 key_of(u64 path, Address pc, Kind kind) {
    const u64 x = path ^ ((u64)pc * 4 + kind) * 0x9e3779b97f4a7c15ull;
    return x ^ (x >> 31);
}

// The index of the warp's request with that key, to which this lane has not contributed yet.
inline u32 request(u64 key, bool &fresh) {
    Warp &w = *warp;
    Lane &l = *current;
    const u32 bit = 1u << l.number;
    // Lanes mostly follow the first one; one that left out a branch goes on a little further.
    const u32 known = (u32)w.heads.size(), near = std::min(known, l.cursor + 6);
    for (u32 i = l.cursor; i < near; ++i) {
        Head &head = w.heads[i];
        if (head.key == key && !(head.mask & bit)) {
            head.mask |= bit;
            fresh = false;
            l.cursor = i + 1;
            return i;
        }
    }
    for (;;) {
        if (w.heads.size() * 2 >= w.table.size()) {
            size_t size = std::max<size_t>(1024, w.table.size() * 4);
            w.table.assign(size, 0);
            for (u32 i = 0; i < w.heads.size(); ++i) {
                size_t slot = w.heads[i].key & (size - 1);
                while (w.table[slot]) slot = (slot + 1) & (size - 1);
                w.table[slot] = (u64)w.generation << 32 | (i + 1);
            }
        }
        const size_t last = w.table.size() - 1;
        size_t slot = key & last;
        bool again = false;
        while (w.table[slot] >> 32 == w.generation) {
            u32 index = (u32)w.table[slot] - 1;
            Head &head = w.heads[index];
            if (head.key == key) {
                if (head.mask & bit) {
                    again = true;
                    break;
                }
                head.mask |= bit;
                l.cursor = index + 1;
                fresh = false;
                return index;
            }
            slot = (slot + 1) & last;
        }
        if (again) {
            key = mix(key, 0x51ed);
            continue;
        }
        if (++heads_kept > settings.max_heads)
            end_launch(steps_taken() > settings.max_heads / 8 ? endless(last_pc) : too_many("too_many_steps", last_pc, settings.max_heads));
        u32 index = (u32)w.heads.size();
        w.table[slot] = (u64)w.generation << 32 | (index + 1);
        w.heads.push_back(Head{key, 0, bit, 0});
        l.cursor = index + 1;
        fresh = true;
        return index;
    }
}

// -- races --------------------------------------------------------------------------------------------

Touch told(const Mark &mark) {
    const Moment &m = moments[mark.moment()];
    Touch t;
    t.block1 = m.block1, t.epoch = m.epoch, t.turn = m.turn, t.fences = m.fences, t.site = mark.site();
    t.thread = (uint16_t)(m.warp * 32 + mark.lane()), t.atomic = mark.atomic();
    return t;
}

// What the warp's accesses are now marked with.
inline u32 present() {
    Warp &w = *warp;
    if (w.moment == NOBODY) { // since a barrier, a __syncwarp() or a fence
        if (moments.size() >= 1u << 28) stop_for_moments();
        moments.push_back(Moment{block_number + 1, epoch, w.turn, fences, w.first / 32});
        w.moment = (u32)moments.size() - 1;
    }
    mark = mark_of(w.moment, current->number);
    return w.moment;
}

bool is_published(const Moment &m, u32 lane) {
    const u32 block = m.block1 - 1;
    if (block < published.size() && m.epoch < published[block]) return true;
    const u64 thread = (u64)block * threads + m.warp * 32 + lane;
    return thread < last_fence.size() && last_fence[thread] > m.fences;
}

// Whether what left that mark surely came before what the current lane does now.
inline bool is_before(const Mark &mark, Space space) {
    if (mark.moment() == NOBODY) return true;
    const Lane &l = *current;
    if (mark.moment() == warp->moment) return mark.lane() == l.number;
    if (mark.moment() < first_moment && space == SHARED) return true;
    const Moment &m = moments[mark.moment()];
    if (m.block1 != block_number + 1) return space == SHARED || is_published(m, mark.lane());
    if (m.epoch < epoch) return true;
    if (m.warp != l.thread / 32) return false;
    return mark.lane() == l.number || m.turn < warp->met[mark.lane()][l.number];
}

inline bool is_of_block(const Mark &mark) {
    return mark.moment() >= first_moment;
}

void note_race(const Touch &other, Kind other_kind, const Touch &mine, Kind kind, u32 region, Address a) {
    ++races_seen;
    for (Race &r : races)
        if (r.mine.site == mine.site && r.other.site == other.site && r.kind == kind &&
            r.other_kind == other_kind) {
            ++r.count;
            // Two warps make the clearer example: no thought of lanes in step comes up.
            const bool shown = r.mine.block1 == r.other.block1 && r.mine.thread / 32 == r.other.thread / 32;
            const bool apart = mine.block1 == other.block1 && mine.thread / 32 != other.thread / 32;
            if (shown && apart) r.mine = mine, r.other = other, r.address = a, r.region = region;
            return;
        }
    if (races.size() < 32) races.push_back(Race{other, mine, kind, other_kind, region, a, 1});
}

// A follower's steps are not counted one by one: it is given all that the leader took, and hands
// back what it leaves.
inline void start_following(const Lane &l) {
    next = &warp->led[l.followed];
    budget -= warp->led.back().steps - next->steps;
}
inline void pause_following(Lane &l) {
    if (next == &nothing) return;
    budget += warp->led.back().steps - next->steps;
    l.followed = (u32)(next - warp->led.data());
    next = &nothing;
}

// A write after another thread's write is no race if it stores what was there already.
// Until that is settled the hooks expect nothing, so that the lane's next event comes here first.
COLD void settle_now() {
    const Suspect &s = suspect;
    suspect.open = false;
    if (current->follows) start_following(*current);
    if (memcmp((void *)s.address, s.before, s.size) != 0)
        note_race(s.other, s.other.atomic ? ATOMIC : WRITE, s.mine, WRITE, s.region, s.address);
}
inline void settle() {
    if (suspect.open) settle_now();
}
// A read of shared memory that nobody had written. Told when the block comes to its next barrier or
// its end: where a thread writes the word after all, that is a race, and says more.
struct Unwritten {
    u32 region;
    Address word;
    u32 site, thread;
};
std::vector<Unwritten> unwritten;

void tell_unwritten() {
    for (const Unwritten &u : unwritten) {
        const Region &region = regions[u.region];
        if (is_of_block(region.writer.of[u.word]) && settings.races) continue;
        if (error.empty())
            error = format("{\"kind\": \"uninitialized\", \"pc\": %llu, \"thread\": %u, \"block\": %u, \"array\": %s, "
                           "\"offset\": %lld, \"element\": %u}",
                           (unsigned long long)sites[u.site].pc, u.thread, block_number,
                           quoted(region.name).c_str(), (long long)(u.word << region.shift), region.element);
        aborted = true;
        break;
    }
    unwritten.clear();
}

void new_marks(Region &region, size_t many) {
    const size_t bytes = 3 * many * sizeof(Mark);
    void *marks = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (marks == MAP_FAILED) _exit(5);
    madvise(marks, bytes, MADV_HUGEPAGE); // thousands of page faults less
    region.writer.of = (Mark *)marks, region.first.of = region.writer.of + many, region.last.of = region.first.of + many;
}
size_t cells_of(const Region &region) { return region.shift ? region.bytes / 4 + 2 : region.bytes + 8; }

// From now on a cell for each byte: neighbours in one word do not race.
COLD void split_cells(Region &region, u32 index) {
    const Region words = region;
    region.shift = 0, region.plain = false;
    new_marks(region, cells_of(region));
    for (Marks Region::*kind : {&Region::writer, &Region::first, &Region::last})
        for (size_t i = 0; i < region.bytes && (region.*kind).any; ++i) (region.*kind).of[i] = (words.*kind).of[i / 4];
    munmap(words.writer.of, 3 * cells_of(words) * sizeof(Mark));
    for (Unwritten &u : unwritten)
        if (u.region == index) u.word *= 4;
}

// One cell of an access; `noted`: whether the access is known to race by another cell of it.
void check_cell(Region &region, Address word, Address a, u32 size, Kind kind, const Mark &mine, bool &noted) {
    Mark &writer = region.writer.of[word], &first = region.first.of[word], &last = region.last.of[word];
    const Address place = region.base + (word << region.shift);
    const u32 region_index = (u32)(&region - regions.data());
    if (kind != WRITE && region.space == SHARED && !is_of_block(writer) && unwritten.size() < 64)
        unwritten.push_back(Unwritten{region_index, word, mine.site(), current->thread});
    if (!settings.races) {
        if (kind != READ) region.writer.at(word) = mine;
        return;
    }
    const bool after = is_before(writer, region.space);
    if (kind == READ) {
        if (!after && !writer.atomic() && !noted) {
            note_race(told(writer), WRITE, told(mine), READ, region_index, place);
            noted = true;
        }
        if (is_before(first, region.space)) region.first.at(word) = mine;
        else region.last.at(word) = mine;
        return;
    }
    if (!after && !noted && !(kind == ATOMIC && writer.atomic())) {
        noted = true;
        if (kind == WRITE && !writer.atomic() && size <= 16) {
            Suspect &s = suspect;
            s.open = true, s.address = a, s.size = size, s.region = region_index;
            s.other = told(writer), s.mine = told(mine);
            memcpy(s.before, (void *)a, size);
            pause_following(*current);
        } else
            note_race(told(writer), writer.atomic() ? ATOMIC : WRITE, told(mine), kind, region_index, place);
    }
    if (kind == WRITE) {
        for (const Mark *reader : {&first, &last})
            if (!noted && !is_before(*reader, region.space)) {
                note_race(told(*reader), READ, told(mine), WRITE, region_index, place);
                noted = true;
            }
        if (region.first.any) first = Mark();
        if (region.last.any) last = Mark();
    }
    region.writer.at(word) = mine;
}

void check_races(Address a, u32 size, Kind kind, Region &region, u32 site) {
    if (mark.moment() == NOBODY) present();
    const Mark mine = marked(mark, site, kind == ATOMIC);
    if (size < 4 && region.shift) split_cells(region, (u32)(&region - regions.data()));
    const Address first = (a - region.base) >> region.shift, last = (a + size - 1 - region.base) >> region.shift;
    bool noted = false;
    for (Address cell = first; cell <= last; ++cell) check_cell(region, cell, a, size, kind, mine, noted);
}

// Whether a mark is from this block and before its last barrier; or, besides, nobody's or the same
// lane's in the same moment. Then it comes before what the lane does now.
INLINE bool is_settled(const Mark &other) { return other.moment() - first_moment < epoch_moment - first_moment; }
INLINE bool is_plainly_before(const Mark &other, const Mark &mine) {
    return other.bits == 0 || is_settled(other) || ((other.bits ^ mine.bits) & WHO_AND_WHEN) == 0;
}

// An access of whole words with which nothing can be wrong, done as `check_cell` would do it, without
// its questions: first what is most common, a word that was not touched before or by a barrier long
// ago, then what else is plain. Else false, and nothing is done.
bool is_plain(Address a, u32 size, Kind kind, Region &region, const Mark &mine) {
    const Address start = (a - region.base) / 4, end = start + size / 4;
    for (Address word = start; word < end; ++word) {
        const Mark &writer = region.writer.of[word];
        if (kind == READ && region.space == SHARED && writer.bits == 0) return false;
        if (region.writer.any && !is_plainly_before(writer, mine)) return false;
        if (region.first.any && !is_plainly_before(region.first.of[word], mine)) return false;
        if (kind == WRITE && region.last.any && !is_plainly_before(region.last.of[word], mine)) return false;
    }
    for (Address word = start; word < end; ++word) {
        if (kind == WRITE && region.first.any) region.first.of[word] = Mark();
        if (kind == WRITE && region.last.any) region.last.of[word] = Mark();
        (kind == READ ? region.first : region.writer).at(word) = mine;
    }
    return true;
}
__attribute__((noinline)) void check(Address a, u32 size, Kind kind, Region &region, u32 site) {
    if (!region.watched) return;
    if (region.plain && size >= 4 && kind != ATOMIC && mark.moment() != NOBODY)
        if (is_plain(a, size, kind, region, marked(mark, site, false))) return;
    check_races(a, size, kind, region, site);
}

template <Kind kind, u32 size> INLINE void check(Address a, Region &region, u32 site) {
    if (LIKELY(size == 4 && region.plain && mark.moment() != NOBODY)) {
        const Address word = (a - region.base) / 4;
        if (kind == READ) {
            const bool written = region.writer.any && is_settled(region.writer.of[word]);
            Mark &first = region.first.of[word];
            if (LIKELY(written || (!region.writer.any && region.space == GLOBAL)) && LIKELY(first.bits == 0)) {
                first = marked(mark, site, false), region.first.any = true;
                return;
            }
        } else if (LIKELY(!region.first.any)) {
            Mark &writer = region.writer.of[word];
            if (LIKELY(writer.bits == 0 || is_settled(writer))) {
                writer = marked(mark, site, false), region.writer.any = true;
                return;
            }
        }
    }
    check(a, size, kind, region, site);
}

// -- the path of a lane -------------------------------------------------------------------------------

inline u64 tag_of(Address pc, Kind kind, u32 part = 0) { return ((u64)pc ^ (u64)part << 44) << 3 | kind; }

inline u64 turn_of(const Loop &loop) { return mix(mix(loop.before, loop.head), loop.turns); }

inline void find_path(Path &p) {
    const Frame &frame = p.frames[p.frames_used - 1];
    p.hash = p.loops_used > frame.loops ? turn_of(p.loops[p.loops_used - 1]) : frame.path;
}

// The path when a basic block begins; false if it is too deep.
inline bool step_path(Path &p, Address pc) {
    Frame &frame = p.frames[p.frames_used - 1];
    if (pc <= frame.last) { // backwards: another turn of the loop that begins here
        while (p.loops_used > frame.loops && p.loops[p.loops_used - 1].head > pc) --p.loops_used;
        Loop *top = p.loops_used > frame.loops ? &p.loops[p.loops_used - 1] : nullptr;
        if (top && top->head == pc) {
            ++top->turns;
            top->latch = std::max(top->latch, frame.last);
            p.hash = turn_of(*top);
        } else {
            if (p.loops_used == MAX_LOOPS) return false;
            const u64 before = top ? turn_of(*top) : frame.path;
            p.loops[p.loops_used++] = Loop{pc, frame.last, before, 1};
            p.hash = turn_of(p.loops[p.loops_used - 1]);
        }
    } else if (p.loops_used > frame.loops && pc > p.loops[p.loops_used - 1].latch) {
        do --p.loops_used;
        while (p.loops_used > frame.loops && pc > p.loops[p.loops_used - 1].latch);
        find_path(p);
    }
    frame.last = pc;
    return true;
}

inline void push_frame(Path &p, Address caller, Address base) {
    const u64 path = p.frames_used ? mix(p.hash, caller) : 0x1234;
    p.frames[p.frames_used++] = Frame{p.loops_used, path, 0, base};
    p.hash = path;
}

inline void pop_frame(Path &p) {
    if (p.frames_used <= 1) return;
    p.loops_used = p.frames[--p.frames_used].loops;
    find_path(p);
}

// -- leading and following ----------------------------------------------------------------------------

// The leader's next event. The end of the list moves on.
inline void lead(u64 tag, u32 head, Region *region = nullptr, u32 site = 0) {
    Warp &w = *warp;
    Event &event = w.led.back();
    event.tag = tag, event.head = head, event.region = region, event.site = site;
    event.addresses = region ? w.heads[head].addresses * 32 : 0;
    const u32 steps = event.steps + ((tag & 7) == FLOW);
    w.led.push_back(nothing);
    w.led.back().steps = steps;
}

inline void lead_past(u64 tag, u32 depth = 0) {
    ++heads_kept;
    lead(tag, NONE, nullptr, depth);
}

INLINE bool follows_to(u64 tag) {
    if (next->tag != tag) return false;
    ++next;
    return true;
}

// The lane's own path, where it has to be known.
Path &own_path(Lane &l) {
    if (!l.path) l.path = new Path;
    if (l.alike) {
        l.alike = false;
        const Address by = beginning(l) - warp->leaders;
        l.path->copy(warp->began);
        for (u32 i = 0; i < l.path->frames_used; ++i)
            if (l.path->frames[i].base) l.path->frames[i].base += by;
    }
    return *l.path;
}

// Walk the leader's events as far as the lane followed, and compute its path at last.
COLD void go_alone(Lane &l) {
    Warp &w = *warp;
    pause_following(l);
    Path &path = own_path(l);
    l.follows = false;
    l.cursor = 0;
    for (u32 i = 0; i < l.followed; ++i) {
        const Event &event = w.led[i];
        const Address pc = event.tag >> 3;
        const Kind kind = (Kind)(event.tag & 7);
        if (event.head != NONE) w.heads[event.head].mask |= 1u << l.number, l.cursor = event.head + 1;
        if (kind == FLOW && event.head != NONE) step_path(path, pc);
        else if (kind == ENTERED) push_frame(path, pc, event.site ? beginning(l) - event.site : 0);
        else if (kind == LEFT) pop_frame(path);
    }
}

inline u64 start_of(const Path &p) { return mix(p.hash, p.frames_used ? p.frames[p.frames_used - 1].last : 0); }

// What a lane is, when it runs for the first time after a barrier: the first of a warp leads.
void place(Lane &l) {
    Warp &w = *warp;
    l.placed = true;
    if (l.number == 0) {
        const Path &path = own_path(l);
        w.began.copy(path);
        w.start = start_of(path), w.leaders = beginning(l);
        w.led.assign(1, nothing);
        l.leads = true;
    } else if (l.alike || start_of(*l.path) == w.start)
        l.follows = true, l.followed = 0;
}

COLD void too_deep(Address pc) { end_launch(here("too_deep", pc) + "}"); }
COLD void stop_stepping(Address pc) {
    end_launch(steps_taken() > settings.max_steps ? endless(pc) : too_long(pc));
}

__attribute__((noinline)) void enter_block_alone(Address pc, Address base) {
    Lane &l = *current;
    settle();
    last_pc = pc;
    const u64 tag = tag_of(pc, FLOW);
    if (l.follows) {
        if (follows_to(tag)) return;
        go_alone(l);
    }
    if (budget-- == 0) return stop_stepping(pc);
    Path &path = *l.path;
    if (path.frames[path.frames_used - 1].base != base) { // g++ ends a function (func_exit) before its last block
        if (l.leads) lead_past(tag);
        return;
    }
    if (!step_path(path, pc)) return too_deep(pc);
    bool fresh;
    const u32 number = request(key_of(path.hash, pc, FLOW), fresh);
    if (fresh) warp->heads[number].addresses = IS_FLOW;
    if (l.leads) lead(tag, number);
}

INLINE void enter_block(Address pc, Address base) {
    if (LIKELY(follows_to(tag_of(pc, FLOW)))) {
        last_pc = pc;
        return;
    }
    if (kernel_runs) enter_block_alone(pc, base);
}

__attribute__((noinline)) void enter_function_alone(Address caller, Address base) {
    Lane &l = *current;
    settle();
    if (l.follows) {
        if (follows_to(tag_of(caller, ENTERED))) return;
        go_alone(l);
    }
    Path &path = *l.path;
    if (path.frames_used == MAX_FRAMES) return too_deep(caller);
    if (l.leads) lead_past(tag_of(caller, ENTERED), base ? (u32)(beginning(l) - base) : 0);
    push_frame(path, caller, base);
}

INLINE void enter_function(Address caller, Address base) {
    if (!LIKELY(follows_to(tag_of(caller, ENTERED))) && kernel_runs) enter_function_alone(caller, base);
}

__attribute__((noinline)) void leave_function_alone() {
    Lane &l = *current;
    settle();
    if (l.follows) {
        if (follows_to(tag_of(0, LEFT))) return;
        go_alone(l);
    }
    if (l.leads) lead_past(tag_of(0, LEFT));
    pop_frame(*l.path);
}

INLINE void leave_function() {
    if (!LIKELY(follows_to(tag_of(0, LEFT))) && kernel_runs) leave_function_alone();
}

// -- an access ----------------------------------------------------------------------------------------

// `index`: where to look first, and where it was found.
inline Region *region_at(Address a, u32 size, u32 &index) {
    Region &again = regions[index];
    if (a - again.base < again.bytes && a + size <= again.base + again.bytes) return &again;
    for (u32 i = 0; i < regions.size(); ++i) {
        Region &r = regions[i];
        if (a - r.base < r.bytes && a + size <= r.base + r.bytes) {
            index = last_region = i;
            return &r;
        }
    }
    return nullptr;
}

COLD void refuse_access(const char *why, Address a, u32 size, Kind kind, Address pc, const Region &region) {
    end_launch(here(why, pc) +
               format(", \"access\": \"%s\", \"size\": %u, \"array\": %s, \"offset\": %lld, \"element\": %u}", KINDS[kind],
                      size, quoted(region.name).c_str(), (long long)(a - region.base), region.element));
}

// A lane that does not follow: the request is looked up by its path.
u32 request_alone(Address pc, Kind kind, u32 part, u64 tag, u32 region, u32 size) {
    Lane &l = *current;
    if (l.follows) go_alone(l);
    bool fresh;
    const u32 number = request(key_of(l.path->hash + part, pc, kind), fresh);
    if (fresh) {
        Head &head = warp->heads[number];
        head.site = site_of(pc, kind, region, size);
        head.addresses = (u32)warp->addresses.size();
        if (++requests_kept > settings.max_requests) end_launch(too_many("too_many_requests", pc, settings.max_requests));
        warp->addresses.emplace_back();
        slots = warp->addresses.data()->of + l.number;
    }
    if (l.leads) {
        const Head &head = warp->heads[number];
        lead(tag, number, &regions[sites[head.site].region], head.site);
    }
    return number;
}

__attribute__((noinline)) void access(Address a, u32 size, Kind kind, Address pc, u32 part = 0) {
    if (!kernel_runs) return;
    Lane &l = *current;
    if (a - (Address)l.stack < STACK_BYTES) return;
    settle();
    last_pc = pc;
    const u64 tag = tag_of(pc, kind, part);
    const bool as_led = next->tag == tag;
    u32 index = as_led ? (u32)(next->region - regions.data()) : last_region;
    Region *region = region_at(a, size, index);
    if (!region) {
        if (kind == READ && a - literals < literals_bytes) return;
        return out_of_bounds(a, size, kind, pc);
    }
    if ((size & (size - 1)) == 0 && (a & (size - 1))) return refuse_access("misaligned", a, size, kind, pc, *region);
    if (kind != READ && region->read_only) return refuse_access("read_only", a, size, kind, pc, *region);
    region->used = true;
    if (region->space == CONSTANT) return;
    u32 site;
    if (as_led) {
        slots[next->addresses] = a, site = next->site;
        ++next;
    } else {
        const Head &head = warp->heads[request_alone(pc, kind, part, tag, index, size)];
        slots[head.addresses * 32] = a, site = head.site;
    }
    check(a, size, kind, *region, site);
}

// The same, for one that goes where the leader went.
template <Kind kind, u32 size> INLINE void access(Address a, Address pc) {
    const Event &event = *next;
    if (LIKELY(event.tag == tag_of(pc, kind))) {
        Region &region = *event.region; // at least `size` bytes, since the leader was there
        if (LIKELY(a - region.base <= region.bytes - size) && LIKELY((a & (size - 1)) == 0)) {
            last_pc = pc;
            ++next;
            slots[event.addresses] = a;
            return check<kind, size>(a, region, event.site);
        }
    }
    access(a, size, kind, pc);
}

// A struct's copy: words, and what is left of one at either end.
void access_range(Address a, size_t bytes, Kind kind, Address pc) {
    u32 part = 0;
    for (size_t done = 0; done < bytes;) {
        u32 size = 4;
        while (size > bytes - done || (a + done) % size) size /= 2;
        access(a + done, size, kind, pc, part++);
        done += size;
    }
}

// -- a warp's requests become counts ------------------------------------------------------------------

// Distinct values of `of[lane] >> shift` over the lanes of `mask`, where each lane covers `size` bytes.
u32 distinct(const Addresses &a, u32 mask, u32 size, int shift) {
    Address seen[128], highest = 0;
    u32 count = 0;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        const Address start = a.of[__builtin_ctz(rest)];
        for (Address piece = start >> shift; piece <= (start + size - 1) >> shift; ++piece) {
            bool known = false;
            if (piece <= highest) // else it is new: addresses mostly rise with the lanes
                for (u32 i = count; i-- > 0 && !known;) known = seen[i] == piece;
            if (!known && count < 128) seen[count++] = piece;
            highest = std::max(highest, piece);
        }
    }
    return count;
}

// The cycles that shared memory needs: lanes go in phases (all at once; halves for 8 bytes, quarters
// for 16), and in a phase each of the 32 banks gives one 4-byte word a cycle, to whoever asks for it.
void shared_cost(const Addresses &a, u32 mask, u32 size, u32 &wavefronts, u32 &phases, u32 &worst) {
    const u32 group = size <= 4 ? 32 : size == 8 ? 16 : 8;
    wavefronts = phases = worst = 0;
    for (u32 start = 0; start < 32; start += group) {
        const u32 part = mask & (group == 32 ? ~0u : ((1u << group) - 1) << start);
        if (!part) continue;
        Address words[32][32];
        u32 many[32] = {}, most = 0;
        for (u32 rest = part; rest; rest &= rest - 1) {
            const Address address = a.of[__builtin_ctz(rest)];
            for (Address word = address / 4; word <= (address + size - 1) / 4; ++word) {
                const u32 bank = word % 32;
                bool known = false;
                for (u32 i = 0; i < many[bank] && !known; ++i) known = words[bank][i] == word;
                if (!known) {
                    words[bank][many[bank]++] = word;
                    most = std::max(most, many[bank]);
                }
            }
        }
        wavefronts += most, ++phases, worst = std::max(worst, most);
    }
}

Step &step_of(u32 site) {
    for (size_t i = steps.size(); i-- > 0 && steps[i].epoch == epoch;)
        if (steps[i].site == site) return steps[i];
    Step step;
    step.epoch = epoch, step.site = site;
    steps.push_back(step);
    return steps.back();
}

inline u32 lanes_in(u32 mask) { return mask == ~0u ? 32 : (u32)__builtin_popcount(mask); }

// Lanes in a row, each `step` bytes after the one before: then counts follow from a few numbers.
struct Row {
    bool is_row;
    u32 many;
    int64_t step;
    u64 reach; // bytes from the first to the last one
};

Row row_of(const Addresses &a, u32 mask) {
    const u32 first = (u32)__builtin_ctz(mask), many = lanes_in(mask);
    Row row = {((u64)mask >> first & ((mask >> first) + 1ull)) == 0, many, 0, 0};
    if (!row.is_row || many == 1) return row;
    const Address *of = a.of + first;
    row.step = (int64_t)(of[1] - of[0]);
    Address expected = of[0], other = 0;
    for (u32 i = 0; i < many; ++i, expected += (u64)row.step) other |= of[i] ^ expected;
    row.is_row = other == 0;
    row.reach = (row.step < 0 ? -(u64)row.step : (u64)row.step) * (many - 1);
    return row;
}

// As `distinct` of sectors, and of words or bytes. An access lies within one sector; where lanes are
// less than a sector apart, they leave none out.
void global_cost(const Addresses &a, u32 mask, u32 size, u32 &sectors, u32 &ideal) {
    const Row row = row_of(a, mask);
    if (!row.is_row) {
        sectors = distinct(a, mask, size, 5);
        ideal = size < 4 ? (distinct(a, mask, size, 0) + 31) / 32 : (distinct(a, mask, size, 2) + 7) / 8;
        return;
    }
    ideal = ((row.step ? row.many : 1) * size + 31) / 32;
    const Address one = a.of[__builtin_ctz(mask)], low = row.step < 0 ? one - row.reach : one;
    sectors = row.reach >= 32ull * (row.many - 1) && row.step ? row.many : (u32)((low + row.reach) / 32 - low / 32) + 1;
}

// For whole words: a row of lanes comes back to a bank after as many as the step's share of 32 says.
bool row_cost(const Addresses &a, u32 mask, u32 &ways) {
    const Row row = row_of(a, mask);
    if (!row.is_row) return false;
    const int64_t words = row.step / 4;
    const u32 banks = words ? 32u >> std::min(5, __builtin_ctzll((u64)words)) : 1;
    ways = words ? (row.many + banks - 1) / banks : 1;
    return true;
}

void count(Warp &w) {
    // What followers share with the leader they have contributed to.
    for (u32 i = 1; i < w.count; ++i) {
        const Lane &l = lanes[w.first + i];
        if (l.follows && l.followed) w.led[l.followed - 1].last |= 1u << i;
    }
    u32 following = 0;
    for (size_t i = w.led.size(); i-- > 0;) {
        following |= w.led[i].last;
        if (w.led[i].head != NONE) w.heads[w.led[i].head].mask |= following;
    }
    for (const Head &head : w.heads) {
        const u32 lanes_here = lanes_in(head.mask);
        if (head.addresses == IS_FLOW) {
            ++flow_requests, flow_lanes += lanes_here;
            continue;
        }
        Site &site = sites[head.site];
        const Region &region = regions[site.region];
        const Addresses &a = w.addresses[head.addresses];
        ++site.requests, site.lanes += lanes_here;
        u32 sectors = 0, wavefronts = 0, phases = 0, worst = 0;
        if (site.kind == ATOMIC) {
            site.operations += lanes_here;
            u32 same = 0;
            for (u32 i = head.mask; i; i &= i - 1) {
                u32 here = 0;
                for (u32 j = head.mask; j; j &= j - 1) here += a.of[__builtin_ctz(i)] == a.of[__builtin_ctz(j)];
                same = std::max(same, here);
            }
            site.worst_same = std::max(site.worst_same, same);
        }
        if (region.space == GLOBAL) {
            u32 ideal = 0;
            global_cost(a, head.mask, site.size, sectors, ideal);
            site.sectors += sectors, site.ideal_sectors += ideal;
            worst = sectors;
        } else {
            if (site.size == 4 && row_cost(a, head.mask, worst)) wavefronts = worst, phases = 1;
            else shared_cost(a, head.mask, site.size, wavefronts, phases, worst);
            site.wavefronts += wavefronts, site.ideal_wavefronts += phases;
            ++site.ways[worst];
        }
        if (!site.sampled || worst > site.worst) {
            site.sampled = true, site.sample_mask = head.mask, site.sample_block = block_number;
            site.sample_warp = w.first / 32;
            for (u32 rest = head.mask; rest; rest &= rest - 1) {
                const int lane = __builtin_ctz(rest);
                site.sample[lane] = (int64_t)(a.of[lane] - region.base);
            }
        }
        site.worst = std::max(site.worst, worst);
        if (block_number == 0 && steps.size() < 4096) {
            Step &step = step_of(head.site);
            ++step.requests, step.lanes += lanes_here, step.sectors += sectors, step.wavefronts += wavefronts;
            step.worst = std::max(step.worst, worst), step.most = std::max(step.most, lanes_here);
            step.masks[w.first / 32] |= head.mask;
        }
    }
    // At a barrier a follower that came as far as the leader has its path.
    for (u32 i = 0; i < w.count; ++i) {
        Lane &l = lanes[w.first + i];
        if (l.follows && l.state == AT_BARRIER) {
            warp = &w;
            if (l.followed + 1 == w.led.size() && lanes[w.first].state == AT_BARRIER) l.alike = true;
            else go_alone(l);
        }
        l.placed = l.leads = l.follows = false;
        l.cursor = 0;
    }
    w.moment = NOBODY;
    w.led.clear(), w.heads.clear(), w.addresses.clear();
    if (++w.generation == 0) w.generation = 1, std::fill(w.table.begin(), w.table.end(), 0);
}

// -- waiting ------------------------------------------------------------------------------------------

void wait(State state, Address pc) {
    settle();
    last_pc = pc;
    current->state = state;
    current->waits_at = pc;
    to_scheduler();
}

void collective(Collective kind, int what, u32 mask, u64 value, int argument, int width, Address pc) {
    Lane &l = *current;
    if (mask == 0 || !(mask >> l.number & 1)) {
        end_launch(here("not_in_mask", pc) + format(", \"mask\": %u, \"lane\": %u}", mask, l.number));
        return;
    }
    l.collective = kind, l.what = what, l.mask = mask, l.value = value, l.argument = argument, l.width = width;
    wait(AT_COLLECTIVE, pc);
}

u64 shuffled(const Warp &w, const Lane &l) {
    // As PTX has it: five bits of the argument count, and xor reaches into earlier segments.
    const int width = l.width, number = (int)l.number, by = l.argument & 31;
    const int start = number / width * width, end = start + width;
    int source = number;
    if (l.what == 0) source = start + by % width;
    else if (l.what == 1 && number - by >= start) source = number - by;
    else if (l.what == 2 && number + by < end) source = number + by;
    else if (l.what == 3 && (number ^ by) < end) source = number ^ by;
    const u64 nothing = ~0ull; // a NaN, or -1: what a lane outside the mask gives is undefined
    if (source < 0 || source >= (int)w.count || !(l.mask >> source & 1)) return nothing;
    const Lane &from = lanes[w.first + (u32)source];
    return from.state == AT_COLLECTIVE ? from.value : nothing;
}

// Lets the lanes of one mask go on if all of them that still run wait for the same.
bool resolve(Warp &w) {
    for (u32 i = 0; i < w.count; ++i) {
        Lane &asking = lanes[w.first + i];
        if (asking.state != AT_COLLECTIVE) continue;
        bool all = true;
        u32 present = 0;
        for (u32 j = 0; j < w.count && all; ++j) {
            const Lane &other = lanes[w.first + j];
            if (!(asking.mask >> j & 1) || other.state == DONE) continue;
            all = other.state == AT_COLLECTIVE && other.mask == asking.mask &&
                  other.collective == asking.collective && other.what == asking.what;
            present |= 1u << j;
        }
        if (!all) continue;
        u32 ballot = 0;
        long long sum = 0;
        bool first = true;
        for (u32 rest = present; rest; rest &= rest - 1) {
            const Lane &l = lanes[w.first + (u32)__builtin_ctz(rest)];
            if (l.value) ballot |= 1u << l.number;
            const long long v = (long long)l.value;
            if (first) sum = v;
            else if (l.what == 0) sum += v;
            else if (l.what == 1) sum = std::min(sum, v);
            else if (l.what == 2) sum = std::max(sum, v);
            else if (l.what == 3) sum &= v;
            else if (l.what == 4) sum |= v;
            else sum ^= v;
            first = false;
        }
        for (u32 rest = present; rest; rest &= rest - 1) {
            Lane &l = lanes[w.first + (u32)__builtin_ctz(rest)];
            if (l.collective == SHUFFLE) l.result = shuffled(w, l);
            else if (l.collective == BALLOT)
                l.result = l.what == 0 ? ballot : l.what == 1 ? ballot != 0 : ballot == present;
            else if (l.collective == REDUCE) l.result = (u64)sum;
        }
        if (asking.collective == SYNCWARP) {
            ++w.turn, w.moment = NOBODY;
            for (u32 a = present; a; a &= a - 1)
                for (u32 b = present; b; b &= b - 1) w.met[__builtin_ctz(a)][__builtin_ctz(b)] = w.turn;
        } else
            ++shuffles;
        for (u32 rest = present; rest; rest &= rest - 1) lanes[w.first + (u32)__builtin_ctz(rest)].state = READY;
        return true;
    }
    return false;
}

// -- a block ------------------------------------------------------------------------------------------

void lane_main() {
    enter_function(0, 0);
    kernel->call(arguments.data());
    settle();
    current->state = DONE;
    to_scheduler();
}

void run(Lane &l) {
    current = &l;
    warp = &warps[l.thread / 32];
    if (l.state == NEW) {
        l.stack = new_stack();
        l.stack_pointer = prepared(l.stack, beginning(l) - (Address)l.stack, lane_main);
    }
    l.state = READY;
    if (!l.placed) place(l);
    allowed = std::min(settings.max_steps, l.steps + settings.max_total - total_steps);
    budget = allowed - l.steps;
    if (l.follows) {
        if (warp->led.back().steps - warp->led[l.followed].steps <= budget) start_following(l);
        else go_alone(l);
    }
    slots = (Address *)warp->addresses.data() + l.number;
    mark = mark_of(warp->moment, l.number);
    places[0] = l.place;
    kernel_runs = true;
    il_switch(&scheduler, l.stack_pointer);
    kernel_runs = false;
    pause_following(l);
    total_steps = std::min(settings.max_total, total_steps + steps_taken() - l.steps);
    l.steps = steps_taken();
    if (l.state == DONE) {
        free_stacks.push_back(l.stack);
        l.stack = nullptr;
    }
    current = nullptr;
}

u64 next_random(u64 &state) {
    state += 0x9e3779b97f4a7c15ull;
    return mix(state, state >> 17);
}

std::vector<u32> order_of(u32 many, u64 seed) {
    std::vector<u32> order(many);
    for (u32 i = 0; i < many; ++i) order[i] = i;
    if (seed)
        for (u32 i = many; i > 1; --i) std::swap(order[i - 1], order[next_random(seed) % i]);
    return order;
}

std::string with_other(const Lane &l) {
    return format(", \"other_thread\": %u, \"other_pc\": %llu", l.thread, (unsigned long long)l.waits_at);
}

// Nobody can run any more: all wait at one barrier, or the kernel is stuck. Whether it goes on.
bool pass_barrier() {
    u32 done = 0;
    const Lane *first = nullptr, *gone = nullptr, *stuck = nullptr;
    for (const Lane &l : lanes) {
        if (l.state == DONE) ++done, gone = gone ? gone : &l;
        else if (l.state == AT_COLLECTIVE) stuck = stuck ? stuck : &l;
        else if (!first) first = &l;
    }
    if (stuck) {
        const Warp &w = warps[stuck->thread / 32];
        const Lane *missing = nullptr;
        for (u32 j = 0; j < w.count && !missing; ++j) {
            const Lane &other = lanes[w.first + j];
            if ((stuck->mask >> j & 1) && other.state != DONE &&
                (other.state != AT_COLLECTIVE || other.mask != stuck->mask || other.collective != stuck->collective))
                missing = &other;
        }
        const char *why = !missing                          ? "stuck_collective"
                          : missing->state == AT_BARRIER    ? "partner_at_barrier"
                          : missing->mask != stuck->mask    ? "partner_with_other_mask"
                                                            : "partner_elsewhere";
        std::string text = format("{\"kind\": \"%s\", \"pc\": %llu, \"thread\": %u, \"block\": %u, \"mask\": %u", why,
                                  (unsigned long long)stuck->waits_at, stuck->thread, block_number, stuck->mask);
        if (missing) text += with_other(*missing) + format(", \"other_mask\": %u", missing->mask);
        end_launch(text + "}");
        return false;
    }
    if (!first) return false; // all have ended
    if (done) {
        end_launch(format("{\"kind\": \"ended_before_barrier\", \"pc\": %llu, \"thread\": %u, \"block\": %u, \"ended\": %u, \"other_thread\": %u}",
                          (unsigned long long)first->waits_at, first->thread, block_number, done, gone->thread));
        return false;
    }
    for (const Lane &l : lanes)
        if (l.waits_at != first->waits_at) {
            end_launch(format("{\"kind\": \"divergent_barrier\", \"pc\": %llu, \"thread\": %u, \"block\": %u",
                              (unsigned long long)first->waits_at, first->thread, block_number) +
                       with_other(l) + "}");
            return false;
        }
    return true;
}

void run_block() {
    epoch = 0, heads_kept = requests_kept = 0;
    for (Region &r : regions)
        if (r.space == SHARED && (r.used || !blocks_run)) {
            memset((void *)r.base, 0xff, r.bytes);
            for (Marks *marks : {&r.writer, &r.first, &r.last}) marks->forget(cells_of(r));
        }
    for (u32 t = 0; t < threads; ++t) {
        Lane &l = lanes[t];
        l.state = NEW, l.steps = 0, l.alike = true;
    }
    unwritten.clear();
    first_moment = epoch_moment = (u32)moments.size();
    for (Warp &w : warps) w.began.clear(), ++w.turn; // what lanes of other blocks met for is over
    const std::vector<u32> order = order_of((u32)warps.size(), settings.seed ? settings.seed + block_number : 0);
    u64 barriers = 0;
    for (;;) {
        for (u32 number : order) {
            Warp &w = warps[number];
            do {
                for (u32 i = 0; i < w.count; ++i) {
                    Lane &l = lanes[w.first + i];
                    if (l.state == NEW || l.state == READY) run(l);
                    if (aborted) return;
                }
            } while (resolve(w));
        }
        tell_unwritten();
        if (aborted || !pass_barrier()) break;
        for (Warp &w : warps) count(w);
        heads_kept = requests_kept = 0;
        epoch_moment = (u32)moments.size();
        ++epoch, ++barriers;
        for (Lane &l : lanes) l.state = READY;
    }
    if (aborted) return;
    for (Warp &w : warps) count(w);
    total_barriers += barriers;
    most_barriers = std::max(most_barriers, barriers);
    ++blocks_run;
}

void run_grid() {
    threads = settings.block[0] * settings.block[1] * settings.block[2];
    const u64 blocks = (u64)settings.grid[0] * settings.grid[1] * settings.grid[2];
    lanes.resize(threads);
    for (u32 t = 0; t < threads; ++t) {
        Lane &l = lanes[t];
        l.thread = t, l.number = t % 32;
        l.place = {t % settings.block[0], t / settings.block[0] % settings.block[1], t / settings.block[0] / settings.block[1]};
    }
    warps.resize((threads + 31) / 32);
    for (u32 i = 0; i < warps.size(); ++i) warps[i].first = 32 * i, warps[i].count = std::min(32u, threads - 32 * i);
    if (blocks > settings.max_total / threads) { // a thread takes one step at least
        end_launch(too_long(0));
        return;
    }
    places[2] = {settings.block[0], settings.block[1], settings.block[2]};
    places[3] = {settings.grid[0], settings.grid[1], settings.grid[2]};
    const std::vector<u32> order = order_of(settings.seed ? (u32)blocks : 0, settings.seed);
    for (u64 turn = 0; turn < blocks; ++turn) {
        const u32 number = settings.seed ? order[turn] : (u32)turn;
        block_number = number;
        places[1] = {number % settings.grid[0], number / settings.grid[0] % settings.grid[1],
                     number / settings.grid[0] / settings.grid[1]};
        run_block();
        if (aborted) {
            for (Warp &w : warps) count(w);
            return;
        }
    }
}

// -- what the kernel's object holds -------------------------------------------------------------------

std::string demangled(const char *name) {
    if (strncmp(name, "_Z", 2)) return name; // `s` alone would be read as `short`
    int status = 0;
    char *text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    std::string found = status == 0 && text ? text : name;
    free(text);
    return found;
}

// Whether a symbol is the shim's, this runtime's or the C library's, and no array of the learner's.
bool is_ours(const std::string &name) {
    for (const char *start : {"il_", "il::", "std::", "__", "_IO_", "guard variable for "})
        if (name.rfind(start, 0) == 0) return true;
    return name == "warpSize";
}

// Shared arrays are the program's thread-local symbols; __device__ and __constant__ ones its objects.
void read_symbols(const std::vector<std::string> &dynamic) {
    const int file = open("/proc/self/exe", O_RDONLY);
    struct stat status;
    if (file < 0 || fstat(file, &status)) _exit(6);
    const size_t bytes = (size_t)status.st_size;
    char *const image = (char *)mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (image == MAP_FAILED) _exit(6);
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + head->e_shoff);
    const char *names = image + sections[head->e_shstrndx].sh_offset;
    for (int i = 0; i < head->e_shnum; ++i) {
        if (!strcmp(names + sections[i].sh_name, ".rodata"))
            literals = sections[i].sh_addr, literals_bytes = sections[i].sh_size;
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(image + sections[i].sh_offset);
        const char *text = image + sections[sections[i].sh_link].sh_offset;
        const size_t many = sections[i].sh_size / sizeof(Elf64_Sym);
        Address tls_base = 0; // the wrapper has one thread-local variable whose address it tells
        for (size_t k = 0; k < many && !tls_base; ++k)
            if (ELF64_ST_TYPE(symbols[k].st_info) == STT_TLS && strstr(text + symbols[k].st_name, "il_touched"))
                tls_base = (Address)il_touch_shared() - symbols[k].st_value;
        bool kernels = false; // the local symbols of one file follow its name
        for (size_t k = 0; k < many; ++k) {
            const Elf64_Sym &symbol = symbols[k];
            const char *name = text + symbol.st_name;
            const int type = ELF64_ST_TYPE(symbol.st_info);
            if (type == STT_FILE) {
                kernels = strcmp(name, "kernel.cpp") == 0;
                continue;
            }
            // What libraries bring along is hidden (--exclude-libs).
            const bool global = ELF64_ST_BIND(symbol.st_info) != STB_LOCAL && ELF64_ST_VISIBILITY(symbol.st_other) == STV_DEFAULT;
            const bool shared = type == STT_TLS && (kernels || global);
            if (!shared && !(type == STT_OBJECT && symbol.st_size && (kernels || global) && symbol.st_shndx < head->e_shnum)) continue;
            if (strncmp(name, "_ZTH", 4) == 0) continue;
            Region region;
            if (strncmp(name, "_ZGV", 4) == 0) {
                // g++ guards a shared array of vectors. Set once, it keeps its lane out of the
                // beginning that is none, and its region without a name is counted nowhere.
                if (!shared) continue;
                region.space = CONSTANT;
                region.base = tls_base + symbol.st_value, region.bytes = symbol.st_size;
                *(char *)region.base = 1;
                regions.push_back(region);
                continue;
            }
            region.name = demangled(name);
            if (is_ours(region.name)) continue;
            if (shared) {
                region.space = SHARED;
                region.base = tls_base + symbol.st_value;
                region.bytes = symbol.st_size;
                region.dynamic = std::find(dynamic.begin(), dynamic.end(), region.name) != dynamic.end();
                // All dynamic arrays are one memory, which has the name that the kernel gives it.
                if (region.dynamic && region.name != dynamic[0]) continue;
                if (region.dynamic) region.bytes = settings.dynamic_bytes;
            } else {
                const char *section = names + sections[symbol.st_shndx].sh_name;
                const bool constant = strcmp(section, ".il_constant") == 0;
                const bool data = !strcmp(section, ".data") || !strcmp(section, ".bss") || !strcmp(section, ".rodata");
                if (!constant && !data) continue;
                region.space = constant ? CONSTANT : GLOBAL;
                region.read_only = constant || !strcmp(section, ".rodata");
                region.base = symbol.st_value;
                region.bytes = symbol.st_size;
            }
            regions.push_back(region);
        }
    }
    munmap(image, bytes);
}

void make_marks() {
    for (Region &r : regions) {
        if (r.space == CONSTANT || !r.bytes) continue;
        r.watched = r.space == SHARED || settings.races, r.plain = settings.races;
        if (r.watched) new_marks(r, cells_of(r));
    }
}

void on_fault(int number, siginfo_t *info, void *) {
    const Address a = (Address)info->si_addr;
    kernel_runs = false;
    const char *kind = number == SIGFPE ? "division" : "fault";
    if (current && current->stack && a < (Address)current->stack && a >= (Address)current->stack - GUARD_BYTES)
        kind = "stack";
    if (error.empty()) error = here(kind, last_pc) + "}";
    write_report();
    _exit(0);
}

void watch_faults() {
    static char space[65536];
    stack_t stack = {};
    stack.ss_sp = space, stack.ss_size = sizeof space;
    sigaltstack(&stack, nullptr);
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    for (int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(number, &action, nullptr);
}

// -- the order ----------------------------------------------------------------------------------------

[[noreturn]] void refuse(const std::string &why) {
    fprintf(stderr, "%s\n", why.c_str());
    _exit(3);
}

std::vector<u64> values; // of scalars, kept alive

void read_spec(const char *spec, const char *data) {
    FILE *file = fopen(spec, "r");
    if (!file) refuse("the order cannot be read");
    int memory = open(data, O_RDWR);
    if (memory < 0) refuse("the arrays cannot be opened");
    const size_t gap = 64u << 20;
    char line[4096];
    std::vector<std::string> dynamic;
    std::vector<Address> bases;
    values.reserve(256);
    std::vector<bool> named; // by array: whether a parameter said what its elements are
    while (fgets(line, sizeof line, file)) {
        char word[64], name[256];
        unsigned long long a = 0, b = 0, c = 0, d = 0;
        if (sscanf(line, "%63s", word) != 1) continue;
        const std::string what = word;
        if (what == "kernel" && sscanf(line, "%*s %255s", name) == 1) {
            for (int i = 0; i < il_kernel_count; ++i)
                if (!strcmp(il_kernels[i].name, name)) kernel = &il_kernels[i];
        } else if (what == "grid") sscanf(line, "%*s %u %u %u", &settings.grid[0], &settings.grid[1], &settings.grid[2]);
        else if (what == "block") sscanf(line, "%*s %u %u %u", &settings.block[0], &settings.block[1], &settings.block[2]);
        else if (what == "shared") sscanf(line, "%*s %zu", &settings.dynamic_bytes);
        else if (what == "steps" && sscanf(line, "%*s %llu", &a) == 1) settings.max_steps = a;
        else if (what == "total" && sscanf(line, "%*s %llu", &a) == 1) settings.max_total = a;
        else if (what == "requests" && sscanf(line, "%*s %llu", &a) == 1) settings.max_requests = a;
        else if (what == "seed" && sscanf(line, "%*s %llu", &a) == 1) settings.seed = a;
        else if (what == "races" && sscanf(line, "%*s %llu", &a) == 1) settings.races = a != 0;
        else if (what == "dynamic" && sscanf(line, "%*s %255s", name) == 1) dynamic.push_back(name);
        else if (what == "array" && sscanf(line, "%*s %llu %llu %llu %llu %255s", &a, &b, &c, &d, name) == 5) {
            // offset in the file, bytes, bytes of an element, whether it may only be read
            Region region;
            region.name = name, region.bytes = b, region.element = (u32)c, region.read_only = d != 0;
            const size_t room = (b + 4095) / 4096 * 4096 + 4096;
            char *place = (char *)mmap(nullptr, room + 2 * gap, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (place == MAP_FAILED) refuse("no room for the arrays");
            region.base = (Address)(place + gap);
            if (b && mmap(place + gap, room - 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory, (off_t)a) == MAP_FAILED)
                refuse("the arrays cannot be mapped");
            bases.push_back(region.base);
            named.push_back(false);
            regions.push_back(region);
        } else if (what == "pointer" && sscanf(line, "%*s %llu %llu", &a, &b) == 2) {
            if (a >= bases.size()) refuse("no such array");
            const int number = (int)values.size();
            // Elements are told as the kernel's parameter has them.
            if (kernel && number < kernel->count && kernel->parameters[number].element && !named[a])
                regions[a].element = kernel->parameters[number].element, named[a] = true;
            values.push_back(bases[a] + b);
        } else if (what == "value" && sscanf(line, "%*s %llx %llu", &a, &b) == 2) {
            const int number = (int)values.size();
            if (kernel && number < kernel->count && kernel->parameters[number].bytes != b)
                refuse(format("argument %d has %u bytes, %llu were given", number + 1, kernel->parameters[number].bytes, b));
            values.push_back(a);
        }
        else if (what == "null") values.push_back(0);
    }
    fclose(file);
    close(memory);
    if (!kernel) refuse("no such kernel");
    if ((int)values.size() != kernel->count) refuse("another number of arguments");
    for (u64 &value : values) arguments.push_back(&value);
    read_symbols(dynamic);
    make_marks();
}

} // namespace il

// -- what the kernel's object calls -------------------------------------------------------------------

using namespace il;

extern "C" {

Place il_where(int which) { return places[which]; }
void il_barrier() { wait(AT_BARRIER, CALLER); }
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
    // What came before the block's last barrier is published with what this thread wrote itself.
    published[block_number] = std::max(published[block_number], epoch);
    const u64 thread = (u64)block_number * threads + current->thread;
    if (thread < last_fence.size()) last_fence[thread] = fences;
}
void il_atomic(void *address, unsigned int bytes) { access((Address)address, bytes, ATOMIC, CALLER); }
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
    setrlimit(RLIMIT_FSIZE, &file); // a kernel that prints for ever; arrays are mapped, not written
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
