// Reads that a disk does not answer must not keep a program from closing what it reads with.
//
// They are waited for a bounded time. Then their channel, and the memory they may still be written to, is left
// behind: kept for the life of the process, so that the kernel or a reading thread can come back to it safely.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "bam/engine.h"
#include "staging.h"

namespace bam {

// Waits at most `wait_ms` for the channel's reads to end, and drops what they bring. Returns those still in flight.
uint32_t await_reads(Channel& channel, uint32_t wait_ms);

// Never destroyed; the channel keeps its engine, and the engine its files, open.
void leave_behind(std::unique_ptr<Channel> channel, std::unique_ptr<Staging> memory) noexcept;

// Bytes of memory left behind so far, by this process.
uint64_t bytes_left_behind();

}  // namespace bam
