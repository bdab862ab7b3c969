#include "src/checkpoint/strict_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::size_t kDeepest = 127;  // levels, as safetensors' own reader accepts
constexpr std::string_view kWhitespace = " \t\n\r";

class Walker final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Walker(const std::string& subject, JsonVisitor& visitor) : subject_(subject), visitor_(visitor) {}

  bool null() override { return Scalar({JsonValue::Kind::kOther, "null"}); }
  bool boolean(bool value) override { return Scalar({JsonValue::Kind::kOther, value ? "true" : "false"}); }
  bool number_integer(number_integer_t value) override {
    return Scalar({JsonValue::Kind::kOther, value == 0 ? "-0" : std::to_string(value)});
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Scalar({JsonValue::Kind::kUnsigned, std::to_string(value), value});
  }
  bool number_float(number_float_t, const string_t& text) override { return Scalar({JsonValue::Kind::kOther, text}); }
  bool string(string_t& value) override { return Scalar({JsonValue::Kind::kString, value}); }
  bool binary(binary_t&) override { return false; }  // not in text

  bool start_object(std::size_t) override { return Begin(JsonValue::Kind::kBeginObject, "an object"); }
  bool end_object() override { return End(JsonValue::Kind::kEndObject); }
  bool start_array(std::size_t) override { return Begin(JsonValue::Kind::kBeginArray, "an array"); }
  bool end_array() override { return End(JsonValue::Kind::kEndArray); }

  bool key(string_t& name) override {
    const auto [kept, is_new] = keys_.back().insert(std::move(name));
    if (!is_new) Fail("the key " + Quote(*kept) + Inside() + " is there twice");
    path_.back() = *kept;  // valid for as long as the set, which owns the text
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception&) override {
    Fail("not JSON at byte " + std::to_string(position) + ", near " + Quote(token));
  }

 private:
  bool Scalar(const JsonValue& value) {
    visitor_.Visit(path_, value);
    return true;
  }

  bool Begin(JsonValue::Kind kind, std::string_view text) {
    visitor_.Visit(path_, {kind, text});
    if (keys_.size() == kDeepest) Fail("nested more than " + std::to_string(kDeepest) + " deep");
    keys_.emplace_back();
    path_.emplace_back();
    return true;
  }

  bool End(JsonValue::Kind kind) {
    keys_.pop_back();
    path_.pop_back();
    visitor_.Visit(path_, {kind, {}});
    return true;
  }

  // " of 'tensor'", for a key below the top.
  std::string Inside() const { return path_.size() < 2 ? "" : " of " + Quote(path_[path_.size() - 2]); }

  [[noreturn]] void Fail(const std::string& what) const { throw Error(ErrorCode::kCorrupt, subject_ + ": " + what); }

  const std::string& subject_;
  JsonVisitor& visitor_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects, outermost first; empty for an array
  std::vector<std::string_view> path_;
};

}  // namespace

void WalkJsonObject(std::string_view text, const std::string& subject, JsonVisitor& visitor) {
  const auto fail = [&](const std::string& what) { throw Error(ErrorCode::kCorrupt, subject + ": " + what); };
  if (const auto bad = FindInvalidUtf8(text)) fail("not UTF-8 at byte " + std::to_string(*bad));
  // Refused here because the parser takes a NUL as the end of its input, and skips a byte order mark.
  if (const auto nul = text.find('\0'); nul != text.npos) fail("not JSON: a NUL at byte " + std::to_string(nul));
  const std::string_view object = text.substr(std::min(text.find_first_not_of(kWhitespace), text.size()));
  if (!object.starts_with('{')) fail("expected to begin with '{', got " + Quote(object.substr(0, 1)));
  Walker walker(subject, visitor);
  nlohmann::json::sax_parse(text.begin(), text.end(), &walker);
}

}  // namespace layercast
