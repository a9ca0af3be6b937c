#include "merge_queue.h"

#include <algorithm>
#include <tuple>

#include "bam/nvme.h"

namespace bam {

void CommandTable::reserve(uint32_t most) {
  commands_.reserve(most);
  free_.reserve(most);
}

uint32_t CommandTable::add(const Command& command) {
  if (free_.empty()) {
    commands_.push_back(command);
    return n_tags() - 1;
  }
  uint32_t tag = free_.back();
  free_.pop_back();
  commands_[tag] = command;
  return tag;
}

void CommandTable::remove(uint32_t tag) {
  commands_[tag].outstanding = false;
  free_.push_back(tag);
}

void MergeQueue::order() {
  std::sort(tags_.begin(), tags_.end(), [this](uint32_t a, uint32_t b) {
    return std::tie(commands_[a].slba, commands_[a].destination) < std::tie(commands_[b].slba, commands_[b].destination);
  });
}

bool MergeQueue::joins(const ReadRun& run, const Command& next) const {
  return next.slba <= run.end + bridge_blocks_ && std::max(run.end, next.end()) - run.slba <= merge_blocks_;
}

ReadRun MergeQueue::front() {
  uint32_t last = tags_[begin_];
  const Command& first = commands_[last];
  ReadRun run{last, 1, first.slba, first.end(), true};
  for (size_t i = begin_ + 1; i < tags_.size() && joins(run, commands_[tags_[i]]); i++) {
    const Command& next = commands_[tags_[i]];
    run.in_place = run.in_place && next.slba == run.end &&
                   next.destination - first.destination == (next.slba - first.slba) * kBlockBytes;
    run.end = std::max(run.end, next.end());
    run.count++;
    commands_[last].next = tags_[i];
    last = tags_[i];
  }
  commands_[last].next = kNoCommand;
  return run;
}

void MergeQueue::pop(uint32_t count) {
  begin_ += count;
  if (begin_ < tags_.size()) return;
  tags_.clear();
  begin_ = 0;
}

}  // namespace bam
