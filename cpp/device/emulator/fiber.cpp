#include "device/emulator/fiber.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#if defined(__x86_64__) || defined(__aarch64__)

#if defined(__APPLE__)
#define MUSER_SYMBOL "_muser_switch_fiber"
#define MUSER_HIDE ".private_extern _muser_switch_fiber\n"
#else
#define MUSER_SYMBOL "muser_switch_fiber"
#define MUSER_HIDE ".hidden muser_switch_fiber\n"
#endif

extern "C" void muser_switch_fiber(void** save, void* load);

#if defined(__x86_64__)
// System V: rbx, rbp, r12 to r15 belong to the caller.
asm(".text\n"
    ".globl " MUSER_SYMBOL "\n" MUSER_HIDE ".p2align 4\n" MUSER_SYMBOL
    ":\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n");
#else
// AAPCS64: x19 to x28, the frame pointer, the link register and the low halves of v8 to v15.
asm(".text\n"
    ".globl " MUSER_SYMBOL "\n" MUSER_HIDE ".p2align 4\n" MUSER_SYMBOL
    ":\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n");
#endif

namespace muser::emulator {

void prepare_fiber(Fiber& fiber, std::byte* stack_end, FiberEntry entry) {
#if defined(__x86_64__)
    // Six saved registers, then the address `ret` takes; a function is entered with the stack
    // pointer 8 below a multiple of 16.
    constexpr size_t kSaved = 6 * 8;
    constexpr size_t kReturn = kSaved;
    std::byte* top = stack_end - 8 - 8 - kSaved;
    std::memset(top, 0, kSaved + 16);
#else
    constexpr size_t kReturn = 88;  // x30's place
    std::byte* top = stack_end - 160;
    std::memset(top, 0, 160);
#endif
    std::memcpy(top + kReturn, &entry, sizeof entry);
    fiber.stack_pointer = top;
}

void switch_fiber(Fiber& from, Fiber& to) {
    muser_switch_fiber(&from.stack_pointer, to.stack_pointer);
}

}  // namespace muser::emulator

#else
#error "the emulator knows how to switch stacks on x86-64 and AArch64"
#endif

namespace muser::emulator {

FiberStacks::FiberStacks(size_t count) : count_(count) {
    void* memory = mmap(nullptr, count * kBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    base_ = static_cast<std::byte*>(memory);
}

FiberStacks::~FiberStacks() {
#if defined(__SANITIZE_ADDRESS__)
    // Lanes never return from their first frame, and whatever is mapped here next would inherit
    // what the sanitizer knows of it.
    __asan_unpoison_memory_region(base_, count_ * kBytes);
#endif
    munmap(base_, count_ * kBytes);
}

// Tops at equal offsets within their pages would all fall into the same few cache sets, and a
// lockstep of 32 lanes would then miss on every switch.
std::byte* FiberStacks::end(size_t index) const {
    return base_ + (index + 1) * kBytes - (index * 320) % 8192;
}

}  // namespace muser::emulator
