// What engines that wrap another one share.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bam/engine.h"
#include "engine_registry.h"
#include "failure.h"

namespace bam {

// Shows the inner engine's files and answers questions about them.
class WrapperEngine : public Engine {
 public:
  explicit WrapperEngine(std::shared_ptr<Engine> inner) : inner_(std::move(inner)) {}
  const std::vector<FileInfo>& files() const override { return inner_->files(); }
  FileLook look(uint32_t file) override { return inner_->look(file); }
  uint64_t bytes_now(uint32_t file) override { return inner_->bytes_now(file); }
  std::string explain(uint32_t file, uint64_t offset) override { return inner_->explain(file, offset); }

 protected:
  bool direct() const {
    for (const FileInfo& file : files())
      if (!file.direct) return false;
    return true;
  }
  std::string described(const char* name, const std::string& features) const {
    return JsonObject()
        .text("engine", name)
        .text("implementation", "native")
        .flag("direct", direct())
        .json("features", features)
        .json("inner", json_list({inner_->describe()}))
        .str();
  }
  std::shared_ptr<Engine> inner_;
};

// A channel below a wrapper's channel, which takes any number of requests and submits what there is room for.
class InnerQueue {
 public:
  explicit InnerQueue(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}

  void push(const ReadRequest& request) { pending_.push_back(request); }
  void flush() {
    while (!pending_.empty() && channel_->submit(&pending_.front(), 1) == 1) pending_.pop_front();
  }
  uint32_t poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) {
    flush();
    return channel_->poll(completions, capacity, wait_us);
  }
  bool idle() const { return pending_.empty() && channel_->in_flight() == 0; }
  Channel& channel() const { return *channel_; }

 private:
  std::deque<ReadRequest> pending_;
  std::unique_ptr<Channel> channel_;
};

// What a wrapper remembers of each read in flight; the number of its slot is the inner channel's tag.
template <class T>
class SlotPool {
 public:
  explicit SlotPool(uint32_t slots) : slots_(slots) {
    for (uint32_t slot = slots; slot-- > 0;) free_.push_back(slot);
  }
  uint32_t room() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t in_use() const { return static_cast<uint32_t>(slots_.size() - free_.size()); }
  uint32_t size() const { return static_cast<uint32_t>(slots_.size()); }
  uint32_t take() {
    uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void give_back(uint32_t slot) { free_.push_back(slot); }
  T& operator[](uint64_t slot) { return slots_[slot]; }

 private:
  std::vector<T> slots_;
  std::vector<uint32_t> free_;
};

inline Failure inner_closed() { return Failure::setting("inner", "an engine that is closed", "an open native engine"); }

}  // namespace bam
