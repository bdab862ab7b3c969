#include "src/metrics/metric_samples.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "src/base/check.h"

namespace layercast {

void MetricSamples::Expect(std::string_view prefix) {
  const auto table = MetricFamilies();
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].name.starts_with(prefix)) families_.try_emplace(i);
  }
}

void MetricSamples::Add(std::string_view family, std::vector<std::string> labels, double value) {
  std::vector<Sample>& samples = Of(family, labels.size(), false);
  samples.push_back({.labels = std::move(labels), .value = value});
}

void MetricSamples::Add(std::string_view family, std::vector<std::string> labels, const Durations& durations) {
  std::vector<Sample>& samples = Of(family, labels.size(), true);
  samples.push_back({.labels = std::move(labels), .durations = durations});
}

void MetricSamples::AddByCode(std::string_view family, const std::vector<std::string>& labels,
                              const std::map<ErrorCode, std::uint64_t>& counts) {
  for (int number = 0; number <= static_cast<int>(ErrorCode::kPermissionDenied); ++number) {
    const auto code = static_cast<ErrorCode>(number);
    std::vector<std::string> with_code = labels;
    with_code.emplace_back(ErrorCodeName(code));
    const auto found = counts.find(code);
    Add(family, std::move(with_code), found == counts.end() ? 0 : static_cast<double>(found->second));
  }
}

std::vector<MetricSamples::Sample>& MetricSamples::Of(std::string_view family, std::size_t labels, bool durations) {
  const auto table = MetricFamilies();
  const auto found = std::ranges::find(table, family, &MetricFamily::name);
  LAYERCAST_CHECK(found != table.end());
  LAYERCAST_CHECK(found->label_names().size() == labels);
  LAYERCAST_CHECK((found->kind == MetricKind::kDurations) == durations);
  return families_[static_cast<std::size_t>(std::distance(table.begin(), found))];
}

}  // namespace layercast
