// Handles of engines: a handle is the Engine's address, valid from adopt_engine() to bam_engine_destroy().
//
// The registry holds one reference; whoever uses a handle takes another by find_engine(), so an engine closed while
// it is read from lives until the read is done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "bam/engine.h"

namespace bam {

struct Failure;

// Null when `handle` is closed, unknown, or was made before a fork.
std::shared_ptr<Engine> find_engine(const void* handle);

Engine* adopt_engine(std::shared_ptr<Engine> engine);

// In a forked child: forgets every engine without touching any (their locks may be held, their threads are gone).
void forget_engines_after_fork();

// Copies `text` with a final zero into `buffer`; returns the length needed without it.
size_t copy_text(std::string_view text, char* buffer, size_t capacity);

// Creating functions of the C ABI return this: the handle, or null and the failure as JSON in `buffer`.
void* handle_or_failure(std::shared_ptr<Engine> engine, const Failure& failure, char* buffer, size_t capacity);

}  // namespace bam
