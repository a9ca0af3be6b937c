// Why something could not be opened, in the fields the Python errors carry.
#pragma once

#include <string>

#include "json_text.h"

namespace bam {

struct Failure {
  enum class Kind { source, unavailable, setting };
  Kind kind = Kind::unavailable;
  std::string subject;   // file | engine | setting
  std::string expected;  // what was needed | reason | expected
  std::string found;     // what there is | remedy | value
  int error = 0;         // errno where there is one

  static Failure source(std::string file, std::string expected, std::string found, int error) {
    return {Kind::source, std::move(file), std::move(expected), std::move(found), error};
  }
  static Failure unavailable(std::string engine, std::string reason, std::string remedy, int error) {
    return {Kind::unavailable, std::move(engine), std::move(reason), std::move(remedy), error};
  }
  static Failure setting(std::string name, std::string value, std::string expected) {
    return {Kind::setting, std::move(name), std::move(expected), std::move(value), 0};
  }

  std::string json() const {
    const char* kinds[] = {"source", "unavailable", "setting"};
    return JsonObject()
        .text("kind", kinds[static_cast<int>(kind)])
        .text("subject", subject)
        .text("expected", expected)
        .text("found", found)
        .number("errno", error)
        .str();
  }
};

}  // namespace bam
