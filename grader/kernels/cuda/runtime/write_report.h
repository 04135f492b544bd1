// The report of a launch, as JSON.
#pragma once

#include "state.h"

namespace il {

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
        fprintf(out,
                "%s{\"name\": %s, \"space\": \"%s\", \"base\": %llu, \"bytes\": %zu, \"element\": %u, "
                "\"used\": %s, \"dynamic\": %s}",
                i ? ", " : "", quoted(r.name).c_str(), SPACES[r.space], (unsigned long long)r.base, r.bytes, r.element,
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

} // namespace il
