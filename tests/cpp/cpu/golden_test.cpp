// One synthetic layer and head through the device: the same bytes on every instruction set, at
// every number of threads, and the same as ever (the digest changes only with the contract's
// number).
#include <gtest/gtest.h>

#include "contract/blocks.h"
#include "contract/half.h"
#include "device/cpu/isa.h"
#include "metal/kernels/args.h"
#include "recorder.h"
#include "support.h"

namespace muser::cpu_test {
namespace {

using device::Device;
using device::cpu::Isa;

constexpr uint64_t kGolden = 4446397923046001044u;

constexpr uint32_t kHidden = 1536, kFfn = 8192, kHeads = 12, kKvHeads = 2, kDim = 128;
constexpr uint32_t kWidth = kHeads * kDim, kKvWidth = kKvHeads * kDim;
constexpr uint32_t kCapacity = 700, kVocab = 3000;

uint64_t fnv(uint64_t hash, const std::vector<std::byte>& bytes) {
    for (std::byte b : bytes) hash = (hash ^ static_cast<uint64_t>(b)) * 0x100000001b3u;
    return hash;
}

std::vector<std::byte> q4_rows(Random& random, uint32_t rows, uint32_t cols) {
    std::vector<std::byte> bytes(size_t{rows} * cols / 256 * sizeof(contract::BlockQ4_K));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.next());
    for (size_t at = 0; at < bytes.size(); at += sizeof(contract::BlockQ4_K)) {
        const uint16_t factors[2] = {contract::f32_to_f16(random.uniform() * 0x1p-12f),
                                     contract::f32_to_f16(random.uniform() * 0x1p-13f)};
        std::memcpy(&bytes[at], factors, 4);
    }
    return bytes;
}

// A wrapped ring of kCapacity rows in the middle of a chunk.
StepValues step_values(Random& random) {
    StepValues step = {};
    step.token = 7;
    step.overwrite = 1;
    step.journal_row = 3;
    KvView& ring = step.ring;
    ring.count = kCapacity;
    ring.older = kCapacity - 1;
    ring.first_position = 2017;
    ring.write_row = 411;
    ring.first_row = 412;
    ring.chunks =
        (ring.first_position + kCapacity - 1) / MUSER_CHUNK - ring.first_position / MUSER_CHUNK + 1;
    step.shadow = ring;
    step.shadow.first_row = 0;
    for (float& c : step.rope_cos) c = random.uniform();
    for (float& s : step.rope_sin) s = random.uniform();
    return step;
}

class Layer {
  public:
    explicit Layer(Device& device) : device_(device) {
        Random random(2048);
        step_ = upload(device, std::vector<StepValues>{step_values(random)});
        table_ = upload(device, q4_rows(random, 16, kHidden));
        const uint32_t shapes[][2] = {{kWidth, kHidden}, {kKvWidth, kHidden}, {kKvWidth, kHidden},
                                      {kWidth, kHidden}, {kHidden, kWidth},   {kFfn, kHidden},
                                      {kFfn, kHidden},   {kHidden, kFfn},     {kVocab, kHidden}};
        for (const auto& shape : shapes) {
            weights_.push_back(upload(device, q4_rows(random, shape[0], shape[1])));
        }
        for (uint32_t n : {kHidden, kDim})
            norms_.push_back(upload(device, floats(random, n, Data::plain)));
        for (int i = 0; i < 4; ++i) {  // ring K, V, shadow K, V
            planes_.push_back(
                upload(device, halves(random, size_t{kCapacity} * kKvWidth, Data::plain)));
        }
        for (int i = 0; i < 2; ++i) journals_.push_back(memory(8 * kKvWidth * 2));
    }

    // Everything that the layer and the head leave behind, as one digest.
    uint64_t run(bool concurrent, bool gqa) {
        const BufferRef hidden = vector(kHidden), residual = vector(kHidden);
        const BufferRef normed = vector(kHidden), form = memory(MUSER_BLOCK_FORM_BYTES(kFfn));
        const BufferRef q = vector(kWidth), k = vector(kKvWidth), v = vector(kKvWidth);
        const BufferRef gate = vector(kWidth), attention = vector(kWidth);
        const BufferRef partials = vector(step()->ring.chunks * kHeads * (2 + kDim));
        const BufferRef ffn_gate = vector(kFfn), ffn_up = vector(kFfn), logits = vector(kVocab);
        const BufferRef flags = vector(3), best = vector(6), token = vector(1);
        const KvStoreArgs store = {kKvWidth, MUSER_VIEW_RING, 1};
        AttendArgs attend = {kHeads,    kKvHeads,     kDim,          MUSER_VIEW_SHADOW,
                             kCapacity, kWidth / 256, 0x1.6a09e6p-4f};
        const uint32_t hidden_blocks = kHidden / 256;

        Recorder r(device_);
        r.encoder(concurrent);
        r.dispatch("embed_q4_K", EmbedArgs{kHidden, 16, kHidden / 256 * 144},
                   {step_, table_, hidden});
        r.barrier();
        r.dispatch("rms_norm_f32", NormArgs{kHidden, 0, 1e-5f}, {hidden, residual}).barrier();
        r.dispatch("rms_norm_mul_b16", NormArgs{kHidden, hidden_blocks, 1e-5f},
                   {residual, norms_[0], normed, form});
        r.barrier();
        product(r, 0, form, q, kWidth, kHidden);
        product(r, 1, form, k, kKvWidth, kHidden);
        product(r, 2, form, v, kKvWidth, kHidden);
        product(r, 3, form, gate, kWidth, kHidden);
        r.barrier();
        r.dispatch("head_norm_f32", HeadNormArgs{kHeads, kDim, 1e-5f}, {norms_[1], q});
        r.dispatch("head_norm_f32", HeadNormArgs{kKvHeads, kDim, 1e-5f}, {norms_[1], k});
        r.barrier();
        r.dispatch("rope_f32", RopeArgs{kHeads, kDim}, {step_, q});
        r.dispatch("rope_f32", RopeArgs{kKvHeads, kDim}, {step_, k}).barrier();
        r.dispatch("swa_stage_f16", SwaStageArgs{kKvWidth, kCapacity},
                   {step_, k, v, planes_[0], planes_[1], planes_[2], planes_[3]});
        r.barrier();
        r.dispatch("kv_store_f16", store,
                   {step_, k, v, planes_[0], planes_[1], journals_[0], journals_[1]});
        r.dispatch(gqa ? "attend_chunks_gqa_f16" : "attend_chunks_f16", attend,
                   {step_, q, planes_[2], planes_[3], partials});
        r.barrier();
        r.dispatch("attend_combine_gate_b16", attend, {step_, partials, gate, attention, form});
        r.barrier();
        product(r, 4, form, hidden, kHidden, kWidth);
        r.barrier();
        r.dispatch("rms_norm_add_norm_b16", DualNormArgs{kHidden, hidden_blocks, 1e-8f, 1e-5f},
                   {hidden, norms_[0], residual, norms_[0], normed, form});
        r.barrier();
        product(r, 5, form, ffn_gate, kFfn, kHidden);
        product(r, 6, form, ffn_up, kFfn, kHidden);
        r.barrier();
        r.dispatch("silu_mul_b16", VectorArgs{kFfn, kFfn / 256},
                   {ffn_gate, ffn_up, ffn_gate, form});
        r.barrier();
        product(r, 7, form, hidden, kHidden, kFfn);
        r.barrier();
        r.dispatch("rms_norm_add_f32", NormArgs{kHidden, 0, 1e-8f}, {hidden, norms_[0], residual});
        r.barrier();
        r.dispatch("rms_norm_mul_b16", NormArgs{kHidden, hidden_blocks, 1e-5f},
                   {residual, norms_[0], normed, form});
        r.barrier();
        product(r, 8, form, logits, kVocab, kHidden);
        r.barrier();
        r.dispatch("softcap_f32", SoftcapArgs{kVocab, 0.19611613f, 20.0f}, {logits, flags});
        r.barrier();
        r.dispatch("argmax_groups_f32", VectorArgs{kVocab, 0}, {logits, best}).barrier();
        r.dispatch("argmax_final_f32", VectorArgs{3, 0}, {best, token});
        EXPECT_EQ(wait(*r.submit()), stream::Status::completed);
        for (uint32_t flag : download<uint32_t>(device_, flags)) EXPECT_EQ(flag, 0u);

        uint64_t hash = 0xcbf29ce484222325u;
        for (const BufferRef& b :
             {q, k, v, attention, partials, residual, normed, form, logits, best, token, planes_[0],
              planes_[1], journals_[0], journals_[1]}) {
            hash = fnv(hash, download<std::byte>(device_, b));
        }
        return hash;
    }

  private:
    const StepValues* step() const { return reinterpret_cast<const StepValues*>(step_->contents); }
    BufferRef memory(uint64_t bytes) { return device_.allocate(bytes, device::MemoryUse::shared); }
    BufferRef vector(uint64_t n) { return memory(n * 4); }
    void product(Recorder& r, size_t weight, const BufferRef& form, const BufferRef& y,
                 uint32_t rows, uint32_t cols) {
        r.dispatch("mul_mv_q4_K_b16", MatVecArgs{rows, cols, 1, 0}, {weights_[weight], form, y});
    }

    Device& device_;
    BufferRef step_, table_;
    std::vector<BufferRef> weights_, norms_, planes_, journals_;
};

class Golden : public testing::TestWithParam<Isa> {};

TEST_P(Golden, TheSameBytesAtEveryThreadCountAndSchedule) {
    for (int threads : {1, 2, 3, 8}) {
        device::Options options;
        options.isa = device::cpu::isa_name(GetParam());
        options.threads = threads;
        const auto device = device::make_device("cpu", options);
        EXPECT_EQ(device->isa(), options.isa);
        for (bool concurrent : {true, false}) {
            Layer layer(*device);
            EXPECT_EQ(layer.run(concurrent, concurrent), kGolden)
                << threads << " threads, " << (concurrent ? "concurrent, gqa" : "serial");
        }
    }
}

INSTANTIATE_TEST_SUITE_P(EveryIsa, Golden, testing::ValuesIn(device::cpu::isas()),
                         [](const auto& param_info) {
                             return std::string(device::cpu::isa_name(param_info.param));
                         });

}  // namespace
}  // namespace muser::cpu_test
