// Just enough JSON to describe engines and failures.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bam {

// A JSON string. Bytes that are not ASCII pass unchanged, so any path survives (Python reads it with surrogateescape).
inline std::string json_quote(std::string_view text) {
  static const char* digits = "0123456789abcdef";
  std::string quoted = "\"";
  for (char c : text) {
    unsigned char byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20) {
      quoted += "\\u00";
      quoted += digits[byte >> 4];
      quoted += digits[byte & 15];
    } else {
      quoted += c;
    }
  }
  quoted += '"';
  return quoted;
}

inline std::string json_list(const std::vector<std::string>& json_values) {
  std::string list = "[";
  for (const std::string& value : json_values) {
    if (list.size() > 1) list += ", ";
    list += value;
  }
  list += ']';
  return list;
}

class JsonObject {
 public:
  JsonObject& json(std::string_view key, std::string_view value) {
    if (!body_.empty()) body_ += ", ";
    body_.append(json_quote(key)).append(": ").append(value);
    return *this;
  }
  JsonObject& text(std::string_view key, std::string_view value) { return json(key, json_quote(value)); }
  JsonObject& flag(std::string_view key, bool value) { return json(key, value ? "true" : "false"); }
  JsonObject& number(std::string_view key, int64_t value) { return json(key, std::to_string(value)); }
  JsonObject& texts(std::string_view key, const std::vector<std::string>& values) {
    std::vector<std::string> quoted;
    for (const std::string& value : values) quoted.push_back(json_quote(value));
    return json(key, json_list(quoted));
  }
  std::string str() const { return std::string("{").append(body_).append("}"); }

 private:
  std::string body_;
};

}  // namespace bam
