// Prints the schedule of a violation: one line a step, with the names and the words of the program.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "scheduled.h"

namespace explorer {

using Format = std::string (*)(uint64_t value);

inline std::string decimal(uint64_t value) { return std::to_string(value); }

// What the shared words are called and how their values read.
class Names {
 public:
  template <class T>
  void add(const char* name, const T* first, size_t count = 1, Format format = decimal) {
    ranges_.push_back({name, reinterpret_cast<uintptr_t>(first), sizeof(T), count, format});
  }

  std::string name(const void* address) const {
    const Range* range = find(address);
    if (range == nullptr) return "word";
    if (range->count == 1) return range->name;
    uintptr_t index = (reinterpret_cast<uintptr_t>(address) - range->begin) / range->stride;
    return std::string(range->name) + "[" + std::to_string(index) + "]";
  }

  std::string value(const void* address, uint64_t value) const {
    const Range* range = find(address);
    return range == nullptr ? decimal(value) : range->format(value);
  }

 private:
  struct Range {
    const char* name;
    uintptr_t begin;
    size_t stride, count;
    Format format;
  };

  // The last one added wins, so a field can be named inside a named struct.
  const Range* find(const void* address) const {
    uintptr_t at = reinterpret_cast<uintptr_t>(address);
    for (size_t i = ranges_.size(); i-- > 0;)
      if (at >= ranges_[i].begin && at < ranges_[i].begin + ranges_[i].stride * ranges_[i].count) return &ranges_[i];
    return nullptr;
  }

  std::vector<Range> ranges_;
};

inline const char* operation_name(Operation operation) {
  static const char* const names[] = {"load", "store", "exchange", "compare_exchange_weak", "compare_exchange_strong",
                                      "fetch_add", "fetch_sub", "fetch_or", "fetch_and", "plain load", "plain store",
                                      "note"};
  return names[static_cast<size_t>(operation)];
}

inline const char* order_name(std::memory_order order) {
  switch (order) {
    case std::memory_order_relaxed: return "relaxed";
    case std::memory_order_acquire: return "acquire";
    case std::memory_order_release: return "release";
    case std::memory_order_acq_rel: return "acq_rel";
    default: return "seq_cst";
  }
}

inline std::string describe(const Event& event, const Names& names) {
  const Request& request = event.request;
  if (request.operation == Operation::note) return "-- " + event.text;
  std::string text = std::string(operation_name(request.operation)) + " " + names.name(request.address) + ": ";
  std::string before = names.value(request.address, event.before);
  if (request.operation == Operation::plain_load || request.operation == Operation::plain_store) return text + before;
  if (request.operation == Operation::load) text += before;
  else if (event.failed) text += "found " + before + (event.spurious ? ", fails for no reason" : ", fails");
  else text += before + " -> " + names.value(request.address, event.after);
  return text + " (" + order_name(event.failed ? request.failure_order : request.order) + ")";
}

inline void print_trace(const std::vector<Event>& trace, const Names& names, FILE* out) {
  for (size_t i = 0; i < trace.size(); i++)
    std::fprintf(out, "    %3zu  thread %u  %s\n", i + 1, trace[i].thread, describe(trace[i], names).c_str());
}

}  // namespace explorer
