#include "src/adapter/adapter_names.h"

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr std::string_view kWrapped = "base_layer";

using Segments = std::span<const std::string_view>;

std::vector<std::string_view> Split(std::string_view name) {
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  std::vector<std::string_view> segments;
  while (true) {
    const std::size_t dot = name.find('.');
    segments.push_back(name.substr(0, dot));
    if (dot == std::string_view::npos) return segments;
    name.remove_prefix(dot + 1);
  }
}

bool Has(Segments segments, std::string_view segment) { return std::ranges::find(segments, segment) != segments.end(); }

bool IsOfAdapter(std::string_view segment) {
  return segment.starts_with("lora_") || segment == kWrapped || segment == "modules_to_save" ||
         segment == "token_adapter";
}

// What PEFT writes and is not served; empty: none of it.
std::string_view WhyNotServed(Segments segments) {
  if (Has(segments, "lora_magnitude_vector")) return "a magnitude of DoRA (use_dora), which is not served";
  if (Has(segments, "token_adapter"))
    return "trained rows of an embedding (trainable_token_indices), which are not served";
  if (Has(segments, "modules_to_save")) return "a whole module (modules_to_save), which is not served";
  if (segments.back() == "bias") {
    return Has(segments, "lora_B") ? "a bias of lora_B (lora_bias), which is not served"
                                   : "a bias that was trained (bias), which is not served";
  }
  if (segments.back() == "weight" && std::ranges::none_of(segments, IsOfAdapter)) {
    return "a whole module (modules_to_save), which is not served";
  }
  return {};
}

struct Suffix {
  Factor factor;
  std::string_view segment;
  std::string_view last;  // behind it; empty: nothing
};
constexpr std::array<Suffix, 5> kSuffixes = {{{Factor::kA, "lora_A", "weight"},
                                              {Factor::kB, "lora_B", "weight"},
                                              {Factor::kEmbeddingA, "lora_embedding_A", ""},
                                              {Factor::kEmbeddingB, "lora_embedding_B", ""},
                                              {Factor::kBaseCopy, kWrapped, "weight"}}};

// Takes the suffix from the end of `segments`, if it is there.
bool TakeSuffix(const Suffix& suffix, Segments& segments) {
  Segments rest = segments;
  if (!suffix.last.empty()) {
    if (rest.back() != suffix.last) return false;
    rest = rest.first(rest.size() - 1);
  }
  const bool named = suffix.factor != Factor::kBaseCopy && rest.size() > 1 && rest.back() == "default";
  if (named) rest = rest.first(rest.size() - 1);
  if (rest.empty() || rest.back() != suffix.segment) return false;
  segments = rest.first(rest.size() - 1);
  return true;
}

std::string Join(Segments segments) {
  std::string path;
  for (const std::string_view segment : segments) path.append(path.empty() ? "" : ".").append(segment);
  return path;
}

}  // namespace

std::string_view Name(Factor factor) { return std::ranges::find(kSuffixes, factor, &Suffix::factor)->segment; }

AdapterName ParseAdapterName(std::string_view name) {
  const auto fail = [name](ErrorCode code, std::string_view what) {
    throw Error(code, "tensor " + Quote(name) + ": " + std::string(what));
  };
  constexpr std::string_view kExpected =
      "expected a factor of LoRA (MODULE.lora_A.weight, MODULE.lora_B.weight, MODULE.lora_embedding_A, "
      "MODULE.lora_embedding_B)";
  const std::vector<std::string_view> all = Split(name);
  Segments segments = all;
  const auto odd = [](char c) { return c <= ' ' || c > '~'; };
  if (Has(segments, "") || std::ranges::any_of(name, odd)) fail(ErrorCode::kInvalidArgument, kExpected);
  if (const std::string_view why = WhyNotServed(segments); !why.empty()) fail(ErrorCode::kUnsupported, why);
  for (const Suffix& suffix : kSuffixes) {
    if (!TakeSuffix(suffix, segments)) continue;
    int wrapper = 0;
    while (!segments.empty() && segments.back() == kWrapped) {
      segments = segments.first(segments.size() - 1);
      ++wrapper;
    }
    if (segments.empty()) break;
    return {.module = Join(segments), .factor = suffix.factor, .wrapper = wrapper};
  }
  fail(ErrorCode::kInvalidArgument, kExpected);
  return {};
}

bool IsWholeModuleName(std::string_view name) {
  const std::vector<std::string_view> segments = Split(name);
  return Has(segments, "modules_to_save") ||
         (segments.back() == "weight" && std::ranges::none_of(segments, IsOfAdapter));
}

}  // namespace layercast
