// The random numbers of gids/sampling/random.py, which is their definition; the same bits on host and GPU.
#pragma once

#include "bam/platform.h"

namespace gids {

struct Words {
  uint32_t first, second, third, fourth;
};

struct Key {
  uint32_t low, high;
};

// Philox4x32-10 (Salmon et al., SC 2011).
BAM_HD inline Words philox(Words counter, Key key) {
  for (int round = 0; round < 10; round++) {
    uint64_t even = 0xD2511F53ull * counter.first;
    uint64_t odd = 0xCD9E8D57ull * counter.third;
    counter = {static_cast<uint32_t>(odd >> 32) ^ counter.second ^ key.low, static_cast<uint32_t>(odd),
               static_cast<uint32_t>(even >> 32) ^ counter.fourth ^ key.high, static_cast<uint32_t>(even)};
    key.low += 0x9E3779B9u;
    key.high += 0xBB67AE85u;
  }
  return counter;
}

// Key of everything drawn for one relation in one hop of one mini-batch.
BAM_HD inline Key stream_key(uint64_t seed, uint32_t epoch, uint32_t batch, uint32_t hop, uint32_t relation) {
  Words words =
      philox({epoch, batch, hop, relation}, {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return {words.first, words.second};
}

// Words of draws 4 * group to 4 * group + 3 for an item.
BAM_HD inline Words words_of(Key key, uint64_t item, uint32_t group, uint32_t attempt) {
  return philox({static_cast<uint32_t>(item), static_cast<uint32_t>(item >> 32), group, attempt}, key);
}

BAM_HD inline uint32_t word_at(const Words& words, uint32_t index) {
  uint32_t low = index & 1 ? words.second : words.first;
  uint32_t high = index & 1 ? words.fourth : words.third;
  return index & 2 ? high : low;
}

// Choice below n (1 <= n < 2^32) for one draw, given the word of its first attempt (Lemire 2019).
BAM_HD inline uint32_t below(uint32_t n, uint32_t first_word, Key key, uint64_t item, uint32_t draw) {
  uint64_t product = static_cast<uint64_t>(first_word) * n;
  if (static_cast<uint32_t>(product) < n) {  // the threshold is below n, so a division is rarely needed
    uint32_t threshold = (0u - n) % n;
    for (uint32_t attempt = 1; static_cast<uint32_t>(product) < threshold; attempt++)
      product = static_cast<uint64_t>(word_at(words_of(key, item, draw >> 2, attempt), draw & 3)) * n;
  }
  return static_cast<uint32_t>(product >> 32);
}

}  // namespace gids
