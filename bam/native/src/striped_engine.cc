// Wrapper that shows several engines of one file each as one file, whose stripes lie in them in turn.
//
// Logical byte b lies in engine (b / stripe_bytes) % n, as extent.h's striped form says. A read that crosses stripes
// becomes one read per stripe; what it returns is the unbroken part that arrived from its beginning.
#include <algorithm>
#include <cerrno>

#include "bam/extent.h"
#include "guard.h"
#include "wrapper.h"

namespace bam {
namespace {

constexpr uint32_t kWaitSliceUs = 100;

// Bytes that engine `k` of `layout` holds.
uint64_t bytes_of(const Layout& layout, uint32_t k) {
  uint64_t stripes = layout.logical_bytes / layout.stripe_bytes, rest = layout.logical_bytes % layout.stripe_bytes;
  uint64_t full = stripes / layout.n_files + (k < stripes % layout.n_files ? 1 : 0);
  return full * layout.stripe_bytes + (k == stripes % layout.n_files ? rest : 0);
}

// First logical byte that is missing when engine `k` ends at `bytes`.
uint64_t logical_end(const Layout& layout, uint32_t k, uint64_t bytes) {
  if (bytes >= bytes_of(layout, k)) return layout.logical_bytes;
  uint64_t unit = bytes / layout.stripe_bytes;
  return (unit * layout.n_files + k) * layout.stripe_bytes + bytes % layout.stripe_bytes;
}

class StripedEngine final : public Engine {
 public:
  StripedEngine(std::vector<std::shared_ptr<Engine>> inner, const Layout& layout)
      : inner_(std::move(inner)), layout_(layout) {
    FileInfo whole;
    whole.path = "striped";
    whole.bytes = layout.logical_bytes;
    whole.direct = true;
    for (const auto& engine : inner_) {
      const FileInfo& file = engine->files()[0];
      whole.path.append(&engine == &inner_.front() ? ":" : "+").append(file.path);
      // One alignment for all, and for memory too: pieces of a destination must be aligned as well.
      uint32_t unit = std::max(file.offset_alignment, file.memory_alignment);
      whole.offset_alignment = std::max(whole.offset_alignment, unit);
      whole.direct = whole.direct && file.direct;
    }
    whole.memory_alignment = whole.offset_alignment;
    files_.push_back(whole);
  }

  std::unique_ptr<Channel> open_channel(uint32_t depth, std::string* error) override;
  const std::vector<FileInfo>& files() const override { return files_; }
  const Layout& layout() const { return layout_; }
  FileLook look(uint32_t) override {
    for (const auto& engine : inner_)
      if (int error = engine->look(0).error) return {error, 0};
    return {0, kAllBytes};  // where one engine was cut the stripes of others go on
  }
  uint64_t bytes_now(uint32_t) override {
    uint64_t end = layout_.logical_bytes;
    for (uint32_t k = 0; k < inner_.size(); k++) end = std::min(end, logical_end(layout_, k, inner_[k]->bytes_now(0)));
    return end;
  }
  std::string explain(uint32_t, uint64_t offset) override {
    if (offset >= layout_.logical_bytes) return "";
    FileRun run = locate(layout_, offset, 1);
    return inner_[run.file]->explain(0, run.file_offset);
  }
  std::string describe() const override {
    std::vector<std::string> inner;
    for (const auto& engine : inner_) inner.push_back(engine->describe());
    return JsonObject()
        .text("engine", "striped")
        .text("implementation", "native")
        .flag("direct", files_[0].direct)
        .json("features", JsonObject().number("stripe_bytes", static_cast<int64_t>(layout_.stripe_bytes)).str())
        .json("inner", json_list(inner))
        .str();
  }

 private:
  std::vector<std::shared_ptr<Engine>> inner_;
  Layout layout_;
  std::vector<FileInfo> files_;
};

// A read and how far the unbroken part from its beginning reaches.
struct WholeRead {
  uint64_t tag;
  uint32_t unfinished;   // pieces
  uint64_t reached;      // up to here bytes may be there: the end of the first piece that is not complete
  int64_t error;         // errno of the piece that `reached` is due to, if it brought nothing
};

struct StripePiece {
  uint32_t whole;
  uint32_t start;    // in the whole read
  uint32_t length;
};

class StripedChannel final : public Channel {
 public:
  StripedChannel(std::shared_ptr<StripedEngine> engine, std::vector<InnerQueue> inner, uint32_t depth)
      : engine_(std::move(engine)), whole_(depth), inner_(std::move(inner)) {}

  uint32_t submit(const ReadRequest* requests, uint32_t count) override;
  uint32_t poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) override;
  uint32_t depth() const override { return whole_.size(); }
  uint32_t in_flight() const override { return whole_.in_use(); }
  bool register_buffer(void* base, size_t bytes) override {
    bool all = true;
    for (InnerQueue& queue : inner_) all = queue.channel().register_buffer(base, bytes) && all;
    return all;
  }

 private:
  void split(const ReadRequest& request);
  uint32_t new_piece(const StripePiece& piece);
  void complete(uint32_t piece, int64_t result);
  void harvest(uint32_t inner, uint32_t wait_us);
  uint32_t release(ReadCompletion* completions, uint32_t capacity);

  std::shared_ptr<StripedEngine> engine_;
  SlotPool<WholeRead> whole_;
  std::vector<StripePiece> pieces_;
  std::vector<uint32_t> free_pieces_;
  std::vector<uint32_t> done_;       // whole reads to report
  std::vector<InnerQueue> inner_;
  uint32_t waited_for_ = 0;          // inner channels are waited for in turn
};

uint32_t StripedChannel::new_piece(const StripePiece& piece) {
  if (free_pieces_.empty()) {
    pieces_.push_back(piece);
    return static_cast<uint32_t>(pieces_.size() - 1);
  }
  uint32_t id = free_pieces_.back();
  free_pieces_.pop_back();
  pieces_[id] = piece;
  return id;
}

void StripedChannel::split(const ReadRequest& request) {
  const Layout& layout = engine_->layout();
  uint32_t slot = whole_.take();
  uint64_t left = request.offset < layout.logical_bytes ? layout.logical_bytes - request.offset : 0;
  whole_[slot] = {request.tag, 1, std::min<uint64_t>(request.length, left), 0};
  if (request.file != 0) whole_[slot] = {request.tag, 1, 0, EBADF};
  // Pieces are whole aligned units even where the last one reaches past the end; `reached` keeps the end.
  for (uint32_t start = 0; start < request.length && start < whole_[slot].reached;) {
    FileRun run = locate(layout, request.offset + start, request.length - start);
    uint32_t length = static_cast<uint32_t>(run.length);
    uint32_t piece = new_piece({slot, start, length});
    whole_[slot].unfinished++;
    inner_[run.file].push({static_cast<uint8_t*>(request.destination) + start, run.file_offset, length, 0, piece});
    start += length;
  }
  if (--whole_[slot].unfinished == 0) done_.push_back(slot);
}

uint32_t StripedChannel::submit(const ReadRequest* requests, uint32_t count) {
  uint32_t taken = std::min(count, whole_.room());
  for (uint32_t i = 0; i < taken; i++) split(requests[i]);
  for (InnerQueue& queue : inner_) queue.flush();
  return taken;
}

void StripedChannel::complete(uint32_t id, int64_t result) {
  const StripePiece& piece = pieces_[id];
  WholeRead& whole = whole_[piece.whole];
  uint64_t end = piece.start + static_cast<uint64_t>(result > 0 ? result : 0);
  bool complete = result >= 0 && static_cast<uint64_t>(result) >= piece.length;
  if (!complete && end < whole.reached) {
    whole.reached = end;
    whole.error = result < 0 ? -result : 0;
  }
  if (--whole.unfinished == 0) done_.push_back(piece.whole);
  free_pieces_.push_back(id);
}

void StripedChannel::harvest(uint32_t inner, uint32_t wait_us) {
  ReadCompletion completions[64];
  uint32_t got = inner_[inner].poll(completions, 64, wait_us);
  for (uint32_t i = 0; i < got; i++) complete(static_cast<uint32_t>(completions[i].tag), completions[i].result);
}

uint32_t StripedChannel::release(ReadCompletion* completions, uint32_t capacity) {
  uint32_t given = 0;
  for (; given < capacity && !done_.empty(); given++) {
    WholeRead& whole = whole_[done_.back()];
    // An error shows only when nothing came before it; else the read is short, and the next one meets the error.
    int64_t result = static_cast<int64_t>(whole.reached);
    if (whole.reached == 0 && whole.error != 0) result = -whole.error;
    completions[given] = {whole.tag, result};
    whole_.give_back(done_.back());
    done_.pop_back();
  }
  return given;
}

// There is no waiting for several channels at once: they are waited for in turn, a short time each.
uint32_t StripedChannel::poll(ReadCompletion* completions, uint32_t capacity, uint32_t wait_us) {
  for (uint32_t k = 0; k < inner_.size(); k++) harvest(k, 0);
  uint32_t idle_in_a_row = 0;
  for (uint32_t left = wait_us; done_.empty() && left > 0 && in_flight() > 0;) {
    waited_for_ = (waited_for_ + 1) % static_cast<uint32_t>(inner_.size());
    if (inner_[waited_for_].idle() && ++idle_in_a_row < inner_.size()) continue;
    idle_in_a_row = 0;
    uint32_t slice = std::min(left, kWaitSliceUs);
    harvest(waited_for_, slice);
    left -= slice;
  }
  return release(completions, capacity);
}

std::unique_ptr<Channel> StripedEngine::open_channel(uint32_t depth, std::string* error) {
  std::vector<InnerQueue> inner;
  uint32_t reached = UINT32_MAX;
  for (const auto& engine : inner_) {
    auto channel = engine->open_channel(depth, error);
    if (channel == nullptr) return nullptr;
    reached = std::min(reached, channel->depth());
    inner.emplace_back(std::move(channel));
  }
  auto self = std::static_pointer_cast<StripedEngine>(shared_from_this());
  return std::make_unique<StripedChannel>(std::move(self), std::move(inner), reached);
}

// `logical_bytes` 0: all that the engines hold.
std::shared_ptr<Engine> make_striped(std::vector<std::shared_ptr<Engine>> inner, uint64_t stripe_bytes,
                                     uint64_t logical_bytes, Failure* failure) {
  bool exact = logical_bytes == 0;
  for (const auto& engine : inner) {
    const std::vector<FileInfo>& files = engine->files();
    if (files.size() != 1) {
      *failure = Failure::setting("inner", std::to_string(files.size()) + " files", "engines of one file each");
      return nullptr;
    }
    uint32_t unit = std::max(files[0].offset_alignment, files[0].memory_alignment);
    if (stripe_bytes == 0 || stripe_bytes % unit != 0) {
      *failure = Failure::setting("stripe_bytes", std::to_string(stripe_bytes),
                                  "a multiple of " + std::to_string(unit) + " bytes, the alignment of reads of " + files[0].path);
      return nullptr;
    }
    if (exact) logical_bytes += files[0].bytes;
  }
  Layout layout{nullptr, 0, logical_bytes, stripe_bytes, static_cast<uint32_t>(inner.size())};
  for (uint32_t k = 0; k < inner.size(); k++) {
    const FileInfo& file = inner[k]->files()[0];
    uint64_t needed = bytes_of(layout, k);
    if (exact ? file.bytes == needed : file.bytes >= needed) continue;
    *failure = Failure::source(file.path, std::to_string(needed) + " bytes, its share of " + std::to_string(logical_bytes),
                               std::to_string(file.bytes) + " bytes", 0);
    return nullptr;
  }
  return std::make_shared<StripedEngine>(std::move(inner), layout);
}

}  // namespace
}  // namespace bam

extern "C" {

// `logical_bytes` 0: the engines hold exactly a striped file; else they hold at least that much of one.
void* bam_striped_engine_create(const void* const* inner, uint32_t count, uint64_t stripe_bytes, uint64_t logical_bytes,
                                char* error, size_t capacity) {
  return bam::guarded(static_cast<void*>(nullptr), [&]() -> void* {
    std::vector<std::shared_ptr<bam::Engine>> engines;
    for (uint32_t i = 0; i < count; i++) engines.push_back(bam::find_engine(inner[i]));
    bam::Failure failure = bam::inner_closed();
    std::shared_ptr<bam::Engine> engine;
    bool all_open = std::find(engines.begin(), engines.end(), nullptr) == engines.end();
    if (count > 0 && all_open) engine = bam::make_striped(std::move(engines), stripe_bytes, logical_bytes, &failure);
    return bam::handle_or_failure(std::move(engine), failure, error, capacity);
  });
}

}  // extern "C"
