// Copies that go around the processor's caches (host only).
//
// The output of a large gather is written once and read much later, by another core or by a device. An ordinary copy
// first reads each line of the output from memory, only to overwrite it, and pushes out what is worth caching.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace bam {

#if defined(__SSE2__)

inline void copy_streaming(uint8_t* to, const uint8_t* from, size_t bytes) {
  size_t head = (64 - reinterpret_cast<uintptr_t>(to) % 64) % 64;
  if (bytes < 256 + head) {
    std::memcpy(to, from, bytes);
    return;
  }
  std::memcpy(to, from, head);
  size_t at = head;
  for (; at + 64 <= bytes; at += 64) {
    const __m128i* source = reinterpret_cast<const __m128i*>(from + at);
    __m128i* target = reinterpret_cast<__m128i*>(to + at);
    __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(target, a);
    _mm_stream_si128(target + 1, b);
    _mm_stream_si128(target + 2, c);
    _mm_stream_si128(target + 3, d);
  }
  std::memcpy(to + at, from + at, bytes - at);
}

// Streaming stores are not ordered with others: call it before anybody else is told of the bytes.
inline void streaming_done() { _mm_sfence(); }

#else

inline void copy_streaming(uint8_t* to, const uint8_t* from, size_t bytes) { std::memcpy(to, from, bytes); }
inline void streaming_done() {}

#endif

}  // namespace bam
