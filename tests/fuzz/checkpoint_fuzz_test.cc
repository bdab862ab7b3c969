// Safetensors headers and index files: either an error, or tensors that tile the file. Most useful under the address
// sanitizer.
#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/error.h"
#include "src/checkpoint/safetensors/safetensors_header.h"
#include "src/checkpoint/safetensors/weight_index.h"
#include "tests/fuzz/damage.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kJsonBytes = "{}[],:\"0123456789-.eE\\u \n\0\xff\xc3tfn"sv;
constexpr std::string_view kHeader =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
    R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[8,14]},"none":{"dtype":"I8","shape":[0],"data_offsets":[14,14]}} )";
constexpr std::string_view kBytes = "0123456789abcd";

// True: accepted.
bool TilesOrRefuses(const std::string& file) {
  // A copy of the exact size on the heap, so that the address sanitizer sees a read past it.
  const std::vector<char> bytes(file.begin(), file.end());
  try {
    const SafetensorsHeader header = ParseSafetensors(std::as_bytes(std::span(bytes)), "'f'");
    std::uint64_t end = header.tensors.empty() ? file.size() : header.tensors.front().begin;
    for (const auto& tensor : header.tensors) {
      EXPECT_EQ(tensor.begin, end);
      EXPECT_EQ(tensor.end - tensor.begin, static_cast<std::uint64_t>(tensor.spec.num_bytes()));
      end = tensor.end;
    }
    EXPECT_EQ(end, file.size());
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
    EXPECT_TRUE(std::string_view(error.what()).starts_with("'f': ")) << error.what();
    return false;
  }
}

TEST(SafetensorsFuzz, DamagedHeadersWithTheRightLength) {
  Damage damage(1, kJsonBytes);
  int accepted = 0;
  for (int round = 0; round < 10000; ++round) {
    accepted += TilesOrRefuses(SafetensorsBytes(damage.Apply(std::string(kHeader)), kBytes)) ? 1 : 0;
    if (HasFailure()) FAIL() << "round " << round;
  }
  EXPECT_GT(accepted, 0);  // else only the syntax was tried
}

TEST(SafetensorsFuzz, DamagedFiles) {
  Damage damage(2, kJsonBytes);
  const std::string file = SafetensorsBytes(kHeader, kBytes);
  for (int round = 0; round < 10000; ++round) {
    TilesOrRefuses(damage.Apply(file));
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(SafetensorsFuzz, ShapesAndOffsetsOfEverySize) {
  Damage damage(3, kJsonBytes);
  const char* const numbers[] = {"0",
                                 "1",
                                 "2",
                                 "7",
                                 "8",
                                 "4294967296",
                                 "4611686018427387904",
                                 "9223372036854775807",
                                 "9223372036854775808",
                                 "18446744073709551615",
                                 "18446744073709551616",
                                 "1e3",
                                 "-1"};
  const auto number = [&] { return std::string(numbers[damage.Below(std::size(numbers))]); };
  for (int round = 0; round < 10000; ++round) {
    const auto dtype = std::string(SafetensorsName(AllDTypes()[damage.Below(AllDTypes().size())]));
    std::string shape = number();
    for (std::size_t more = damage.Below(4); more > 0; --more) shape += "," + number();
    TilesOrRefuses(SafetensorsBytes("{\"t\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
                                        number() + "," + number() + "]}}",
                                    std::string(damage.Below(9), '\0')));
    if (HasFailure()) FAIL() << "round " << round;
  }
}

TEST(IndexFuzz, DamagedIndexFiles) {
  const TempFolder folder;
  Damage damage(4, kJsonBytes);
  const std::string index =
      R"({"metadata":{"total_size":14},"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})";
  for (int round = 0; round < 300; ++round) {
    try {
      const WeightIndex read = ReadWeightIndex(folder.Write("index", damage.Apply(index)));
      for (const std::string& file : read.Files()) ASSERT_EQ(file.find('/'), file.npos) << "round " << round;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kCorrupt) << "round " << round << ": " << error.what();
    }
  }
}

}  // namespace
}  // namespace layercast
