// Typed access to the fields of a config.json, with errors that name the field. Used by ModelConfig::Parse and by
// families that have fields of their own.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/model/config.h"

namespace layercast {

inline constexpr std::int64_t kMostLayers = 10000;  // the most layers a model may have, and any field may speak of
inline constexpr const char* kConfigFile = "config.json";

// Parses the text of a config.json, or of another `file` of that kind, which errors name. What Python writes as NaN,
// Infinity and -Infinity are objects in the result (src/base/bytes/python_json.h), which no field but a list of numbers
// takes. Throws kInvalidArgument for what is not JSON or is nested too deeply.
nlohmann::json ParseConfigText(std::string_view text, const std::string& file = kConfigFile);

// The fields of a JSON object. Value. A field that is null counts as absent. Every accessor throws kInvalidArgument for
// a value that does not fit: "config.json: hidden_size: expected an integer from 1 to ..., got \"x\"".
class ConfigFields {
 public:
  // In messages `where` is put before every field's name ("rope_scaling."), and `file` before everything. Throws
  // kInvalidArgument if `object` is no object.
  explicit ConfigFields(nlohmann::json object, std::string where = {}, std::string file = kConfigFile);
  // The configuration's, for a family. What is read of them is handed to `config.on_field`.
  static ConfigFields Of(const ModelConfig& config);

  // What error messages call that field: "rope_scaling.factor".
  std::string NameOf(std::string_view name) const { return where_ + std::string(name); }
  const nlohmann::json* Find(std::string_view name) const;  // null: absent. Is not handed to on_field
  std::optional<std::int64_t> Integer(std::string_view name, std::int64_t least, std::int64_t most) const;
  // A size, at least 1. Throws if the field is absent and there is no default (`otherwise`).
  std::int64_t Size(std::string_view name, std::optional<std::int64_t> otherwise = std::nullopt,
                    std::int64_t most = 0x7FFFFFFF) const;
  double Number(std::string_view name, double otherwise) const;                    // finite and above 0
  double NumberFrom(std::string_view name, double least, double otherwise) const;  // finite and at least `least`
  bool Flag(std::string_view name, bool otherwise) const;
  std::string Text(std::string_view name, std::string_view otherwise) const;
  std::vector<std::string> Texts(std::string_view name) const;      // a list, or empty
  std::vector<std::int64_t> Integers(std::string_view name) const;  // a single integer, a list, or empty
  std::vector<double> Numbers(std::string_view name) const;         // a list, or empty; may hold infinities

  [[noreturn]] void Refuse(std::string_view name, std::string_view expected, const nlohmann::json& got) const;
  // The message that Refuse() throws, without the file's name: "quantization_config.bits: expected 8, got 4".
  std::string Mismatch(std::string_view name, std::string_view expected, const nlohmann::json& got) const;
  // Throws kInvalidArgument "config.json: `message`".
  [[noreturn]] static void Refuse(const std::string& message);

 private:
  [[noreturn]] void RefuseFile(const std::string& message) const;
  std::optional<std::int64_t> FindInteger(std::string_view name, std::int64_t least, std::int64_t most) const;
  // Returns `value`, which is what a family takes for the field.
  template <class Value>
  Value Noted(std::string_view name, Value value) const;

  nlohmann::json object_;
  std::string where_;
  std::string file_;
  decltype(ModelConfig::on_field) on_field_;
};

}  // namespace layercast
