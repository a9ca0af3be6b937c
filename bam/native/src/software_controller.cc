#include "bam/software_controller.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstring>
#include <future>

#include "controller_worker.h"

namespace bam {
namespace {

// An empty string, or why the calling thread cannot run on that core.
std::string pin_this_thread(int32_t core) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (core < 0 || core >= CPU_SETSIZE) return "core " + std::to_string(core) + ": no such core";
  CPU_SET(static_cast<size_t>(core), &cores);
  int error = pthread_setaffinity_np(pthread_self(), sizeof cores, &cores);
  return error == 0 ? "" : "core " + std::to_string(core) + ": " + std::strerror(error);
}

}  // namespace

uint32_t ErrorLog::add(ErrorRecord record) {
  std::lock_guard lock(mutex_);
  if (++last_ == 0) ++last_;  // 0 means no record
  record.number = last_;
  records_[record.number % kErrorRecords] = record;
  return record.number;
}

bool ErrorLog::find(uint32_t number, ErrorRecord* record) const {
  std::lock_guard lock(mutex_);
  *record = records_[number % kErrorRecords];
  return number != 0 && record->number == number;
}

SoftwareController::SoftwareController(std::shared_ptr<Engine> engine, const Layout& layout,
                                       std::vector<QueuePairState> queues)
    : engine_(std::move(engine)), layout_(layout), queues_(std::move(queues)) {
  if (layout.extents == nullptr) return;
  extents_.assign(layout.extents, layout.extents + layout.n_extents);
  layout_.extents = extents_.data();
}

SoftwareController::~SoftwareController() { stop(); }

std::unique_ptr<SoftwareController> SoftwareController::create(std::shared_ptr<Engine> engine, const Layout& layout,
                                                               std::vector<QueuePairState> queues,
                                                               const ControllerConfig& config, std::string* error) {
  std::unique_ptr<SoftwareController> controller(
      new SoftwareController(std::move(engine), layout, std::move(queues)));
  return controller->start(config, error) ? std::move(controller) : nullptr;
}

bool SoftwareController::start(const ControllerConfig& config, std::string* error) {
  for (uint32_t i = 0; i < config.n_threads; i++) {
    workers_.push_back(std::make_unique<ControllerWorker>(layout_, config, errors_, stopping_));
  }
  for (size_t i = 0; i < queues_.size(); i++) workers_[i % workers_.size()]->add_queue(queues_[i]);
  for (uint32_t i = 0; i < config.n_threads; i++) {
    // Each thread opens its reader itself: a ring may belong to the thread that made it.
    std::promise<std::string> opened;
    std::future<std::string> failure = opened.get_future();
    int32_t core = config.n_cores != 0 ? config.cores[i % config.n_cores] : -1;
    threads_.emplace_back(
        [this, core, pinned = config.n_cores != 0, &worker = *workers_[i], opened = std::move(opened)]() mutable {
          std::string reason;
          bool ready = false;
          try {
            if (pinned) reason = pin_this_thread(core);
            ready = reason.empty() && worker.open_reader(*engine_, &reason);
            if (!ready && reason.empty()) reason = "the engine has no channel for the controller";
            opened.set_value(std::move(reason));
          } catch (...) {
            return opened.set_exception(std::current_exception());
          }
          if (ready) worker.run();
        });
    *error = failure.get();
    if (!error->empty()) return false;  // the destructor stops those already running
  }
  return true;
}

void SoftwareController::stop() {
  std::lock_guard lock(stop_mutex_);
  // release: pairs with the acquire in ControllerWorker::run()
  stopping_.store(true, std::memory_order_release);
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

ControllerCounters SoftwareController::counters() const {
  ControllerCounters sum{};
  for (const std::unique_ptr<ControllerWorker>& worker : workers_) {
    const WorkerCounters& counted = worker->counters();
    sum.commands += counted.commands.get();
    sum.errors += counted.errors.get();
    sum.aborted += counted.aborted.get();
    sum.reads += counted.reads.get();
    sum.bytes_read += counted.bytes_read.get();
    sum.invalid_doorbells += counted.invalid_doorbells.get();
    sum.idle_sleeps += counted.idle_sleeps.get();
    sum.left_behind += counted.left_behind.get();
    sum.commands_read += counted.commands_read.get();
    sum.bytes_useful += counted.bytes_useful.get();
    sum.commands_merged += counted.commands_merged.get();
    sum.max_in_flight = std::max(sum.max_in_flight, counted.max_in_flight.get());
  }
  return sum;
}

}  // namespace bam
