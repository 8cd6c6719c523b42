// Decode speed of llama.cpp on a file through its C API: one token at a time, synchronised. Built
// and run by bench/cuda/decode.py --llama. Prints one JSON object.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "llama.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Session {
    llama_context* context;
    int vocab;
    int position = 0;

    void feed(int count) {
        std::vector<llama_token> tokens(count);
        for (int i = 0; i < count; ++i) {
            tokens[i] = static_cast<llama_token>((position + i) * 7919L % (vocab - 64));
        }
        if (llama_decode(context, llama_batch_get_one(tokens.data(), count)) != 0) std::exit(2);
        position += count;
        llama_synchronize(context);
    }
    // Median tokens per second of five runs of 64 single tokens from a position.
    double decode_speed(int start) {
        std::vector<double> rates;
        for (int run = 0; run < 6; ++run) {
            llama_memory_clear(llama_get_memory(context), true);
            position = 0;
            while (position < start) feed(std::min(512, start - position));
            const auto begin = Clock::now();
            for (int i = 0; i < 64; ++i) feed(1);
            const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
            if (run > 0) rates.push_back(64 / seconds);
        }
        std::sort(rates.begin(), rates.end());
        return rates[rates.size() / 2];
    }
};

}  // namespace

int main(int count, char** arguments) {
    if (count < 3) return 1;
    llama_backend_init();
    auto model_settings = llama_model_default_params();
    model_settings.n_gpu_layers = 999;
    llama_model* model = llama_model_load_from_file(arguments[1], model_settings);
    if (model == nullptr) return 1;
    auto settings = llama_context_default_params();
    settings.n_ctx = 4096;
    settings.n_batch = 2048;
    settings.n_ubatch = 512;
    Session session{llama_init_from_model(model, settings),
                    llama_vocab_n_tokens(llama_model_get_vocab(model))};
    const int depth = std::atoi(arguments[2]);
    const double shallow = session.decode_speed(1);
    const double deep = depth > 0 ? session.decode_speed(depth) : 0;
    std::printf(
        "{\"what\": \"llama_cpp\", \"tok_s\": %.2f, \"depth\": %d, \"depth_tok_s\": %.2f}\n",
        shallow, depth, deep);
}
