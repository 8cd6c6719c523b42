// Every kernel but the products.
#include <cstring>

#include "bench/cases.h"
#include "contract/attention.h"
#include "contract/blocks.h"

namespace muser::bench {
namespace {

using device::Device;

constexpr uint32_t kQ = kHeads * kHeadDim, kKv = kKvHeads * kHeadDim;

// Positions at which attention is measured: a full ring, and a long plane.
constexpr uint32_t kLong = 32768;

KvView full_view(uint32_t count) {
    KvView view = {};
    view.count = count;
    view.older = count - 1;
    view.write_row = count - 1;
    view.chunks = count / MUSER_CHUNK;
    return view;
}

BufferRef step(Device& device) {
    StepValues values = {};
    values.token = 3;
    values.ring = full_view(kWindow);
    values.shadow = values.ring;
    values.plane = full_view(kLong);
    for (float& c : values.rope_cos) c = 0.8f;
    for (float& s : values.rope_sin) s = 0.6f;
    BufferRef buffer = memory(device, sizeof values);
    device.write(*buffer, 0, &values, sizeof values);
    return buffer;
}

template <class Args>
Prepared fixed(std::string kernel, const Args& args, std::vector<BufferRef> buffers, double bytes) {
    std::vector<Bound> bound;
    for (BufferRef& buffer : buffers) bound.push_back({std::move(buffer), 0});
    return {std::move(kernel), as_args(args), [bound](uint64_t) { return bound; }, bytes};
}

double form_bytes(uint64_t n) { return static_cast<double>(MUSER_BLOCK_FORM_BYTES(n)); }

void add_norms(std::vector<Case>& cases) {
    constexpr uint32_t n = kHidden, blocks = n / MUSER_BLOCK;
    cases.push_back({"rms_norm_f32", [](Device& d) {
                         return fixed("rms_norm_f32", NormArgs{n, 0, 1e-5f},
                                      {vector(d, n), vector(d, n)}, 8.0 * n);
                     }});
    for (const char* name : {"rms_norm_mul_b16", "rms_norm_mul_4sg_b16"}) {
        cases.push_back({name, [name](Device& d) {
                             return fixed(name, NormArgs{n, blocks, 1e-5f},
                                          {vector(d, n), vector(d, n), vector(d, n),
                                           memory(d, MUSER_BLOCK_FORM_BYTES(n))},
                                          12.0 * n + form_bytes(n));
                         }});
    }
    cases.push_back({"rms_norm_add_f32", [](Device& d) {
                         return fixed("rms_norm_add_f32", NormArgs{n, 0, 1e-8f},
                                      {vector(d, n), vector(d, n), vector(d, n)}, 16.0 * n);
                     }});
    for (const char* name : {"rms_norm_add_norm_b16", "rms_norm_add_norm_4sg_b16"}) {
        cases.push_back({name, [name](Device& d) {
                             return fixed(name, DualNormArgs{n, blocks, 1e-8f, 1e-5f},
                                          {vector(d, n), vector(d, n), vector(d, n), vector(d, n),
                                           vector(d, n), memory(d, MUSER_BLOCK_FORM_BYTES(n))},
                                          24.0 * n + form_bytes(n));
                         }});
    }
    cases.push_back({"head_norm_f32", [](Device& d) {
                         return fixed("head_norm_f32", HeadNormArgs{kHeads, kHeadDim, 1e-5f},
                                      {vector(d, kHeadDim), vector(d, kQ)}, 8.0 * kQ);
                     }});
}

void add_cache(std::vector<Case>& cases, const std::string& type, uint32_t element) {
    cases.push_back(
        {"kv_store_" + type, [=](Device& d) {
             const auto plane = [&] { return memory(d, uint64_t{kWindow} * kKv * element); };
             return fixed(
                 "kv_store_" + type, KvStoreArgs{kKv, MUSER_VIEW_RING, 0},
                 {step(d), vector(d, kKv), vector(d, kKv), plane(), plane(), plane(), plane()},
                 2.0 * kKv * (4 + element));
         }});
    cases.push_back(
        {"swa_stage_" + type, [=](Device& d) {
             const auto plane = [&] { return memory(d, uint64_t{kWindow} * kKv * element); };
             return fixed(
                 "swa_stage_" + type, SwaStageArgs{kKv, kWindow},
                 {step(d), vector(d, kKv), vector(d, kKv), plane(), plane(), plane(), plane()},
                 4.0 * kWindow * kKv * element);
         }});
    cases.push_back(
        {"qk_norm_rope_store_" + type, [=](Device& d) {
             const auto plane = [&] { return memory(d, uint64_t{kWindow} * kKv * element); };
             return fixed("qk_norm_rope_store_" + type,
                          QkStoreArgs{kHeads, kKvHeads, kHeadDim, MUSER_VIEW_RING, 0, 1, 1e-5f},
                          {step(d), vector(d, kHeadDim), vector(d, kHeadDim), vector(d, kQ),
                           vector(d, kKv), vector(d, kKv), plane(), plane(), plane(), plane()},
                          8.0 * kQ + 2.0 * kKv * (4 + element));
         }});
}

AttendArgs attend_args(uint32_t which, uint32_t count, uint32_t blocks) {
    return {kHeads, kKvHeads, kHeadDim, which, count, blocks, contract::attention_scale(kHeadDim)};
}

uint64_t partial_bytes(uint32_t count) {
    return uint64_t{count} / MUSER_CHUNK * kHeads * (2 + kHeadDim) * 4;
}

void add_attention(std::vector<Case>& cases, const std::string& type, uint32_t element) {
    struct At {
        uint32_t which, count;
    };
    for (const At at : {At{MUSER_VIEW_RING, kWindow}, At{MUSER_VIEW_PLANE, kLong}}) {
        std::string suffix = "/";
        suffix += std::to_string(at.count);
        for (const char* kind : {"attend_chunks_", "attend_chunks_gqa_"}) {
            const std::string kernel = kind + type;
            cases.push_back({kernel + suffix, [=](Device& d) {
                                 const uint64_t plane = uint64_t{at.count} * kKv * element;
                                 return fixed(
                                     kernel, attend_args(at.which, at.count, 0),
                                     {step(d), vector(d, kQ), memory(d, plane), memory(d, plane),
                                      memory(d, partial_bytes(at.count))},
                                     2.0 * static_cast<double>(plane));
                             }});
        }
        if (element != 2) continue;

        const double read = static_cast<double>(partial_bytes(at.count));
        cases.push_back({"attend_combine_f32" + suffix, [=](Device& d) {
                             return fixed(
                                 "attend_combine_f32", attend_args(at.which, at.count, 0),
                                 {step(d), vector(d, partial_bytes(at.count) / 4), vector(d, kQ)},
                                 read + 4.0 * kQ);
                         }});
        cases.push_back({"attend_combine_gate_b16" + suffix, [=](Device& d) {
                             return fixed(
                                 "attend_combine_gate_b16",
                                 attend_args(at.which, at.count, kQ / MUSER_BLOCK),
                                 {step(d), vector(d, partial_bytes(at.count) / 4), vector(d, kQ),
                                  vector(d, kQ), memory(d, MUSER_BLOCK_FORM_BYTES(kQ))},
                                 read + 8.0 * kQ + form_bytes(kQ));
                         }});
    }
}

void add_pointwise(std::vector<Case>& cases) {
    cases.push_back({"rope_f32", [](Device& d) {
                         return fixed("rope_f32", RopeArgs{kHeads, kHeadDim},
                                      {step(d), vector(d, kQ)}, 8.0 * kQ);
                     }});
    cases.push_back({"gate_b16", [](Device& d) {
                         return fixed(
                             "gate_b16", VectorArgs{kQ, kQ / MUSER_BLOCK},
                             {vector(d, kQ), vector(d, kQ), memory(d, MUSER_BLOCK_FORM_BYTES(kQ))},
                             12.0 * kQ + form_bytes(kQ));
                     }});
    cases.push_back({"silu_mul_b16", [](Device& d) {
                         return fixed("silu_mul_b16", VectorArgs{kFfn, kFfn / MUSER_BLOCK},
                                      {vector(d, kFfn), vector(d, kFfn), vector(d, kFfn),
                                       memory(d, MUSER_BLOCK_FORM_BYTES(kFfn))},
                                      12.0 * kFfn + form_bytes(kFfn));
                     }});
    cases.push_back({"copy_row_b16", [](Device& d) {
                         return fixed(
                             "copy_row_b16", VectorArgs{kHidden, kHidden / MUSER_BLOCK},
                             {vector(d, kHidden), block_form(d, kHidden), vector(d, kHidden),
                              memory(d, MUSER_BLOCK_FORM_BYTES(kHidden))},
                             8.0 * kHidden + 2 * form_bytes(kHidden));
                     }});
}

void add_head(std::vector<Case>& cases) {
    constexpr uint32_t groups = (kVocab + MUSER_HEAD_GROUP - 1) / MUSER_HEAD_GROUP;
    cases.push_back({"softcap_f32", [](Device& d) {
                         return fixed("softcap_f32", SoftcapArgs{kVocab, 0.19611613f, 20.0f},
                                      {vector(d, kVocab), memory(d, 4 * groups)}, 8.0 * kVocab);
                     }});
    cases.push_back({"argmax_groups_f32", [](Device& d) {
                         return fixed("argmax_groups_f32", VectorArgs{kVocab, 0},
                                      {vector(d, kVocab), memory(d, 8 * groups)}, 4.0 * kVocab);
                     }});
    cases.push_back({"argmax_final_f32", [](Device& d) {
                         return fixed("argmax_final_f32", VectorArgs{groups, 0},
                                      {vector(d, 2 * groups), memory(d, 4)}, 8.0 * groups);
                     }});
    cases.push_back({"probe_u32", [](Device& d) {
                         return fixed("probe_u32", ProbeArgs{256},
                                      {memory(d, 4096), memory(d, 1024)}, 20.0 * 256);
                     }});
}

void add_embeddings(std::vector<Case>& cases) {
    struct Type {
        const char* name;
        contract::WeightType type;
    };
    for (const Type type :
         {Type{"q4_K", contract::WeightType::Q4_K}, Type{"q5_K", contract::WeightType::Q5_K},
          Type{"q6_K", contract::WeightType::Q6_K}, Type{"q8_0", contract::WeightType::Q8_0},
          Type{"f32", contract::WeightType::F32}, Type{"f16", contract::WeightType::F16},
          Type{"bf16", contract::WeightType::BF16}}) {
        const std::string kernel = std::string("embed_") + type.name;
        cases.push_back({kernel, [=](Device& d) {
                             const uint64_t row = contract::row_bytes(type.type, kHidden);
                             return fixed(kernel, EmbedArgs{kHidden, 16, row},
                                          {step(d), memory(d, 16 * row), vector(d, kHidden)},
                                          static_cast<double>(row) + 4.0 * kHidden);
                         }});
    }
}

}  // namespace

std::vector<Case> kernel_cases() {
    std::vector<Case> cases;
    add_norms(cases);
    add_pointwise(cases);
    add_cache(cases, "f16", 2);
    add_cache(cases, "f32", 4);
    add_attention(cases, "f16", 2);
    add_attention(cases, "f32", 4);
    add_head(cases);
    add_embeddings(cases);
    return cases;
}

}  // namespace muser::bench
