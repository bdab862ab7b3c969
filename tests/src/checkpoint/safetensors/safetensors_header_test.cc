#include "src/checkpoint/safetensors/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "layercast/error.h"
#include "tests/support/safetensors_bytes.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;
using namespace std::string_literals;

SafetensorsHeader Parse(const std::string& file) {
  // A copy of the exact size on the heap, so that the address sanitizer sees a read past it.
  const std::vector<char> bytes(file.begin(), file.end());
  return ParseSafetensors(std::as_bytes(std::span(bytes)), "'f'");
}

std::string MessageOf(const std::string& file) {
  try {
    Parse(file);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
    EXPECT_THAT(error.what(), ::testing::StartsWith("'f': "));
    return error.what();
  }
  return "no error";
}

std::string MessageOf(std::string_view header, std::size_t data_bytes) {
  return MessageOf(SafetensorsBytes(header, std::string(data_bytes, '\0')));
}

std::string Tensor(const std::string& name, const std::string& dtype, const std::string& shape,
                   const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

const std::string kZeros16(16, '\0');
const std::string kTest22 = "{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}";

// The reference implementation's own cases, byte for byte.

TEST(SafetensorsReference, OneTensor) {
  const SafetensorsHeader header = Parse("<\0\0\0\0\0\0\0"s + kTest22 + kZeros16);
  ASSERT_EQ(header.tensors.size(), 1U);
  EXPECT_EQ(header.tensors[0].spec, (TensorSpec{"test", DType::kI32, {2, 2}}));
  EXPECT_EQ(header.tensors[0].begin, 68U);
  EXPECT_EQ(header.tensors[0].end, 84U);
}

TEST(SafetensorsReference, NoTensors) {
  EXPECT_TRUE(Parse("\x08\0\0\0\0\0\0\0{}      "s).tensors.empty());
  EXPECT_TRUE(Parse("\x06\0\0\0\0\0\0\0{}\x0d\x20\x09\x0a"s).tensors.empty());
}

TEST(SafetensorsReference, AScalar) {
  const SafetensorsHeader header =
      Parse("8\0\0\0\0\0\0\0{\"test\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[0,4]}}\0\0\0\0"s);
  EXPECT_EQ(header.tensors.at(0).spec.shape, Shape{});
}

TEST(SafetensorsReference, ATensorWithoutElements) {
  const SafetensorsHeader header =
      Parse("<\0\0\0\0\0\0\0{\"test\":{\"dtype\":\"I32\",\"shape\":[2,0],\"data_offsets\":[0, 0]}}"s);
  EXPECT_EQ(header.tensors.at(0).spec.shape, (Shape{2, 0}));
}

TEST(SafetensorsReference, ThreeDimensions) {
  const SafetensorsHeader header =
      Parse("@\0\0\0\0\0\0\0{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}"s +
            std::string(24, '\1'));
  EXPECT_EQ(header.tensors.at(0).spec, (TensorSpec{"attn.0", DType::kF32, {1, 2, 3}}));
  EXPECT_EQ(header.tensors.at(0).begin, 72U);
}

TEST(SafetensorsReference, HeaderTooSmall) {
  EXPECT_EQ(MessageOf(""), "'f': expected at least 8 bytes for the header's length, got a file of 0");
  EXPECT_THAT(MessageOf("<\0\0\0\0\0\0"s), HasSubstr("got a file of 7"));
}

TEST(SafetensorsReference, HeaderTooLarge) {
  EXPECT_THAT(MessageOf("<\0\0\0\0\xff\xff\xff"s + kTest22 + kZeros16),
              HasSubstr("header length at byte 0: expected at most 100000000, got 18446742974197923900"));
  EXPECT_THAT(MessageOf(std::string(8, '\xff')), HasSubstr("got 18446744073709551615"));
  EXPECT_THAT(MessageOf("\x01\xe1\xf5\x05\0\0\0\0"s), HasSubstr("got 100000001"));
}

TEST(SafetensorsReference, InvalidHeaderLength) {
  EXPECT_EQ(MessageOf("<\0\0\0\0\0\0\0"s),
            "'f': header length at byte 0: expected at most the 0 bytes that follow, got 60");
}

TEST(SafetensorsReference, InvalidHeader) {
  EXPECT_THAT(MessageOf("\x01\0\0\0\0\0\0\0\xff"s), HasSubstr("header: not UTF-8 at byte 0"));
}

TEST(SafetensorsReference, InvalidHeaderDeserialization) {
  EXPECT_THAT(MessageOf("\x01\0\0\0\0\0\0\0{"s), HasSubstr("header: not JSON at byte"));
}

TEST(SafetensorsReference, MetadataIncompleteBuffer) {
  EXPECT_EQ(MessageOf(kTest22, 16 + 34), "'f': expected 16 bytes of data, got 50: 34 belong to no tensor");
  EXPECT_THAT(MessageOf(kTest22, 14), HasSubstr("tensor 'test': data_offsets [0, 16]: expected a range inside the "
                                                "file's 14 bytes of data"));
}

TEST(SafetensorsReference, InvalidInfo) {
  EXPECT_EQ(MessageOf("{\"test\":{\"dtype\":\"I32\",\"shape\":[2,2],\"data_offsets\":[0, 4]}}", 4),
            "'f': tensor 'test': data_offsets [0, 4]: expected 16 bytes for [2, 2] i32, got 4");
}

TEST(SafetensorsReference, ValidationOverflow) {
  EXPECT_THAT(MessageOf("{" + Tensor("test", "I32", "[2,18446744073709551614]", "[0,16]") + "}", 16),
              HasSubstr("expected a dimension below 2^63, got 18446744073709551614"));
  EXPECT_THAT(MessageOf("{" + Tensor("test", "I32", "[2,9223372036854775807]", "[0,16]") + "}", 16), HasSubstr("2^63"));
}

TEST(SafetensorsReference, TenTensorsInOnePlace) {
  std::string header = "{";
  for (int i = 0; i < 10; ++i) {
    header += (i == 0 ? "" : ",") + Tensor("weight_" + std::to_string(i), "F32", "[2,2]", "[0,16]");
  }
  EXPECT_THAT(
      MessageOf(header + "}", 16),
      HasSubstr("tensor 'weight_1': data_offsets [0, 16]: expected to begin at 16, got an overlap of 16 bytes"));
}

// The rules that the reference's own cases leave out.

TEST(SafetensorsHeader, EveryDTypeIsRead) {
  for (const DType dtype : AllDTypes()) {
    const std::string bytes = std::to_string(8 * BitsPerElement(dtype) / 8);
    const SafetensorsHeader header =
        Parse(SafetensorsBytes("{" + Tensor("t", std::string(SafetensorsName(dtype)), "[8]", "[0," + bytes + "]") + "}",
                               std::string(static_cast<std::size_t>(BitsPerElement(dtype)), 'x')));
    EXPECT_EQ(header.tensors.at(0).spec.dtype, dtype);
  }
  EXPECT_THAT(MessageOf("{" + Tensor("t", "F31", "[1]", "[0,4]") + "}", 4),
              HasSubstr("tensor 't': unknown dtype 'F31'"));
  EXPECT_THAT(MessageOf("{" + Tensor("t", "F4", "[3]", "[0,2]") + "}", 2), HasSubstr("whole bytes"));
}

TEST(SafetensorsHeader, TensorsComeInTheOrderOfTheirBytes) {
  const SafetensorsHeader header =
      Parse(SafetensorsBytes("{" + Tensor("c", "U8", "[2]", "[3,5]") + "," + Tensor("none", "U8", "[0]", "[3,3]") +
                                 "," + Tensor("a", "U8", "[3]", "[0,3]") + "}",
                             "abcde"));
  ASSERT_EQ(header.tensors.size(), 3U);
  EXPECT_EQ(header.tensors[0].spec.name, "a");
  EXPECT_EQ(header.tensors[1].spec.name, "none");
  EXPECT_EQ(header.tensors[2].spec.name, "c");
}

TEST(SafetensorsHeader, HolesAndOverlapsAreRefused) {
  EXPECT_THAT(MessageOf("{" + Tensor("a", "U8", "[2]", "[0,2]") + "," + Tensor("b", "U8", "[2]", "[3,5]") + "}", 5),
              HasSubstr("tensor 'b': data_offsets [3, 5]: expected to begin at 2, got a hole of 1 bytes"));
  EXPECT_THAT(MessageOf("{" + Tensor("a", "U8", "[3]", "[0,3]") + "," + Tensor("b", "U8", "[3]", "[2,5]") + "}", 5),
              HasSubstr("expected to begin at 3, got an overlap of 1 bytes"));
  EXPECT_THAT(MessageOf("{" + Tensor("a", "U8", "[2]", "[1,3]") + "}", 3), HasSubstr("got a hole of 1 bytes"));
  EXPECT_THAT(MessageOf("{" + Tensor("a", "U8", "[2]", "[2,0]") + "}", 3), HasSubstr("expected a range inside"));
  EXPECT_THAT(MessageOf("{" + Tensor("a", "U8", "[0]", "[1,1]") + "}", 1), HasSubstr("got a hole"));
  EXPECT_THAT(MessageOf("{}", 1), HasSubstr("1 belong to no tensor"));
}

TEST(SafetensorsHeader, ARepeatedKeyIsRefusedAtEveryLevel) {
  const std::string tensor = Tensor("t", "U8", "[1]", "[0,1]");
  EXPECT_THAT(MessageOf("{" + tensor + "," + tensor + "}", 1), HasSubstr("header: the key 't' is there twice"));
  EXPECT_THAT(MessageOf(R"({"t":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
              HasSubstr("the key 'dtype' of 't' is there twice"));
  EXPECT_THAT(MessageOf(R"({"__metadata__":{"a":"1","a":"2"}})", 0),
              HasSubstr("the key 'a' of '__metadata__' is there twice"));
  EXPECT_THAT(MessageOf(R"({"__metadata__":{},"__metadata__":{}})", 0), HasSubstr("twice"));
  // The same key, spelled in two ways.
  EXPECT_THAT(MessageOf("{" + tensor + "," + Tensor("\\u0074", "U8", "[1]", "[0,1]") + "}", 1), HasSubstr("twice"));
}

TEST(SafetensorsHeader, FieldsOfTheWrongTypeAreRefused) {
  const auto field = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return MessageOf("{\"t\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}", 4);
  };
  EXPECT_THAT(field("5", "[4]", "[0,4]"), HasSubstr("tensor 't': dtype: expected a dtype's name, got 5"));
  EXPECT_THAT(field("null", "[4]", "[0,4]"), HasSubstr("got null"));
  EXPECT_THAT(field("\"U8\"", "4", "[0,4]"), HasSubstr("shape: expected an array, got 4"));
  EXPECT_THAT(field("\"U8\"", "[-4]", "[0,4]"), HasSubstr("shape: expected a whole number, got -4"));
  EXPECT_THAT(field("\"U8\"", "[4.0]", "[0,4]"), HasSubstr("got 4.0"));
  EXPECT_THAT(field("\"U8\"", "[\"4\"]", "[0,4]"), HasSubstr("got '4'"));
  EXPECT_THAT(field("\"U8\"", "[[4]]", "[0,4]"), HasSubstr("got an array"));
  EXPECT_THAT(field("\"U8\"", "[4]", "[0,4,4]"), HasSubstr("data_offsets: expected 2 numbers, got 3"));
  EXPECT_THAT(field("\"U8\"", "[4]", "[4]"), HasSubstr("data_offsets: expected 2 numbers, got 1"));
  EXPECT_THAT(field("\"U8\"", "[4]", "[-0,4]"), HasSubstr("expected a whole number, got -0"));
  EXPECT_THAT(field("\"U8\"", "[4]", "[0,18446744073709551616]"), HasSubstr("expected a whole number"));
  EXPECT_THAT(field("\"U8\"", "[4]", "{}"), HasSubstr("expected an array, got an object"));
}

TEST(SafetensorsHeader, MissingFieldsAreRefused) {
  EXPECT_THAT(MessageOf(R"({"t":{"shape":[1],"data_offsets":[0,1]}})", 1), HasSubstr("expected the field dtype"));
  EXPECT_THAT(MessageOf(R"({"t":{"dtype":"U8","data_offsets":[0,1]}})", 1), HasSubstr("expected the field shape"));
  EXPECT_THAT(MessageOf(R"({"t":{"dtype":"U8","shape":[1]}})", 1), HasSubstr("expected the field data_offsets"));
  EXPECT_THAT(MessageOf(R"({"t":1})", 0), HasSubstr("tensor 't': expected an object, got 1"));
}

TEST(SafetensorsHeader, OtherFieldsOfATensorAreItsWritersNotes) {
  for (const std::string& note : {"[1]"s, "null"s, R"({"dtype":"F64","shape":[{"data_offsets":[]}]})"s, "1.5"s}) {
    for (const std::string& header : {R"({"t":{"note":)" + note + R"(,"dtype":"U8","shape":[1],"data_offsets":[0,1]}})",
                                      R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"note":)" + note + "}}"}) {
      const SafetensorsHeader read = Parse(SafetensorsBytes(header, "x"));
      ASSERT_EQ(read.tensors.size(), 1U) << header;
      EXPECT_EQ(read.tensors[0].spec, (TensorSpec{"t", DType::kU8, {1}})) << header;
    }
  }
}

TEST(SafetensorsHeader, WhiteSpaceMayStandBeforeTheBrace) {
  const SafetensorsHeader header = Parse(SafetensorsBytes(" \t\r\n{" + Tensor("t", "U8", "[1]", "[0,1]") + "}", "x"));
  EXPECT_EQ(header.tensors.at(0).spec.name, "t");
}

TEST(SafetensorsHeader, AnEmptyTensorWhoseOtherDimensionsOverflowIsRefused) {
  EXPECT_THAT(MessageOf("{" + Tensor("t", "U8", "[0,9223372036854775807,2]", "[0,0]") + "}", 0),
              HasSubstr("tensor 't': shape [0, 9223372036854775807, 2] has more than 2^63 elements"));
}

TEST(SafetensorsHeader, MetadataIsTextToText) {
  const SafetensorsHeader header = Parse(SafetensorsBytes(R"({"__metadata__":{"format":"pt","empty":""}})", ""));
  EXPECT_EQ(header.metadata, (std::map<std::string, std::string>{{"format", "pt"}, {"empty", ""}}));
  EXPECT_THAT(MessageOf(R"({"__metadata__":{"a":1}})", 0), HasSubstr("__metadata__: 'a': expected text, got 1"));
  EXPECT_THAT(MessageOf(R"({"__metadata__":{"a":{"b":"c"}}})", 0), HasSubstr("expected text, got an object"));
  EXPECT_THAT(MessageOf(R"({"__metadata__":"a"})", 0), HasSubstr("expected an object, got 'a'"));
  EXPECT_THAT(MessageOf(R"({"__metadata__":true})", 0), HasSubstr("expected an object, got true"));
  EXPECT_TRUE(Parse(SafetensorsBytes(R"({"__metadata__":null})", "")).metadata.empty());
}

TEST(SafetensorsHeader, WhatIsNotOneObjectIsRefused) {
  for (const std::string& header : {"[]"s, "\"x\""s, "5"s, "null"s, ""s, " "s, "\v{}"s, "\xef\xbb\xbf{}"s}) {
    EXPECT_THAT(MessageOf(header, 0), HasSubstr("expected to begin with '{'")) << header;
  }
  for (const std::string& header :
       {"{}{}"s, "{},"s, "{\"a\"}"s, "{\"a\":}"s, "{a:1}"s, "{} //"s, "{\"\xed\xa0\x80\":1}"s, "{}\0{}"s, "{}\0"s,
        "{\"\\ud800\":1}"s, "{\"a\":1e999}"s, "{\"a\\x\":1}"s}) {
    EXPECT_THAT(MessageOf(header, 0), HasSubstr("'f': ")) << header;
  }
  EXPECT_THAT(MessageOf("{}\0"s, 0), HasSubstr("a NUL at byte 2"));
}

TEST(SafetensorsHeader, DeepNestingIsRefusedWithoutRecursion) {
  const auto note = [](std::size_t depth) {
    return R"({"t":{"note":)" + std::string(depth, '[') + std::string(depth, ']') +
           R"(,"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
  };
  EXPECT_EQ(MessageOf(note(125), 1), "no error");
  EXPECT_THAT(MessageOf(note(1000000), 1), HasSubstr("nested more than 127 deep"));
  EXPECT_THAT(MessageOf("{\"t\":" + std::string(1000000, '[') + "}", 0), HasSubstr("tensor 't'"));
}

TEST(SafetensorsHeader, EveryTruncationIsRefused) {
  const std::string file = SafetensorsBytes(
      "{" + Tensor("a", "F32", "[2]", "[0,8]") + "," + Tensor("b", "BF16", "[3]", "[8,14]") + "} ", "0123456789abcd");
  ASSERT_EQ(Parse(file).tensors.size(), 2U);
  for (std::size_t size = 0; size < file.size(); ++size) EXPECT_NE(MessageOf(file.substr(0, size)), "no error") << size;
}

// Whatever the bytes, either an error or tensors that tile the data.
void ExpectTilesOrRefuses(const std::string& file) {
  try {
    const SafetensorsHeader header = Parse(file);
    std::uint64_t end = header.tensors.empty() ? file.size() : header.tensors.front().begin;
    for (const auto& tensor : header.tensors) {
      ASSERT_EQ(tensor.begin, end);
      ASSERT_EQ(tensor.end - tensor.begin, static_cast<std::uint64_t>(tensor.spec.num_bytes()));
      end = tensor.end;
    }
    ASSERT_EQ(end, file.size());
  } catch (const Error& error) {
    ASSERT_EQ(error.code(), ErrorCode::kCorrupt) << error.what();
  }
}

std::string SmallFile() {
  return SafetensorsBytes("{\"__metadata__\":{\"format\":\"pt\"}," + Tensor("a", "F32", "[2,1]", "[0,8]") + "," +
                              Tensor("b", "BF16", "[3]", "[8,14]") + "} ",
                          "0123456789abcd");
}

TEST(SafetensorsHeader, EveryFlippedBitIsRefusedOrHarmless) {
  const std::string file = SmallFile();
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    ExpectTilesOrRefuses(flipped);
  }
}

}  // namespace
}  // namespace layercast
