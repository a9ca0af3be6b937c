// Commands of one controller thread: those being read, and those that wait for neighbours to be read with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bam {

constexpr uint32_t kNoCommand = ~uint32_t{0};

// A command that was accepted and is not completed.
struct Command {
  uint32_t queue;
  uint32_t n_blocks;
  uint64_t slba;
  uint64_t destination;
  uint16_t cid;
  bool outstanding;
  uint32_t next = kNoCommand;  // of the same read

  uint64_t end() const { return slba + n_blocks; }
};

// Commands by tag.
class CommandTable {
 public:
  void reserve(uint32_t most);
  uint32_t add(const Command& command);
  void remove(uint32_t tag);
  Command& operator[](uint32_t tag) { return commands_[tag]; }
  uint32_t n_tags() const { return static_cast<uint32_t>(commands_.size()); }
  uint32_t count() const { return static_cast<uint32_t>(commands_.size() - free_.size()); }

 private:
  std::vector<Command> commands_;
  std::vector<uint32_t> free_;
};

// One read for some commands, in order of their first blocks.
struct ReadRun {
  uint32_t first;    // tag
  uint32_t count;    // commands
  uint64_t slba;
  uint64_t end;
  bool in_place;     // their destinations lie one behind the other, as the blocks do
};

// Takes commands until order(); then hands all of them out again as runs, before it takes more.
class MergeQueue {
 public:
  // Blocks of the longest run of more than one command, and of the longest hole in it.
  MergeQueue(CommandTable& commands, uint64_t merge_blocks, uint64_t bridge_blocks)
      : commands_(commands), merge_blocks_(merge_blocks), bridge_blocks_(bridge_blocks) {}

  void reserve(uint32_t most) { tags_.reserve(most); }
  void add(uint32_t tag) { tags_.push_back(tag); }
  void order();
  bool empty() const { return tags_.empty(); }
  ReadRun front();  // its commands linked by `next`; not when empty
  void pop(uint32_t count);

 private:
  bool joins(const ReadRun& run, const Command& next) const;

  CommandTable& commands_;
  uint64_t merge_blocks_, bridge_blocks_;
  std::vector<uint32_t> tags_;
  size_t begin_ = 0;  // of those not yet handed out
};

}  // namespace bam
