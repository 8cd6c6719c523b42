#include "recorder.h"

namespace muser::cpu_test {

Recorder& Recorder::encoder(bool concurrent) {
    const uint32_t first = static_cast<uint32_t>(commands_->commands.size());
    commands_->encoders.push_back({concurrent, first, 0});
    return *this;
}

Recorder& Recorder::closure(std::string label) {
    commands_->labels.push_back(std::move(label));
    return *this;
}

Recorder& Recorder::barrier() {
    commands_->commands.push_back(
        {stream::Command::Kind::barrier, static_cast<uint32_t>(commands_->barriers.size())});
    commands_->barriers.push_back({});
    ++commands_->encoders.back().command_count;
    return *this;
}

Recorder& Recorder::add(stream::KernelRef kernel, const void* args, size_t length,
                        const std::vector<BufferRef>& buffers) {
    stream::Dispatch dispatch;
    dispatch.kernel = std::move(kernel);
    dispatch.label =
        commands_->labels.empty() ? 0 : static_cast<uint32_t>(commands_->labels.size()) - 1;
    dispatch.first_binding = static_cast<uint32_t>(commands_->bindings.size());
    dispatch.binding_count = static_cast<uint32_t>(buffers.size());
    for (size_t i = 0; i < buffers.size(); ++i) {
        commands_->bindings.push_back({static_cast<uint32_t>(i + 1), buffers[i], 0});
    }
    dispatch.args_offset = static_cast<uint32_t>(commands_->args.size());
    dispatch.args_length = static_cast<uint32_t>(length);
    const auto* bytes = static_cast<const std::byte*>(args);
    commands_->args.insert(commands_->args.end(), bytes, bytes + length);
    commands_->commands.push_back(
        {stream::Command::Kind::dispatch, static_cast<uint32_t>(commands_->dispatches.size())});
    commands_->dispatches.push_back(std::move(dispatch));
    ++commands_->encoders.back().command_count;
    return *this;
}

stream::CommandBufferRef Recorder::submit() {
    commands_->set_status(stream::Status::committed);
    device_.submit(commands_);
    return commands_;
}

stream::Status wait(const stream::CommandBuffer& commands) {
    std::unique_lock lock(commands.mutex);
    commands.changed.wait(lock, [&] { return commands.status >= stream::Status::completed; });
    return commands.status;
}

}  // namespace muser::cpu_test
