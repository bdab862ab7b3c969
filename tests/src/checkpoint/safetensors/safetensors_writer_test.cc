#include "src/checkpoint/safetensors/safetensors_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "layercast/error.h"
#include "src/checkpoint/formats/checkpoint.h"
#include "src/checkpoint/safetensors/safetensors_file.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_folder.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::span<const std::byte> Bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

std::vector<std::string> FilesIn(const TempFolder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) names.push_back(entry.path().filename());
  return names;
}

template <typename F>
std::string MessageOf(ErrorCode code, F&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(SafetensorsWriter, WritesTheReferenceImplementationsBytes) {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "f", {{"attn.0", DType::kF32, {1, 2, 3}}});
  writer.Write("attn.0", Bytes(std::string(24, '\1')));
  writer.Commit();
  const std::string header = R"({"attn.0":{"dtype":"F32","shape":[1,2,3],"data_offsets":[0,24]}})";
  EXPECT_EQ(folder.Read("f"), SafetensorsBytes(header, std::string(24, '\1')));
}

TEST(SafetensorsWriter, SortsByDTypeThenName) {
  const TempFolder folder;
  const std::vector<TensorSpec> specs = {
      {"b", DType::kU8, {3}}, {"z", DType::kF32, {1}}, {"a", DType::kU8, {1}}, {"c", DType::kI64, {1}}};
  const SafetensorsWriter writer(folder / "f", specs);
  std::string names;
  for (const TensorSpec& spec : writer.specs()) names += spec.name;
  EXPECT_EQ(names, "czab");
}

TEST(SafetensorsWriter, TensorsMayComeInAnyOrder) {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "f.safetensors",
                           {{"a", DType::kU8, {3}}, {"b", DType::kU8, {2}}, {"none", DType::kF32, {0}}},
                           {{"format", "pt"}});
  writer.Write("b", Bytes("yz"));
  writer.Write("none", {});
  writer.Write("a", Bytes("uvw"));
  writer.Commit();
  const SafetensorsFile file(folder / "f.safetensors");
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  ASSERT_EQ(file.tensors().size(), 3U);
  for (const auto& tensor : file.tensors()) EXPECT_EQ(tensor.begin % 8, tensor.spec.name == "b" ? 3U : 0U);
  EXPECT_EQ(std::memcmp(file.Read(1).tensor.data, "uvwyz", 5), 0);
}

TEST(SafetensorsWriter, EveryDTypeComesBack) {
  const TempFolder folder;
  const std::string bytes(64, 'x');
  std::vector<NamedTensor> tensors;
  for (const DType dtype : AllDTypes()) {
    tensors.push_back({.name = "t." + std::string(Name(dtype)),
                       .tensor = {.dtype = dtype, .shape = {2, 4}, .data = Bytes(bytes).data(), .device = {}},
                       .owner = nullptr});
  }
  WriteSafetensors(folder / "all.safetensors", tensors);
  const Checkpoint checkpoint = Checkpoint::Open(folder.path());
  EXPECT_EQ(checkpoint.specs().size(), tensors.size());
  for (const NamedTensor& named : tensors) {
    const NamedTensor read = checkpoint.Tensor(named.name);
    EXPECT_EQ(read.tensor.dtype, named.tensor.dtype);
    EXPECT_EQ(read.tensor.shape, named.tensor.shape);
  }
}

TEST(SafetensorsWriter, NamesAreEscaped) {
  const TempFolder folder;
  const std::string name = "a\"\\\n\x01\u00e9";
  SafetensorsWriter writer(folder / "f", {{name, DType::kU8, {0}}});
  writer.Write(name, {});
  writer.Commit();
  EXPECT_EQ(SafetensorsFile(folder / "f").tensors().at(0).spec.name, name);
}

TEST(SafetensorsWriter, AFileWithoutTensorsIsAFile) {
  const TempFolder folder;
  SafetensorsWriter(folder / "f", {}).Commit();
  EXPECT_EQ(folder.Read("f"), SafetensorsBytes("{}      ", ""));
}

TEST(SafetensorsWriter, NothingShowsBeforeCommitAndNothingStaysWithoutIt) {
  const TempFolder folder;
  folder.Write("f", "the old one");
  {
    SafetensorsWriter writer(folder / "f", {{"a", DType::kU8, {1}}, {"b", DType::kU8, {1}}});
    writer.Write("a", Bytes("x"));
    EXPECT_THAT(MessageOf(ErrorCode::kFailedPrecondition, [&] { writer.Commit(); }),
                HasSubstr("tensor 'b' is not written"));
    EXPECT_EQ(folder.Read("f"), "the old one");
    EXPECT_EQ(FilesIn(folder).size(), 2U);
  }
  EXPECT_EQ(FilesIn(folder), std::vector<std::string>{"f"});
}

TEST(SafetensorsWriter, AMappedOldFileKeepsItsBytes) {
  const TempFolder folder;
  const auto write = [&](const char* bytes) {
    SafetensorsWriter writer(folder / "f", {{"a", DType::kU8, {3}}});
    writer.Write("a", Bytes(bytes));
    writer.Commit();
  };
  write("old");
  const SafetensorsFile old(folder / "f");
  write("new");
  EXPECT_EQ(std::memcmp(old.Read(0).tensor.data, "old", 3), 0);
  EXPECT_EQ(std::memcmp(SafetensorsFile(folder / "f").Read(0).tensor.data, "new", 3), 0);
}

TEST(SafetensorsWriter, WrongWritesAreRefused) {
  const TempFolder folder;
  SafetensorsWriter writer(folder / "f", {{"a", DType::kF32, {2}}});
  const auto message = [&](const char* name, std::string_view bytes) {
    return MessageOf(ErrorCode::kInvalidArgument, [&] { writer.Write(name, Bytes(bytes)); });
  };
  EXPECT_THAT(message("b", ""), HasSubstr("no tensor called 'b' was announced"));
  EXPECT_THAT(message("a", "1234567"), HasSubstr("tensor 'a': expected 8 bytes, got 7"));
  writer.Write("a", Bytes("12345678"));
  EXPECT_THAT(message("a", "12345678"), HasSubstr("was written before"));
}

TEST(SafetensorsWriter, WhatTheFormatCannotHoldIsRefused) {
  const TempFolder folder;
  const auto message = [&](std::vector<TensorSpec> specs, const SafetensorsWriter::Metadata& metadata = {}) {
    return MessageOf(ErrorCode::kInvalidArgument, [&] { SafetensorsWriter(folder / "f", std::move(specs), metadata); });
  };
  EXPECT_THAT(message({{"__metadata__", DType::kU8, {}}}), HasSubstr("cannot be called"));
  EXPECT_THAT(message({{"a\xff", DType::kU8, {}}}), HasSubstr("not UTF-8"));
  EXPECT_THAT(message({{"a", DType::kU8, {}}, {"a", DType::kF32, {}}}), HasSubstr("two tensors are called 'a'"));
  EXPECT_THAT(message({{"a", DType::kF4, {1}}}), HasSubstr("whole bytes"));
  EXPECT_THAT(message({}, {{"k", "\xff"}}), HasSubstr("metadata 'k' is not UTF-8"));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  // A hundred million letters are looked at one by one, twice: that takes seconds under sanitizers, for which they are
  // what the few letters above are.
  EXPECT_THAT(message({}, {{"k", std::string(100'000'000, 'x')}}), HasSubstr("expected a header of at most"));
#endif
  EXPECT_THAT(FilesIn(folder), IsEmpty());
}

TEST(SafetensorsWriter, AFolderThatIsNotThereIsAnError) {
  EXPECT_THAT(MessageOf(ErrorCode::kInvalidArgument, [] { SafetensorsWriter("/nowhere/at/all", {}); }),
              HasSubstr("cannot create a temporary file beside it: No such file or directory"));
}

}  // namespace
}  // namespace layercast
