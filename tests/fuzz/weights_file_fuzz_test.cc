// GGUF headers, zip directories and pickles of state dicts: either an error, or pieces that lie inside their file. Most
// useful under the address sanitizer.
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/error.h"
#include "src/checkpoint/gguf/gguf_header.h"
#include "src/checkpoint/torch_save/pickle.h"
#include "src/checkpoint/torch_save/torch_state_dict.h"
#include "src/checkpoint/torch_save/zip_directory.h"
#include "tests/fuzz/fuzzing.h"
#include "tests/support/torch_file.h"

namespace layercast {
namespace {

using namespace std::string_view_literals;
using torch_file::Number;

using Read = std::function<void(std::span<const std::byte>)>;

// Of a target: "": accepted.
auto ReadsOrRefuses(const Read& read) {
  return [read](const std::string& file) -> std::string {
    try {
      read(ExactBytes(file));
      return "";
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("'f'")) << error.what();
      return error.what();
    }
  };
}

std::string GgufText(std::string_view text) { return Number(text.size(), 8) + std::string(text); }

std::string Gguf() {
  std::string file = "GGUF" + Number(3, 4) + Number(3, 8) + Number(4, 8);
  file += GgufText("general.architecture") + Number(8, 4) + GgufText("llama");
  file += GgufText("llama.attention.head_count") + Number(4, 4) + Number(2, 4);
  file += GgufText("tokens") + Number(9, 4) + Number(8, 4) + Number(2, 8) + GgufText("a") + GgufText("bc");
  file += GgufText("scores") + Number(9, 4) + Number(6, 4) + Number(2, 8) + Number(0, 8);
  const auto tensor = [](std::string_view name, std::uint64_t rows, std::uint64_t type, std::uint64_t offset) {
    return GgufText(name) + Number(2, 4) + Number(32, 8) + Number(rows, 8) + Number(type, 4) + Number(offset, 8);
  };
  file += tensor("output.weight", 2, 8, 0) + tensor("blk.0.attn_q.weight", 1, 1, 96) + tensor("norm", 1, 0, 160);
  file.resize((file.size() + 31) / 32 * 32);
  return file + std::string(160 + 128, 'x');
}

void ReadGguf(std::span<const std::byte> bytes) {
  for (const GgufHeader::Tensor& tensor : ParseGguf(bytes, "'f'").tensors) {
    ASSERT_LE(tensor.begin, bytes.size());
    ASSERT_LE(tensor.bytes, bytes.size() - tensor.begin);
    ASSERT_GE(tensor.bytes, static_cast<std::uint64_t>(NumElements(tensor.shape)));
  }
}

TEST(GgufFuzz, DamagedFiles) {
  ASSERT_EQ(ReadsOrRefuses(ReadGguf)(Gguf()), "");
  constexpr std::string_view kLikely = "\0\1\2\3\4\x08\x09\x20\x40\x7f\x80\xff"sv;
  EXPECT_GT(Fuzz({"gguf", {Gguf()}, kLikely, ReadsOrRefuses(ReadGguf)}, 20'000).accepted, 1U);
}

std::string TorchPickle() {
  using namespace torch_file;
  const std::string storage = Storage("FloatStorage", "0", 6);
  return Pickled(Dict({{"a", Tensor(storage, 0, {2, 3}, {3, 1})},
                       {"b", Tensor(storage, 1, {2}, {2})},
                       {"c", Call(Global("torch._utils", "_rebuild_parameter"),
                                  {Tensor(storage, 5, {}, {}), "\x88", OrderedDict()})}}));
}

void ReadTorchPickle(std::span<const std::byte> bytes) {
  const Pickle pickle = ReadPickle(bytes, TorchGlobals(), "'f'");
  const std::vector<std::byte> storage(24);
  const auto storage_bytes = [&](const std::string& key) -> std::optional<std::uint64_t> {
    return key == "0" ? std::optional<std::uint64_t>(storage.size()) : std::nullopt;
  };
  for (const TorchTensor& tensor : ReadStateDict(pickle, storage_bytes, "'f'")) {
    std::vector<std::byte> copy(static_cast<std::size_t>(tensor.spec.num_bytes()));
    ASSERT_LE(copy.size(), storage.size());
    CopyStrided(tensor, storage, copy.data());
  }
}

TEST(TorchFuzz, DamagedPickles) {
  ASSERT_EQ(ReadsOrRefuses(ReadTorchPickle)(TorchPickle()), "");
  constexpr std::string_view kLikely =
      "(.JKMGNQRXabcehjqrstu})]\x80\x85\x86\x87\x88\x89\x8a\x8c\x93\x94\x95\0\1\2\xff"sv;
  EXPECT_GT(Fuzz({"pickle", {TorchPickle()}, kLikely, ReadsOrRefuses(ReadTorchPickle)}, 20'000).accepted, 1U);
}

TEST(TorchFuzz, DamagedZipDirectories) {
  const std::string file = torch_file::File(TorchPickle(), {"abcdefghijklmnopqrstuvwx", "z"});
  const auto read = [](std::span<const std::byte> bytes) {
    const ZipDirectory directory = ReadZipDirectory(bytes, "'f'");
    for (const ZipRecord& record : directory.records) {
      ASSERT_LE(record.begin, bytes.size());
      ASSERT_LE(record.bytes, bytes.size() - record.begin);
      CheckRecord(bytes, directory, record, "'f'");
    }
  };
  ASSERT_EQ(ReadsOrRefuses(read)(file), "");
  Fuzz({"zip", {file}, "PK\1\2\3\4\5\6\0\xff"sv, ReadsOrRefuses(read)}, 20'000);
}

}  // namespace
}  // namespace layercast
