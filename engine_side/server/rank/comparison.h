// What a rank serves, beside what a cold load gives: where the first difference of each tensor is. Used by comparisons
// of weights and of adapters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "src/control/json_forms.h"

namespace layercast {

// Resource; one thread only.
class Comparison {
 public:
  explicit Comparison(int rank) : rank_(rank) {}

  // Both have as many bytes.
  void Add(const std::string& tensor, std::span<const std::byte> served, std::span<const std::byte> expected) {
    ++tensors_;
    bytes_ += served.size();
    const auto [at, other] = std::ranges::mismatch(served, expected);
    if (at == served.end()) return;
    differences_.push_back({{"rank", rank_},
                            {"tensor", tensor},
                            {"offset", at - served.begin()},
                            {"served", std::to_integer<int>(*at)},
                            {"expected", std::to_integer<int>(*other)}});
  }

  // {"tensors", "bytes", "differences": [{"rank", "tensor", "offset", "served", "expected"}]}
  Json ToJson() && { return {{"tensors", tensors_}, {"bytes", bytes_}, {"differences", std::move(differences_)}}; }

 private:
  const int rank_;
  std::size_t tensors_ = 0, bytes_ = 0;
  Json differences_ = Json::array();
};

}  // namespace layercast
