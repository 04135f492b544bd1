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
#include <link.h>
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
#define CALLER ((Address)__builtin_return_address(0))
#define FRAME ((Address)__builtin_frame_address(1))

namespace il {

enum Kind { READ, WRITE, ATOMIC, FLOW, ENTERED, LEFT, PASSED };
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
    u32 moment = NOBODY;
    uint16_t site = 0;
    uint8_t lane = 0, atomic = 0;
};
struct Cell {
    Mark writer, first, last;
};

struct Region {
    std::string name;
    Address base = 0;
    size_t bytes = 0;
    u32 element = 4;
    Space space = GLOBAL;
    bool read_only = false, dynamic = false, used = false;
    u32 shift = 2; // a cell stands for a word, or for a byte once something smaller was touched
    Cell *cells = nullptr;
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

struct Suspect { // a second write to a word, which may turn out to store the same value
    bool open = false;
    Address address = 0;
    u32 size = 0, region = 0;
    unsigned char before[16];
    Touch other, mine;
};

struct Lane {
    State state = NEW;
    u32 thread = 0, number = 0; // in the block; in the warp
    u32 x = 0, y = 0, z = 0;
    void *stack_pointer = nullptr;
    char *stack = nullptr;
    Address waits_at = 0;
    u64 steps = 0, allowed = 0;
    u32 cursor = 0;
    // The first lane of a warp after a barrier leads. One that begins on the same path follows it,
    // event by event, as long as they are the same: then its path is the leader's, and need not be
    // computed. `at` is the last event that both met, `followed` how many.
    bool placed = false, leads = false, follows = false;
    u32 at = 0, followed = 0;
    u64 path = 0;
    u32 loops_used = 0, frames_used = 0;
    Loop loops[MAX_LOOPS];
    Frame frames[MAX_FRAMES];
    Suspect suspect;
    // at a warp-level function
    Collective collective = SHUFFLE;
    int what = 0, argument = 0, width = 0;
    u32 mask = 0;
    u64 value = 0, result = 0;
};

// A request in the making, or another event on the way of the lane that leads: `next` is what it met
// after this one. For ENTERED, `site` is how deep in the lane's stack the frame lies.
struct alignas(32) Head {
    u64 key, tag;
    u32 site, mask, addresses, next;
};
const u32 NONE = ~0u, IS_FLOW = ~0u, IS_MARK = ~0u - 1; // the last two stand in `addresses`
struct Addresses {
    Addresses() {} // only what lanes write is read
    Address of[32];
};

struct Warp {
    u32 first = 0, count = 0; // lanes
    u32 turn = 1, moment = NOBODY;
    u32 met[32][32] = {};
    u32 leader = NONE, tail = 0, led = 0; // its last event, and how many there are
    u64 start = 0;                        // where it began
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
u64 races_seen = 0;
std::vector<Lane> lanes;
std::vector<Warp> warps;
std::vector<char *> free_stacks;
Lane *current = nullptr;
Warp *warp = nullptr;
u32 block_number = 0, block_x = 0, block_y = 0, block_z = 0, epoch = 0, fences = 0, threads = 0;
bool kernel_runs = false, aborted = false, reported = false;
void *scheduler = nullptr;
const il_kernel *kernel = nullptr;
std::vector<void *> arguments;
Address tls_base = 0;
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
    if (free_stacks.empty()) {
        const size_t many = 32, each = STACK_BYTES + GUARD_BYTES;
        char *block = (char *)mmap(nullptr, many * each, PROT_READ | PROT_WRITE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (block == MAP_FAILED) _exit(5);
        for (size_t i = 0; i < many; ++i) {
            mprotect(block + i * each, GUARD_BYTES, PROT_NONE);
            free_stacks.push_back(block + i * each + GUARD_BYTES);
        }
    }
    char *stack = free_stacks.back();
    free_stacks.pop_back();
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

std::string endless(Address pc) {
    return here("endless", pc) + format(", \"limit\": %llu}", (unsigned long long)current->steps - 1);
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
    std::string text = here("out_of_bounds", pc) + format(", \"access\": \"%s\", \"size\": %u", KINDS[kind], size);
    if (a < 4096) text += ", \"null\": true";
    else if (current && a - (Address)current->stack + (1u << 20) < (2u << 20)) text += ", \"local\": true";
    else if (nearest && least < (64u << 20))
        text += format(", \"array\": %s, \"offset\": %lld, \"element\": %u, \"bytes\": %zu, \"space\": \"%s\"",
                       quoted(nearest->name).c_str(), (long long)(a - nearest->base), nearest->element,
                       nearest->bytes, SPACES[nearest->space]);
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
    auto found = known_sites.emplace(SiteKey{pc, (u32)kind, region, size}, (u32)sites.size());
    if (found.second) {
        if (sites.size() > 65535) stop_for_moments();
        Site site;
        site.pc = pc, site.kind = kind, site.region = region, site.size = size;
        sites.push_back(site);
    }
    return found.first->second;
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
inline u32 request(u64 key, u64 tag, bool &fresh) {
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
                if (w.heads[i].addresses == IS_MARK) continue;
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
            end_launch(l.steps > settings.max_heads / 8 ? endless(last_pc) : too_many("too_many_steps", last_pc, settings.max_heads));
        u32 index = (u32)w.heads.size();
        w.table[slot] = (u64)w.generation << 32 | (index + 1);
        w.heads.push_back(Head{key, tag, 0, bit, 0, NONE});
        l.cursor = index + 1;
        fresh = true;
        return index;
    }
}

// -- races --------------------------------------------------------------------------------------------

Touch told(const Mark &mark) {
    const Moment &m = moments[mark.moment];
    Touch t;
    t.block1 = m.block1, t.epoch = m.epoch, t.turn = m.turn, t.fences = m.fences, t.site = mark.site;
    t.thread = (uint16_t)(m.warp * 32 + mark.lane), t.atomic = mark.atomic;
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
    if (mark.moment == NOBODY) return true;
    const Lane &l = *current;
    if (mark.moment == warp->moment) return mark.lane == l.number;
    if (mark.moment < first_moment && space == SHARED) return true;
    const Moment &m = moments[mark.moment];
    if (m.block1 != block_number + 1) return space == SHARED || is_published(m, mark.lane);
    if (m.epoch < epoch) return true;
    if (m.warp != l.thread / 32) return false;
    return mark.lane == l.number || m.turn < warp->met[mark.lane][l.number];
}

inline bool is_of_block(const Mark &mark) {
    return mark.moment >= first_moment;
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

// A write after another thread's write is no race if it stores what was there already.
COLD void settle_now(Suspect &s) {
    s.open = false;
    if (memcmp((void *)s.address, s.before, s.size) != 0)
        note_race(s.other, s.other.atomic ? ATOMIC : WRITE, s.mine, WRITE, s.region, s.address);
}
inline void settle(Lane &l) {
    if (l.suspect.open) settle_now(l.suspect);
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
        const Cell &cell = region.cells[u.word];
        if (is_of_block(cell.writer) && settings.races) continue;
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

Cell *new_cells(size_t many) {
    void *cells = mmap(nullptr, many * sizeof(Cell), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (cells == MAP_FAILED) _exit(5);
    madvise(cells, many * sizeof(Cell), MADV_HUGEPAGE); // thousands of page faults less
    return (Cell *)cells;
}

// From now on a cell for each byte: neighbours in one word do not race.
void split_cells(Region &region, u32 index) {
    Cell *words = region.cells;
    region.cells = new_cells(region.bytes + 8);
    for (size_t i = 0; i < region.bytes; ++i) region.cells[i] = words[i / 4];
    munmap(words, (region.bytes / 4 + 2) * sizeof(Cell));
    for (Unwritten &u : unwritten)
        if (u.region == index) u.word *= 4;
    region.shift = 0;
}

void check_races(Address a, u32 size, Kind kind, u32 region_index, Region &region, u32 site) {
    Lane &l = *current;
    Mark mine;
    mine.moment = present(), mine.site = (uint16_t)site, mine.lane = (uint8_t)l.number;
    mine.atomic = kind == ATOMIC;
    if (size < 4 && region.shift) split_cells(region, region_index);
    const Address first = (a - region.base) >> region.shift, last = (a + size - 1 - region.base) >> region.shift;
    bool noted = false;
    for (Address word = first; word <= last; ++word) {
        Cell &cell = region.cells[word];
        const Address place = region.base + (word << region.shift);
        if (kind != WRITE && region.space == SHARED && !is_of_block(cell.writer) && unwritten.size() < 64)
            unwritten.push_back(Unwritten{region_index, word, site, l.thread});
        if (!settings.races) {
            if (kind != READ) cell.writer = mine;
            continue;
        }
        if (kind == WRITE && (cell.writer.moment | cell.first.moment | cell.last.moment) == NOBODY) {
            cell.writer = mine;
            continue;
        }
        const bool after = is_before(cell.writer, region.space);
        if (kind == READ) {
            if (!after && !cell.writer.atomic && !noted) {
                note_race(told(cell.writer), WRITE, told(mine), READ, region_index, place);
                noted = true;
            }
            if (is_before(cell.first, region.space)) cell.first = mine;
            else cell.last = mine;
            continue;
        }
        if (!after && !noted && !(kind == ATOMIC && cell.writer.atomic)) {
            noted = true;
            if (kind == WRITE && !cell.writer.atomic && size <= 16) {
                Suspect &s = l.suspect;
                s.open = true, s.address = a, s.size = size, s.region = region_index;
                s.other = told(cell.writer), s.mine = told(mine);
                memcpy(s.before, (void *)a, size);
            } else
                note_race(told(cell.writer), cell.writer.atomic ? ATOMIC : WRITE, told(mine), kind, region_index, place);
        }
        if (kind == WRITE) {
            for (const Mark *reader : {&cell.first, &cell.last})
                if (!noted && !is_before(*reader, region.space)) {
                    note_race(told(*reader), READ, told(mine), WRITE, region_index, place);
                    noted = true;
                }
            cell.first = Mark(), cell.last = Mark();
        }
        cell.writer = mine;
    }
}

// -- the path of a lane -------------------------------------------------------------------------------

inline u64 tag_of(Address pc, Kind kind, u32 part = 0) { return ((u64)pc ^ (u64)part << 44) << 3 | kind; }

inline u64 turn_of(const Loop &loop) { return mix(mix(loop.before, loop.head), loop.turns); }

inline void path_of(Lane &l) {
    const Frame &frame = l.frames[l.frames_used - 1];
    l.path = l.loops_used > frame.loops ? turn_of(l.loops[l.loops_used - 1]) : frame.path;
}

// The path when a basic block begins; false if it is too deep.
inline bool step_path(Lane &l, Address pc) {
    Frame &frame = l.frames[l.frames_used - 1];
    if (pc <= frame.last) { // backwards: another turn of the loop that begins here
        while (l.loops_used > frame.loops && l.loops[l.loops_used - 1].head > pc) --l.loops_used;
        Loop *top = l.loops_used > frame.loops ? &l.loops[l.loops_used - 1] : nullptr;
        if (top && top->head == pc) {
            ++top->turns;
            top->latch = std::max(top->latch, frame.last);
            l.path = turn_of(*top);
        } else {
            if (l.loops_used == MAX_LOOPS) return false;
            const u64 before = top ? turn_of(*top) : frame.path;
            l.loops[l.loops_used++] = Loop{pc, frame.last, before, 1};
            l.path = turn_of(l.loops[l.loops_used - 1]);
        }
    } else if (l.loops_used > frame.loops && pc > l.loops[l.loops_used - 1].latch) {
        do --l.loops_used;
        while (l.loops_used > frame.loops && pc > l.loops[l.loops_used - 1].latch);
        path_of(l);
    }
    frame.last = pc;
    return true;
}

inline void push_frame(Lane &l, Address caller, Address base) {
    const u64 path = l.frames_used ? mix(l.path, caller) : 0x1234;
    l.frames[l.frames_used++] = Frame{l.loops_used, path, 0, base};
    l.path = path;
}

inline void pop_frame(Lane &l) {
    if (l.frames_used <= 1) return;
    l.loops_used = l.frames[--l.frames_used].loops;
    path_of(l);
}

// -- leading and following ----------------------------------------------------------------------------

inline void lead_to(u32 number) {
    Warp &w = *warp;
    w.heads[w.tail].next = number;
    w.tail = number, ++w.led;
}

inline void lead_past(u64 tag, u32 extra = 0) {
    warp->heads.push_back(Head{0, tag, extra, 0, IS_MARK, NONE});
    ++heads_kept;
    lead_to((u32)warp->heads.size() - 1);
}

inline void follow(Lane &l, u32 number) {
    warp->heads[number].mask |= 1u << l.number;
    l.at = number, ++l.followed;
}

inline bool follows_to(Lane &l, u64 tag) {
    const u32 expected = warp->heads[l.at].next;
    if (expected == NONE || warp->heads[expected].tag != tag) return false;
    follow(l, expected);
    return true;
}

// Walk the leader's events as far as the lane followed, and compute its path at last.
void go_alone(Lane &l) {
    const Warp &w = *warp;
    l.follows = false;
    l.cursor = l.at + 1;
    u32 at = 0;
    for (u32 i = 0; i < l.followed; ++i) {
        at = w.heads[at].next;
        const Head &head = w.heads[at];
        const Address pc = head.tag >> 3;
        const Kind kind = (Kind)(head.tag & 7);
        if (kind == FLOW) step_path(l, pc);
        else if (kind == ENTERED) push_frame(l, pc, head.site ? beginning(l) - head.site : 0);
        else if (kind == LEFT) pop_frame(l);
    }
}

// What a lane is, when it runs for the first time after a barrier.
void place(Lane &l) {
    Warp &w = *warp;
    l.placed = true;
    const u64 start = mix(l.path, l.frames_used ? l.frames[l.frames_used - 1].last : 0);
    if (w.leader == NONE) {
        w.leader = l.number, w.start = start, w.led = 0;
        w.tail = (u32)w.heads.size();
        w.heads.push_back(Head{0, 0, 0, 0, IS_MARK, NONE}); // before its first event
        l.leads = true;
    } else if (start == w.start)
        l.follows = true, l.at = 0, l.followed = 0;
}

// At a barrier: a follower that came as far as the leader has its path.
void catch_up(Warp &w, Lane &l) {
    const Lane &leader = lanes[w.first + w.leader];
    if (l.followed != w.led || leader.state != AT_BARRIER) {
        warp = &w;
        go_alone(l);
        return;
    }
    l.path = leader.path, l.loops_used = leader.loops_used, l.frames_used = leader.frames_used;
    std::copy(leader.loops, leader.loops + leader.loops_used, l.loops);
    std::copy(leader.frames, leader.frames + leader.frames_used, l.frames);
    for (u32 i = 0; i < l.frames_used; ++i)
        if (l.frames[i].base) l.frames[i].base += beginning(l) - beginning(leader);
}

COLD void too_deep(Address pc) { end_launch(here("too_deep", pc) + "}"); }
COLD void stop_stepping(Address pc) {
    end_launch(current->steps > settings.max_steps ? endless(pc) : too_long(pc));
}

__attribute__((noinline)) void enter_block_alone(Lane &l, Address pc, Address base) {
    if (l.follows) go_alone(l);
    if (l.frames[l.frames_used - 1].base != base) { // g++ ends a function (func_exit) before its last block
        if (l.leads) lead_past(tag_of(pc, PASSED));
        return;
    }
    if (!step_path(l, pc)) return too_deep(pc);
    bool fresh;
    const u32 number = request(key_of(l.path, pc, FLOW), tag_of(pc, FLOW), fresh);
    if (fresh) warp->heads[number].addresses = IS_FLOW;
    if (l.leads) lead_to(number);
}

inline void enter_block(Address pc, Address base) {
    Lane &l = *current;
    settle(l);
    last_pc = pc;
    if (++l.steps > l.allowed) return stop_stepping(pc);
    if (l.follows) {
        const u32 expected = warp->heads[l.at].next;
        if (expected != NONE) {
            const u64 tag = warp->heads[expected].tag;
            if (tag == tag_of(pc, FLOW) || tag == tag_of(pc, PASSED)) return follow(l, expected);
        }
    }
    enter_block_alone(l, pc, base);
}

inline void enter_function(Address caller, Address base) {
    Lane &l = *current;
    if (l.follows) {
        if (follows_to(l, tag_of(caller, ENTERED))) return;
        go_alone(l);
    }
    if (l.frames_used == MAX_FRAMES) return too_deep(caller);
    if (l.leads) lead_past(tag_of(caller, ENTERED), base ? (u32)(beginning(l) - base) : 0);
    push_frame(l, caller, base);
}

inline void leave_function() {
    Lane &l = *current;
    settle(l);
    if (l.follows) {
        if (follows_to(l, tag_of(0, LEFT))) return;
        go_alone(l);
    }
    if (l.leads) lead_past(tag_of(0, LEFT));
    pop_frame(l);
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
    const u32 number = request(key_of(l.path + part, pc, kind), tag, fresh);
    if (fresh) {
        Head &head = warp->heads[number];
        head.site = site_of(pc, kind, region, size);
        head.addresses = (u32)warp->addresses.size();
        if (++requests_kept > settings.max_requests) end_launch(too_many("too_many_requests", pc, settings.max_requests));
        warp->addresses.emplace_back();
    }
    if (l.leads) lead_to(number);
    return number;
}

void access(Address a, u32 size, Kind kind, Address pc, u32 part = 0) {
    if (!kernel_runs) return;
    Lane &l = *current;
    if (a - (Address)l.stack < STACK_BYTES) return;
    settle(l);
    last_pc = pc;
    const u64 tag = tag_of(pc, kind, part);
    const u32 expected = l.follows ? warp->heads[l.at].next : NONE;
    const bool as_led = expected != NONE && warp->heads[expected].tag == tag;
    u32 index = as_led ? sites[warp->heads[expected].site].region : last_region;
    Region *region = region_at(a, size, index);
    if (!region) {
        if (kind == READ && a - literals < literals_bytes) return;
        return out_of_bounds(a, size, kind, pc);
    }
    if ((size & (size - 1)) == 0 && (a & (size - 1))) return refuse_access("misaligned", a, size, kind, pc, *region);
    if (kind != READ && region->read_only) return refuse_access("read_only", a, size, kind, pc, *region);
    region->used = true;
    if (region->space == CONSTANT) return;
    u32 number = expected;
    if (as_led) follow(l, expected);
    else number = request_alone(pc, kind, part, tag, index, size);
    const Head &head = warp->heads[number];
    warp->addresses[head.addresses].of[l.number] = a;
    if (region->cells) check_races(a, size, kind, index, *region, head.site);
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

void count(Warp &w) {
    for (const Head &head : w.heads) {
        const u32 lanes_here = (u32)__builtin_popcount(head.mask);
        if (head.addresses == IS_MARK) continue;
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
            sectors = distinct(a, head.mask, site.size, 5);
            site.sectors += sectors;
            site.ideal_sectors += site.size < 4 ? (distinct(a, head.mask, site.size, 0) + 31) / 32
                                                : (distinct(a, head.mask, site.size, 2) + 7) / 8;
            worst = sectors;
        } else {
            shared_cost(a, head.mask, site.size, wavefronts, phases, worst);
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
    for (u32 i = 0; i < w.count; ++i) {
        Lane &l = lanes[w.first + i];
        if (l.follows && l.state == AT_BARRIER) catch_up(w, l);
        l.placed = l.leads = l.follows = false;
    }
    w.leader = NONE, w.moment = NOBODY;
    w.heads.clear(), w.addresses.clear();
    if (++w.generation == 0) w.generation = 1, std::fill(w.table.begin(), w.table.end(), 0);
    for (u32 i = 0; i < w.count; ++i) lanes[w.first + i].cursor = 0;
}

// -- waiting ------------------------------------------------------------------------------------------

void wait(State state, Address pc) {
    settle(*current);
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
    settle(*current);
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
    const u64 before = l.steps;
    l.allowed = std::min(settings.max_steps, before + settings.max_total - total_steps);
    kernel_runs = true;
    il_switch(&scheduler, l.stack_pointer);
    kernel_runs = false;
    total_steps = std::min(settings.max_total, total_steps + l.steps - before);
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

std::string waiting(const Lane &l) {
    const char *where = l.state == DONE ? "end" : l.state == AT_BARRIER ? "barrier" : "collective";
    return format("{\"thread\": %u, \"at\": \"%s\", \"pc\": %llu}", l.thread, where, (unsigned long long)l.waits_at);
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
        std::string text = format("{\"kind\": \"stuck_collective\", \"pc\": %llu, \"thread\": %u, \"block\": %u, \"mask\": %u",
                                  (unsigned long long)stuck->waits_at, stuck->thread, block_number, stuck->mask);
        if (missing) {
            text += ", \"missing\": " + waiting(*missing);
            if (missing->state == AT_COLLECTIVE) text += format(", \"missing_mask\": %u", missing->mask);
        }
        end_launch(text + "}");
        return false;
    }
    if (!first) return false; // all have ended
    if (done) {
        end_launch(format("{\"kind\": \"ended_before_barrier\", \"pc\": %llu, \"thread\": %u, \"block\": %u, \"ended\": %u, \"gone\": %u}",
                          (unsigned long long)first->waits_at, first->thread, block_number, done, gone->thread));
        return false;
    }
    for (const Lane &l : lanes)
        if (l.waits_at != first->waits_at) {
            end_launch(format("{\"kind\": \"divergent_barrier\", \"pc\": %llu, \"thread\": %u, \"block\": %u, \"other\": ",
                              (unsigned long long)first->waits_at, first->thread, block_number) +
                       waiting(l) + "}");
            return false;
        }
    return true;
}

void run_block() {
    epoch = 0, heads_kept = requests_kept = 0;
    for (Region &r : regions)
        if (r.space == SHARED) memset((void *)r.base, 0xff, r.bytes);
    for (u32 t = 0; t < threads; ++t) {
        Lane &l = lanes[t];
        l.state = NEW, l.cursor = 0, l.path = 0, l.loops_used = l.frames_used = 0, l.steps = 0;
        l.suspect.open = false, l.placed = l.leads = l.follows = false;
    }
    unwritten.clear();
    first_moment = (u32)moments.size();
    for (Warp &w : warps) w.leader = NONE, w.moment = NOBODY, ++w.turn; // what lanes of other blocks met for is over
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
        l.x = t % settings.block[0], l.y = t / settings.block[0] % settings.block[1];
        l.z = t / settings.block[0] / settings.block[1];
    }
    warps.resize((threads + 31) / 32);
    for (u32 i = 0; i < warps.size(); ++i) warps[i].first = 32 * i, warps[i].count = std::min(32u, threads - 32 * i);
    if (blocks > settings.max_total / threads) { // a thread takes one step at least
        end_launch(too_long(0));
        return;
    }
    const std::vector<u32> order = order_of(settings.seed ? (u32)blocks : 0, settings.seed);
    for (u64 turn = 0; turn < blocks; ++turn) {
        const u32 number = settings.seed ? order[turn] : (u32)turn;
        block_number = number;
        block_x = number % settings.grid[0], block_y = number / settings.grid[0] % settings.grid[1];
        block_z = number / settings.grid[0] / settings.grid[1];
        run_block();
        if (aborted) {
            for (Warp &w : warps) count(w);
            return;
        }
    }
}

// -- what the kernel's object holds -------------------------------------------------------------------

int find_tls(dl_phdr_info *info, size_t, void *) {
    for (int i = 0; i < info->dlpi_phnum; ++i)
        if (info->dlpi_phdr[i].p_type == PT_TLS) tls_base = (Address)info->dlpi_tls_data;
    return 1; // the program itself comes first
}

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
    il_touch_shared();
    dl_iterate_phdr(find_tls, nullptr);
    FILE *file = fopen("/proc/self/exe", "rb");
    if (!file) _exit(6);
    std::vector<char> image;
    char chunk[65536];
    for (size_t got; (got = fread(chunk, 1, sizeof chunk, file)) > 0;) image.insert(image.end(), chunk, chunk + got);
    fclose(file);
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image.data();
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(image.data() + head->e_shoff);
    const char *names = image.data() + sections[head->e_shstrndx].sh_offset;
    for (int i = 0; i < head->e_shnum; ++i) {
        if (!strcmp(names + sections[i].sh_name, ".rodata"))
            literals = sections[i].sh_addr, literals_bytes = sections[i].sh_size;
        if (sections[i].sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *symbols = (const Elf64_Sym *)(image.data() + sections[i].sh_offset);
        const char *text = image.data() + sections[sections[i].sh_link].sh_offset;
        const size_t many = sections[i].sh_size / sizeof(Elf64_Sym);
        bool kernels = false; // the local symbols of one file follow its name
        for (size_t k = 0; k < many; ++k) {
            const Elf64_Sym &symbol = symbols[k];
            const char *name = text + symbol.st_name;
            const int type = ELF64_ST_TYPE(symbol.st_info);
            if (type == STT_FILE) {
                kernels = strcmp(name, "kernel.cpp") == 0;
                continue;
            }
            const bool global = ELF64_ST_BIND(symbol.st_info) != STB_LOCAL;
            if (strncmp(name, "_ZTH", 4) == 0) continue;
            Region region;
            if (strncmp(name, "_ZGV", 4) == 0) {
                // g++ guards a shared array of vectors. Set once, it keeps its lane out of the
                // beginning that is none, and its region without a name is counted nowhere.
                if (type != STT_TLS) continue;
                region.space = CONSTANT;
                region.base = tls_base + symbol.st_value, region.bytes = symbol.st_size;
                *(char *)region.base = 1;
                regions.push_back(region);
                continue;
            }
            region.name = demangled(name);
            if (type == STT_TLS && !is_ours(region.name)) {
                region.space = SHARED;
                region.base = tls_base + symbol.st_value;
                region.bytes = symbol.st_size;
                region.dynamic = std::find(dynamic.begin(), dynamic.end(), region.name) != dynamic.end();
                // All dynamic arrays are one memory, which has the name that the kernel gives it.
                if (region.dynamic && region.name != dynamic[0]) continue;
                if (region.dynamic) region.bytes = settings.dynamic_bytes;
            } else if (type == STT_OBJECT && symbol.st_size && (kernels || global) && symbol.st_shndx < head->e_shnum) {
                const char *section = names + sections[symbol.st_shndx].sh_name;
                const bool constant = strcmp(section, ".il_constant") == 0;
                const bool data = !strcmp(section, ".data") || !strcmp(section, ".bss") || !strcmp(section, ".rodata");
                if (!constant && !data || is_ours(region.name)) continue;
                region.space = constant ? CONSTANT : GLOBAL;
                region.read_only = constant || !strcmp(section, ".rodata");
                region.base = symbol.st_value;
                region.bytes = symbol.st_size;
            } else
                continue;
            regions.push_back(region);
        }
    }
}

void make_cells() {
    for (Region &r : regions) {
        if (r.space == CONSTANT || !r.bytes) continue;
        if (r.space == SHARED || settings.races) r.cells = new_cells(r.bytes / 4 + 2);
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
    make_cells();
}

} // namespace il

// -- what the kernel's object calls -------------------------------------------------------------------

using namespace il;

extern "C" {

struct il_uint3 {
    unsigned int x, y, z;
};

il_uint3 il_where(int which) {
    if (which == 0) return {current->x, current->y, current->z};
    if (which == 1) return {block_x, block_y, block_z};
    const u32 *sizes = which == 2 ? settings.block : settings.grid;
    return {sizes[0], sizes[1], sizes[2]};
}
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
    settle(*current);
    if (scope == 0) return;
    ++fences;
    for (Warp &w : warps) w.moment = NOBODY;
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
    if (kernel_runs) enter_function((Address)caller, FRAME);
}
void __tsan_func_exit() {
    if (kernel_runs) leave_function();
}
void __sanitizer_cov_trace_pc() {
    if (kernel_runs) enter_block(CALLER, FRAME);
}
#define IL_HOOKS(size)                                                                             \
    void __tsan_read##size(void *a) { access((Address)a, size, READ, CALLER); }                    \
    void __tsan_write##size(void *a) { access((Address)a, size, WRITE, CALLER); }                  \
    void __tsan_read_write##size(void *a) {                                                        \
        access((Address)a, size, READ, CALLER);                                                    \
        access((Address)a, size, WRITE, CALLER);                                                   \
    }                                                                                              \
    void __tsan_unaligned_read##size(void *a) { access((Address)a, size, READ, CALLER); }          \
    void __tsan_unaligned_write##size(void *a) { access((Address)a, size, WRITE, CALLER); }        \
    void __tsan_volatile_read##size(void *a) { access((Address)a, size, READ, CALLER); }           \
    void __tsan_volatile_write##size(void *a) { access((Address)a, size, WRITE, CALLER); }
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
