// Safetensors headers and index files: either an error, or tensors that tile the file. Most useful under the address
// sanitizer.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "layercast/error.h"
#include "src/checkpoint/safetensors/safetensors_header.h"
#include "src/checkpoint/safetensors/weight_index.h"
#include "tests/fuzz/damage.h"
#include "tests/fuzz/fuzzing.h"
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

// "": accepted.
std::string TilesOrRefuses(const std::string& file) {
  const std::vector<std::byte> bytes = ExactBytes(file);
  try {
    const SafetensorsHeader header = ParseSafetensors(bytes, "'f'");
    std::uint64_t end = header.tensors.empty() ? file.size() : header.tensors.front().begin;
    for (const auto& tensor : header.tensors) {
      EXPECT_EQ(tensor.begin, end);
      EXPECT_EQ(tensor.end - tensor.begin, static_cast<std::uint64_t>(tensor.spec.num_bytes()));
      end = tensor.end;
    }
    EXPECT_EQ(end, file.size());
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
    EXPECT_TRUE(std::string_view(error.what()).starts_with("'f': ")) << error.what();
    return error.what();
  }
}

TEST(SafetensorsFuzz, DamagedHeadersWithTheRightLength) {
  const auto take = [](const std::string& header) { return TilesOrRefuses(SafetensorsBytes(header, kBytes)); };
  const Fuzzed fuzzed = Fuzz({"safetensors_header", {std::string(kHeader)}, kJsonBytes, take}, 10'000);
  EXPECT_GT(fuzzed.accepted, 1U);  // else only the syntax was tried
}

TEST(SafetensorsFuzz, DamagedFiles) {
  Fuzz({"safetensors", {SafetensorsBytes(kHeader, kBytes)}, kJsonBytes, TilesOrRefuses}, 10'000);
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
  for (std::size_t rounds = FuzzInputs(10'000); rounds > 0 && !HasFailure(); --rounds) {
    const auto dtype = std::string(SafetensorsName(AllDTypes()[damage.Below(AllDTypes().size())]));
    std::string shape = number();
    for (std::size_t more = damage.Below(4); more > 0; --more) shape += "," + number();
    TilesOrRefuses(SafetensorsBytes("{\"t\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
                                        number() + "," + number() + "]}}",
                                    std::string(damage.Below(9), '\0')));
  }
}

TEST(IndexFuzz, DamagedIndexFiles) {
  const TempFolder folder;
  const std::string index =
      R"({"metadata":{"total_size":14},"weight_map":{"a":"model-1.safetensors","b":"model-2.safetensors"}})";
  const auto take = [&](const std::string& input) -> std::string {
    try {
      for (const std::string& file : ReadWeightIndex(folder.Write("index", input)).Files()) {
        EXPECT_EQ(file.find('/'), file.npos);
      }
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
      return error.what();
    }
  };
  Fuzz({"safetensors_index", {index}, kJsonBytes, take}, 300);
}

}  // namespace
}  // namespace layercast
