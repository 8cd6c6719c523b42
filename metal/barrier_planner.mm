#import "metal/barrier_planner.h"

namespace muser {
namespace {

bool conflict(const Argument& a, const Argument& b) {
    if (a.access == Access::read && b.access == Access::read) return false;
    if (a.length == 0 || b.length == 0) return false;
    if (a.buffer->object.get() != b.buffer->object.get()) return false;
    return a.offset < b.offset + b.length && b.offset < a.offset + a.length;
}

bool conflict(const EncodedDispatch& a, const EncodedDispatch& b) {
    for (const Argument& x : a.arguments) {
        for (const Argument& y : b.arguments) {
            if (conflict(x, y)) return true;
        }
    }
    return false;
}

}  // namespace

BarrierPlan plan_barriers(const EncodeLog& log) {
    BarrierPlan plan;
    size_t last = 0;  // the dispatch that the last barrier stands before
    for (size_t j = 0; j < log.dispatches.size(); ++j) {
        bool needed = false;
        for (size_t i = last; i < j && !needed; ++i) {
            needed = conflict(log.dispatches[i], log.dispatches[j]);
        }
        plan.before_.push_back(needed);
        plan.barriers_ += needed;
        if (needed) last = j;
    }
    return plan;
}

}  // namespace muser
