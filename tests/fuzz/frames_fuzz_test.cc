// What arrives over sockets and is no weights: frames of sessions, schedules, RPC's JSON, and what is read beside it:
// key files, lists of clients, weight rules. Either an error of theirs, or what they say. Most useful under the
// sanitizers.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "layercast/error.h"
#include "src/base/bytes/shallow_json.h"
#include "src/control/json_forms.h"
#include "src/net/keys/admitted_keys.h"
#include "src/net/keys/key_file.h"
#include "src/wire/frames.h"
#include "src/wire/schedule.h"
#include "tests/fuzz/example_frames.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kWireBytes = "\0\1\2\3\5\x08\x10\x1b\x7f\x80\xff"sv;
constexpr std::string_view kTextBytes = "{}[],:\"0123456789-.eE\\u \n\0\xff\xc3tfn#"sv;

std::string TextOf(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// `read` throws what an input is refused with: an error of one of these codes.
auto RefusedWith(std::vector<ErrorCode> codes, std::function<void(const std::string&)> read) {
  return [codes, read](const std::string& input) -> std::string {
    try {
      read(input);
      return "";
    } catch (const Error& error) {
      EXPECT_NE(std::ranges::find(codes, error.code()), codes.end()) << error.what();
      EXPECT_NE(error.what(), ""sv);
      return error.what();
    }
  };
}

// Codes of errors that this release does not know are `internal`; all else is as it was sent.
TEST(FramesFuzz, DamagedFramesAreRefusedOrSayWhatIsSaidOn) {
  std::vector<std::string> seeds;
  for (const wire::Message& message : testing::ExampleMessages()) {
    seeds.push_back(TextOf(wire::Encode({.session = 5, .message = message})));
  }
  const auto take = RefusedWith({ErrorCode::kCorrupt}, [](const std::string& input) {
    const std::vector<std::byte> bytes = ExactBytes(input);
    const wire::Frame frame = wire::Decode(bytes);
    const std::vector<std::byte> again = wire::Encode(frame);
    if (!std::holds_alternative<wire::Refused>(frame.message)) {
      EXPECT_EQ(again, bytes);
    }
    EXPECT_EQ(wire::Encode(wire::Decode(again)), again);
  });
  const Fuzzed fuzzed = Fuzz({"frames", seeds, kWireBytes, take}, 20'000);
  EXPECT_GT(fuzzed.accepted, seeds.size() * 10);
}

TEST(FramesFuzz, DamagedSchedulesAreRefusedOrCanonical) {
  Schedule schedule;
  schedule.Add(std::vector<Region>{{.tensor = 0, .offset = 8, .row_bytes = 4, .rows = 3, .stride = 16},
                                   {.tensor = 1, .offset = 0, .row_bytes = 9, .rows = 1, .stride = 0}});
  schedule.Add(std::vector<Region>{{.tensor = 2, .offset = 1, .row_bytes = 2, .rows = 1, .stride = 0}});
  const auto take = RefusedWith({ErrorCode::kCorrupt}, [](const std::string& input) {
    const std::vector<std::byte> bytes = ExactBytes(input);
    EXPECT_EQ(Schedule::Decode(bytes).Encode(), bytes);
  });
  EXPECT_GT(Fuzz({"schedules", {TextOf(schedule.Encode())}, kWireBytes, take}, 20'000).accepted, 100U);
}

// As a client reads what says that it is an engine.
TEST(JsonFuzz, DamagedAnswersAreRefusedOrUnderstood) {
  const std::vector<std::string> seeds = {
      R"({"lineage": "run", "step": 7, "digest": "00112233445566778899aabbccddeeff"})",
      R"({"code": "corrupt", "message": "why"})",
      R"({"ticket": 4, "lease_ms": 250, "deep": [[[[{"a": {"b": [1, 2.5, null, "\u00e9"]}}]]]]})"};
  const auto take = RefusedWith({ErrorCode::kInvalidArgument, ErrorCode::kCorrupt}, [](const std::string& input) {
    const auto json = ParseShallowJson<nlohmann::ordered_json>(input);
    if (json.is_discarded()) throw Error(ErrorCode::kCorrupt, "no JSON");
    const Error error = ErrorFromJson(json, "rank 1: ");
    EXPECT_TRUE(std::string_view(error.what()).starts_with("rank 1: ")) << error.what();
    try {
      MillisecondsFrom(json, "lease_ms", std::chrono::milliseconds(1));
      const Version version = VersionFromJson(json);
      EXPECT_EQ(VersionFromJson(VersionToJson(version)), version);
    } catch (const nlohmann::json::exception& wrong) {  // as where it is called, RPC's borders, take it
      throw Error(ErrorCode::kInvalidArgument, wrong.what());
    }
  });
  EXPECT_GT(Fuzz({"rpc_json", seeds, kTextBytes, take}, 20'000).accepted, 1U);
}

TEST(KeysFuzz, DamagedListsAreRefusedOrHaveTheRolesThatTheySay) {
  const std::string key(64, 'a');
  const std::string list = "# who\n" + key + " read,reload lou\n\n" + std::string(64, '7') + " publish\n";
  const auto take = RefusedWith({ErrorCode::kInvalidArgument}, [](const std::string& input) {
    for (const auto& [admitted, what] : ParseClients(input, "clients")) {
      const KeyTable again = ParseClients(ClientLine(admitted, what.roles, what.name), "clients");
      EXPECT_EQ(again.size(), 1U);
      EXPECT_TRUE(again.contains(admitted));
    }
  });
  EXPECT_GT(Fuzz({"clients", {list}, "0123456789abcdefgz #,\n\r\t\0\xff"sv, take}, 20'000).accepted, 100U);
}

TEST(KeysFuzz, DamagedKeyFilesAreRefusedAndNotShown) {
  const TempFolder folder;
  const std::string path = folder.Write("public.key", "");
  WritePublicFile(folder / "fresh", kClientPublic, PublicKey{});
  const std::string file = folder.Read("fresh");
  const auto take = RefusedWith({ErrorCode::kInvalidArgument}, [&](const std::string& input) {
    folder.Write("public.key", input);
    ReadPublicFile(path, kClientPublic);
  });
  EXPECT_GT(Fuzz({"key_files", {file}, "0123456789abcdef \n\0\xff"sv, take}, 300).accepted, 0U);
}

}  // namespace
}  // namespace layercast
