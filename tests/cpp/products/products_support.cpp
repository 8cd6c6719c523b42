#include "products_support.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "contract/ftz.h"
#include "contract/half.h"
#include "device/cpu/products.h"

namespace muser::products_test {

KernelTable product_kernels(Isa isa) {
    switch (isa) {
#if defined(__x86_64__)
        case Isa::avx2:
            return device::cpu::product_kernels_avx2();
        case Isa::avx512amx:
            return device::cpu::product_kernels_avx512amx();
        case Isa::avx512vnni:
            return device::cpu::product_kernels_avx512vnni();
#elif defined(__aarch64__)
        case Isa::neon:
            return device::cpu::product_kernels_neon();
#endif
        default:
            return device::cpu::product_kernels_portable();
    }
}

KernelName parse_name(std::string_view name) {
    struct Type {
        std::string_view text;
        WeightType type;
    };
    constexpr std::array<Type, 7> kTypes{{{"q4_K_b16", WeightType::Q4_K},
                                          {"q5_K_b16", WeightType::Q5_K},
                                          {"q6_K_b16", WeightType::Q6_K},
                                          {"q8_0_b16", WeightType::Q8_0},
                                          {"f32_f32", WeightType::F32},
                                          {"f16_f32", WeightType::F16},
                                          {"bf16_f32", WeightType::BF16}}};
    KernelName result{};
    std::string_view rest = name;
    const auto skip = [&rest](std::string_view prefix) {
        if (!rest.starts_with(prefix)) return false;
        rest.remove_prefix(prefix.size());
        return true;
    };
    EXPECT_TRUE(skip("mul_mv_")) << name;
    result.silu = skip("silu_");
    for (const Type& type : kTypes) {
        if (skip(type.text)) {
            result.type = type.type;
            result.layout = rest;
            return result;
        }
    }
    ADD_FAILURE() << name << " names no type of args.h";
    return result;
}

namespace {

template <class T>
void put(std::byte* to, T value) {
    std::memcpy(to, &value, sizeof value);
}

uint16_t random_factor(Weights kind, Random& random) {
    const auto pick = random() % 32;
    if (pick == 0) return 0;
    if (pick == 1) return static_cast<uint16_t>(random() & 0x83ff);  // subnormal, either sign
    if (kind == Weights::infinite && pick < 5) {
        return static_cast<uint16_t>(0x7c00 | (random() & 0x8001));
    }
    return static_cast<uint16_t>((random() & 0x83ff) | (6 + random() % 12) << 10);
}

void fill_blocks(WeightType type, Weights kind, Random& random, std::vector<std::byte>& out) {
    const auto& info = contract::weight_type_info(type);
    for (size_t at = 0; at < out.size(); at += info.block_bytes) {
        std::byte* block = out.data() + at;
        if (kind == Weights::extreme) {
            // 0x80 twice as likely as others is Q8_0's and Q6_K's most negative value.
            constexpr std::array<uint8_t, 4> kEnds{0xff, 0x00, 0x80, 0x7f};
            const uint8_t quants = kEnds[random() % kEnds.size()];
            const uint8_t scales = kEnds[random() % kEnds.size()];
            std::fill_n(block, info.block_bytes, std::byte{quants});
            if (type == WeightType::Q4_K || type == WeightType::Q5_K) {
                std::fill_n(block + 4, 12, std::byte{scales});
            } else if (type == WeightType::Q6_K) {
                std::fill_n(block + 192, 16, std::byte{scales});
            }
        } else {
            for (size_t i = 0; i < info.block_bytes; ++i) {
                block[i] = static_cast<std::byte>(random());
            }
        }
        const Weights factors = kind == Weights::infinite ? kind : Weights::random;
        if (type == WeightType::Q6_K) {
            put(block + 208, random_factor(factors, random));
        } else {
            put(block, random_factor(factors, random));
            if (type != WeightType::Q8_0) put(block + 2, random_factor(factors, random));
        }
    }
}

}  // namespace

std::vector<std::byte> random_weights(WeightType type, size_t rows, size_t cols, Weights kind,
                                      Random& random) {
    const auto& info = contract::weight_type_info(type);
    std::vector<std::byte> out(rows * contract::row_bytes(type, cols));
    if (info.quantised) {
        fill_blocks(type, kind, random, out);
        return out;
    }
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < rows * cols; ++i) {
        float value = std::ldexp(normal(random), static_cast<int>(random() % 9) - 6);
        if (kind == Weights::infinite && random() % 64 == 0) {
            value = std::numeric_limits<float>::infinity();
        }
        if (kind == Weights::extreme && random() % 4 == 0) value = 0.0f;
        if (type == WeightType::F32) put(out.data() + 4 * i, value);
        if (type == WeightType::F16) put(out.data() + 2 * i, contract::f32_to_f16(value));
        if (type == WeightType::BF16) put(out.data() + 2 * i, contract::f32_to_bf16(value));
    }
    return out;
}

std::vector<contract::BlockForm> random_block_forms(size_t cols, size_t columns, Activations kind,
                                                    Random& random) {
    const size_t blocks = cols / 256;
    std::vector<contract::BlockForm> forms(blocks * columns);
    for (contract::BlockForm& form : forms) {
        std::array<float, 256> x{};
        std::normal_distribution<float> normal(0.0f, 0.1f + static_cast<float>(random() % 40));
        for (float& value : x) value = normal(random);
        if (kind == Activations::damaged) {
            const auto pick = random() % 4;
            if (pick == 0) x.fill(-0.0f);
            if (pick == 1) x[random() % 256] = std::numeric_limits<float>::quiet_NaN();
        }
        if (kind == Activations::extreme) {
            // The scale is 2^0 when the largest magnitude is 32639.
            constexpr std::array<float, 5> kEnds{32639.0f, -32639.0f, 32384.0f, -32512.0f,
                                                 -32384.0f};
            const bool one_value = random() % 2 == 0;
            const float value = kEnds[random() % kEnds.size()];
            for (float& v : x) v = one_value ? value : kEnds[random() % kEnds.size()];
        }
        contract::quantise(x.data(), 256, &form);
    }
    return forms;
}

std::vector<float> random_vectors(size_t cols, size_t columns, Random& random) {
    std::normal_distribution<float> normal;
    std::vector<float> x(cols * columns);
    for (float& value : x) value = normal(random);
    return x;
}

std::vector<std::byte> pack(const std::vector<contract::BlockForm>& forms, size_t cols) {
    const size_t blocks = cols / 256;
    const size_t bytes = MUSER_BLOCK_FORM_STRIDE(cols);
    std::vector<std::byte> out(forms.size() / blocks * bytes);
    for (size_t i = 0; i < forms.size(); ++i) {
        std::byte* form = out.data() + i / blocks * bytes;
        const size_t b = i % blocks;
        std::memcpy(form + 256 * b, forms[i].hi, 256);
        std::memcpy(form + MUSER_BLOCK_LO(cols) + 256 * b, forms[i].lo, 256);
        std::memcpy(form + MUSER_BLOCK_SUMS(cols) + 64 * b, forms[i].sums, 64);
        std::memcpy(form + MUSER_BLOCK_SCALES(cols) + 4 * b, &forms[i].s, 4);
    }
    return out;
}

Repacked repack(Isa isa, const std::string& layout, WeightType type, size_t rows, size_t cols,
                const std::vector<std::byte>& weights) {
    const device::WeightShape shape{static_cast<uint32_t>(type), rows, cols};
    device::WeightLayout wanted = device::cpu::product_layout(isa, shape);
    if (layout.empty()) wanted = {"", weights.size()};
    EXPECT_EQ(wanted.suffix, layout);
    Repacked out;
    constexpr size_t kGuard = 64;
    out.memory.assign(wanted.bytes + 2 * kGuard + 64, std::byte{0xa5});
    const auto base = reinterpret_cast<uintptr_t>(out.memory.data());
    out.offset = kGuard + (64 - base % 64) % 64;
    if (layout.empty()) {
        std::copy(weights.begin(), weights.end(), out.data());
        return out;
    }
    std::vector<uint64_t> starts;
    for (uint64_t row = 0; row < rows; row += device::cpu::kRepackRows) starts.push_back(row);
    std::reverse(starts.begin(), starts.end());
    for (uint64_t begin : starts) {
        device::cpu::product_repack(isa, shape, wanted, weights.data(), out.data(), begin,
                                    std::min<uint64_t>(begin + device::cpu::kRepackRows, rows));
    }
    for (size_t i = 0; i < out.memory.size(); ++i) {
        if (i < out.offset || i >= out.offset + wanted.bytes) {
            EXPECT_EQ(out.memory[i], std::byte{0xa5}) << "repack wrote outside, at byte " << i;
        }
    }
    return out;
}

Guarded::Guarded(size_t bytes) : memory_(bytes + 2 * kGuard, std::byte{0xa5}) {}

bool Guarded::guards_hold() const {
    const auto whole = [](std::byte b) { return b == std::byte{0xa5}; };
    return std::all_of(memory_.begin(), memory_.begin() + kGuard, whole) &&
           std::all_of(memory_.end() - kGuard, memory_.end(), whole);
}

void run(const KernelImpl& kernel, const MatVecArgs& args, const std::vector<std::byte*>& buffers,
         Random& random) {
    const device::cpu::Call call{&args, buffers.data()};
    const uint64_t units = kernel.work(call).units;
    std::vector<std::pair<uint64_t, uint64_t>> ranges;
    const uint64_t longest = std::array{4, 12, 24}[random() % 3];
    for (uint64_t begin = 0; begin < units;) {
        const uint64_t end = std::min(units, begin + 1 + random() % longest);
        ranges.emplace_back(begin, end);
        begin = end;
    }
    std::shuffle(ranges.begin(), ranges.end(), random);
    const contract::FlushSubnormals flush;
    for (const auto& [begin, end] : ranges) kernel.run(call, begin, end);
}

bool same(float a, float b) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

}  // namespace muser::products_test
