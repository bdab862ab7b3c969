// What a process answers when it is asked for its metrics: values of families of the table. No type of Prometheus' own
// libraries is in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/error.h"
#include "src/metrics/durations.h"
#include "src/metrics/metric_families.h"

namespace layercast {

// Value.
class MetricSamples {
 public:
  struct Sample {
    std::vector<std::string> labels;  // values, in the order of the family's names
    double value = 0;                 // of a counter or a gauge
    Durations durations{};            // of a family of durations
  };
  using ByFamily = std::map<std::size_t, std::vector<Sample>>;  // by place in the table

  // Says that the process has all families whose names begin so, with or without a value just now.
  void Expect(std::string_view prefix);
  // The family is of the table, and has so many labels; anything else is a bug.
  void Add(std::string_view family, std::vector<std::string> labels, double value);
  void Add(std::string_view family, double value) { Add(family, {}, value); }
  void Add(std::string_view family, std::vector<std::string> labels, const Durations& durations);

  // One value for each error code, the last label; 0 for those that did not come.
  void AddByCode(std::string_view family, const std::vector<std::string>& labels,
                 const std::map<ErrorCode, std::uint64_t>& counts);

  const ByFamily& families() const { return families_; }

 private:
  std::vector<Sample>& Of(std::string_view family, std::size_t labels, bool durations);

  ByFamily families_;
};

}  // namespace layercast
