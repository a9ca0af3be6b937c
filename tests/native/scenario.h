// A list of scenarios, and running it: each in a process of its own, a few at once.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "explorer.h"
#include "trace.h"

namespace explorer {

struct Scenario {
  std::string name;
  std::function<Findings()> run;
  std::function<Names()> names;
  // What a planted bug must be reported as: a part of the message. Empty: there must be no violation.
  std::string expected_violation = "";
  // A search that met fewer states than this has shrunk and proves less than it says. The counts depend a little
  // on the compiler (stack layout), so the bound is about half of what g++ 12 gives.
  uint64_t min_states = 1;
  // Numbers of events that some schedule must reach, and the names of all of the model's events.
  std::vector<size_t> must_reach = {};
  std::vector<const char*> event_names = {};
};

class Runner {
 public:
  // Prints one line a scenario and a closing one; the exit status.
  int run(const std::vector<Scenario>& scenarios, const char* filter) {
    const uint32_t jobs = std::max(1u, std::thread::hardware_concurrency());
    for (const Scenario& scenario : scenarios) {
      if (scenario.name.find(filter) == std::string::npos) continue;
      while (running_ >= jobs) collect();
      launch(scenario);
    }
    while (running_ != 0) collect();
    std::printf("%u passed, %u failed\n", passed_, failed_);
    return failed_ == 0 && passed_ != 0 ? 0 : 1;
  }

 private:
  void launch(const Scenario& scenario) {
    std::fflush(stdout);
    pid_t child = fork();
    if (child < 0) {
      std::perror("fork");
      std::exit(1);
    }
    if (child == 0) {
      bool good = judge(scenario);
      std::fflush(stdout);
      _exit(good ? 0 : 1);
    }
    running_++;
  }

  void collect() {
    int status = 0;
    if (wait(&status) < 0) std::exit(1);
    running_--;
    if (WIFSIGNALED(status)) std::printf("FAILED a scenario died of signal %d\n", WTERMSIG(status));
    bool good = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    (good ? passed_ : failed_)++;
  }

  bool judge(const Scenario& scenario) {
    auto start = std::chrono::steady_clock::now();
    Runtime::instance().reached_counts.assign(scenario.event_names.size(), 0);
    Findings findings = scenario.run();
    double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::string complaint = complaint_about(scenario, findings);
    std::printf("%s %s: %llu states, %llu steps, %llu ends, longest %u, %.1f s%s%s\n",
                complaint.empty() ? "ok    " : "FAILED", scenario.name.c_str(),
                static_cast<unsigned long long>(findings.states), static_cast<unsigned long long>(findings.steps),
                static_cast<unsigned long long>(findings.ends), findings.longest, seconds,
                scenario.expected_violation.empty() ? "" : ", found: ",
                scenario.expected_violation.empty() ? "" : findings.violation.c_str());
    if (!complaint.empty()) std::printf("    %s\n", complaint.c_str());
    if (!findings.violation.empty() && (!complaint.empty() || std::getenv("EXPLORE_TRACES") != nullptr))
      print_trace(findings.trace, scenario.names(), stdout);
    return complaint.empty();
  }

  std::string complaint_about(const Scenario& scenario, const Findings& findings) const {
    if (!scenario.expected_violation.empty()) {
      if (findings.violation.find(scenario.expected_violation) != std::string::npos) return "";
      return "the planted bug was not found: expected \"" + scenario.expected_violation + "\", found \"" +
             findings.violation + "\"";
    }
    if (!findings.violation.empty()) return findings.violation;
    if (findings.states < scenario.min_states)
      return "only " + std::to_string(findings.states) + " states; at least " + std::to_string(scenario.min_states) +
             " were expected: the scenario has shrunk";
    for (size_t event : scenario.must_reach)
      if (Runtime::instance().reached_counts[event] == 0)
        return std::string("no schedule reached \"") + scenario.event_names[event] + "\"";
    return "";
  }

  uint32_t running_ = 0, passed_ = 0, failed_ = 0;
};

}  // namespace explorer
