// The load-time arithmetic probe (docs/numerics.md §0): every device computes the same short table
// and a wrong bit is a load error that names the row.
//
// A device uploads probe_input() (four u32 words per row: op, a, b, c), runs a kernel whose body is
// muser_probe_op from metal/kernels/probe_ops.h, one thread per row, one u32 out, and hands the
// results to check_probe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace muser::contract {

struct ProbeRow {
    const char* name;  // what the row guards: "contraction: a*b+c", ...
    uint32_t op;       // MUSER_PROBE_* of probe_ops.h
    uint32_t a;
    uint32_t b;
    uint32_t c;
    uint32_t expected;
};

// The table with its stored bits.
std::span<const ProbeRow> probe_rows();

// The table's inputs, four words per row, as a device reads them.
std::span<const uint32_t> probe_input();

// Compares one result word per row; throws ProbeError with facts row, name, op, a, b, c, found,
// expected (hexadecimal) for the first mismatch. `device` names the device in the message.
void check_probe(const uint32_t* results, size_t count, const char* device);

// Runs the table with this translation unit's own arithmetic under FlushSubnormals.
void run_probe_on_host(uint32_t* results);

}  // namespace muser::contract
