// The table of all metrics: what they are called, of what kind they are, and by which labels one has several values.
// docs/operations.md has the same table for readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace layercast {

enum class MetricKind : std::uint8_t { kCounter, kGauge, kDurations };

// A row of the table. Value; immutable.
struct MetricFamily {
  std::string_view name;
  MetricKind kind;
  std::string_view labels;  // "channel peer"; empty: it has one value
  std::string_view help;

  std::vector<std::string_view> label_names() const;
};

std::span<const MetricFamily> MetricFamilies();

}  // namespace layercast
