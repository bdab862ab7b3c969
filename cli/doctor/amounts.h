// Amounts in what `layercast doctor` says.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace layercast::cli {

// "1.5", "8"
inline std::string NumberText(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g", number);
  return text.data();
}

// As the kernel counts memory: "64 KiB", "7.5 GiB", "67 TiB".
inline std::string BytesText(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {" bytes", " KiB", " MiB", " GiB", " TiB"};
  auto amount = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; amount >= 1024 && unit + 1 < kUnits.size(); ++unit) amount /= 1024;
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), amount < 10 ? "%.2g" : "%.0f", amount);
  return text.data() + std::string(kUnits[unit]);
}

}  // namespace layercast::cli
