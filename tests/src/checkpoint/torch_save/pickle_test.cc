#include "src/checkpoint/torch_save/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "layercast/error.h"
#include "tests/support/torch_file.h"

namespace layercast {
namespace {

using namespace std::string_literals;
using namespace torch_file;
using ::testing::HasSubstr;
using Kind = PickleNode::Kind;

constexpr std::string_view kAllowed[] = {"collections.OrderedDict", "torch.Size"};

Pickle Read(const std::string& bytes) { return ReadPickle(std::as_bytes(std::span(bytes)), kAllowed, "'f'"); }

std::string MessageOf(ErrorCode code, const std::string& bytes) {
  // A copy of the exact size on the heap, so that the address sanitizer sees a read past it.
  const std::vector<char> exact(bytes.begin(), bytes.end());
  try {
    ReadPickle(std::as_bytes(std::span(exact)), kAllowed, "'f'");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(Pickle, EveryValueThatAStateDictHolds) {
  const std::string bytes =
      Pickled("(" + Text("é") + "K\xff" + "M\1\2" + "J" + Number(0xFFFFFFFE, 4) + Int(1LL << 40) + "\x8a\0"s +
              "\x8c\2ab" + "G" + std::string(8, 'x') + "N\x88\x89" + ")" + "\x85" + Global("torch", "Size") + "]t");
  const Pickle pickle = Read(bytes);
  const PickleNode& root = pickle[pickle.root];
  ASSERT_EQ(root.kind, Kind::kTuple);
  std::vector<std::string> said;
  for (const std::uint32_t item : pickle.ItemsOf(pickle.root)) said.push_back(Describe(pickle, item));
  EXPECT_THAT(said, ::testing::ElementsAre("the text 'é'", "the integer 255", "the integer 513", "the integer -2",
                                           "the integer 1099511627776", "the integer 0", "the text 'ab'", "a float",
                                           "None", "True", "False", "a tuple of 1", "torch.Size", "a list of 0"));
}

TEST(Pickle, OrderedDictsAreDictsAndWhatIsSetOnThemIsDropped) {
  const std::string bytes =
      Pickled(OrderedDict() + "(" + Text("a") + "K\1u" + Text("b") + "K\2s" + "}" + Text("_metadata") + "}sb");
  const Pickle pickle = Read(bytes);
  ASSERT_EQ(pickle[pickle.root].kind, Kind::kDict);
  EXPECT_EQ(pickle.ItemsOf(pickle.root).size(), 4U);
}

TEST(Pickle, CallsStayCalls) {
  const std::string bytes = Pickled(Call(Global("torch", "Size"), {Ints({2, 3})}));
  const Pickle pickle = Read(bytes);
  EXPECT_EQ(Describe(pickle, pickle.root), "torch.Size(...)");
}

TEST(Pickle, TheMemoOfEveryProtocol) {
  const std::string long_text = Text(std::string(300, 'a'));
  const std::string two = Pickled("]q\7" + long_text + "r" + Number(300, 4) + "ah\7" + "j" + Number(300, 4) + "a0");
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, two), HasSubstr("0x30"));  // POP is not needed
  const std::string bytes = "\x80\x04\x95"s + Number(3, 8) + "\x8c\5torch\x94\x8c\4Size\x94\x93\x94h\0h\1\x93\x86."s;
  const Pickle pickle = Read(bytes);
  EXPECT_EQ(Describe(pickle, pickle.ItemsOf(pickle.root)[1]), "torch.Size");
}

TEST(Pickle, ListsAndDictsGrowByTurns) {
  std::string grown = "(]q\0}q\1"s;
  for (std::uint64_t i = 0; i < 100; ++i) {
    const std::string number = "K" + Number(i, 1);
    grown += "h\0"s + number + "ah\1" + number + number + "s";
  }
  const Pickle pickle = Read(Pickled(grown + "t"));
  const auto numbers = [&](std::uint32_t node) {
    std::vector<std::int64_t> read;
    for (const std::uint32_t item : pickle.ItemsOf(node)) read.push_back(pickle[item].number);
    return read;
  };
  const std::vector<std::int64_t> list = numbers(pickle.ItemsOf(pickle.root)[0]);
  const std::vector<std::int64_t> dict = numbers(pickle.ItemsOf(pickle.root)[1]);
  ASSERT_EQ(list.size(), 100U);
  ASSERT_EQ(dict.size(), 200U);
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_EQ(list[i], static_cast<std::int64_t>(i));
    EXPECT_EQ(dict[2 * i], list[i]);
    EXPECT_EQ(dict[2 * i + 1], list[i]);
  }
}

TEST(Pickle, WhatWouldAskForAnyAmountOfMemoryIsRefused) {
  EXPECT_THAT(MessageOf(ErrorCode::kCorrupt, Pickled("Nr" + Number(0xffffffff, 4))),
              HasSubstr("expected a key of the memo below the pickle's 9 bytes, got 4294967295"));
  EXPECT_THAT(MessageOf(ErrorCode::kCorrupt, std::string(100'000'001, 'N')),
              HasSubstr("expected at most 100000000 bytes, got 100000001"));
}

TEST(Pickle, WhatIsNotOnTheListIsRefusedByName) {
  EXPECT_EQ(MessageOf(ErrorCode::kUnsupported, Pickled(Call(Global("posix", "system"), {Text("echo pwned")}))),
            "'f': at byte 2: the global 'posix.system' is none that a state dict needs: refused");
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, "\x80\x04\x8c\2os\x8c\6system\x93."s),
              HasSubstr("at byte 14: the global 'os.system'"));
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, Pickled(Global("torch", "Size") + ")\x81")),
              HasSubstr("the opcode NEWOBJ 0x81"));
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, Pickled("(" + Text("x") + "iposix\nsystem\n")),
              HasSubstr("the opcode INST 0x69"));
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, Pickled("\x82\1")), HasSubstr("the opcode EXT1 0x82"));
}

TEST(Pickle, BytesThatAreNoPickleAreRefused) {
  const auto message = [](const std::string& bytes) { return MessageOf(ErrorCode::kCorrupt, bytes); };
  EXPECT_EQ(message(""), "'f': at byte 0: expected 1 bytes more, got 0");
  EXPECT_THAT(message("\x80\x01N."), HasSubstr("expected a pickle of protocol 2 to 5, got 1"));
  EXPECT_THAT(message("."), HasSubstr("expected one object at the end, got 0"));
  EXPECT_THAT(message("NN."), HasSubstr("got 2"));
  EXPECT_THAT(message("(N."), HasSubstr("expected one object"));
  EXPECT_THAT(message("N.N"), HasSubstr("expected the end, got 1 bytes more"));
  EXPECT_THAT(message("X\xff\xff\xff\xff."), HasSubstr("expected 4294967295 bytes more, got 1"));
  EXPECT_THAT(message("X\1\0\0\0\xff."s), HasSubstr("expected text in UTF-8"));
  EXPECT_THAT(message("t."), HasSubstr("expected a mark on the stack, got none"));
  EXPECT_THAT(message("N(\x85."), HasSubstr("expected 1 objects on the stack, got 0"));
  EXPECT_THAT(message("h\1."), HasSubstr("expected an object in the memo at 1, got none"));
  EXPECT_THAT(message("q\1."), HasSubstr("expected 1 objects on the stack"));
  EXPECT_THAT(message("NNNs."), HasSubstr("expected a dict on the stack, got None"));
  EXPECT_THAT(message("}(Nu."), HasSubstr("expected keys and values, got an odd number"));
  EXPECT_THAT(message("]NNb."), HasSubstr("expected a dict on the stack"));
  EXPECT_THAT(message("N)R."), HasSubstr("expected a global to call, got None"));
  EXPECT_THAT(message(Global("torch", "Size") + "NR."), HasSubstr("expected a tuple of arguments, got None"));
  EXPECT_THAT(message(Call(Global("collections", "OrderedDict"), {"]"}) + "."), HasSubstr("expected no arguments"));
  EXPECT_THAT(message("\x8a\x09"s + std::string(9, '\1') + "."), HasSubstr("at most 8 bytes, got 9"));
  EXPECT_THAT(message("ctorch\nSize"), HasSubstr("expected a line"));
}

TEST(Pickle, AMillionListsInsideEachOtherAreNoDepthOfCalls) {
  std::string bytes;
  for (int i = 0; i < 1'000'000; ++i) bytes += "]";
  for (int i = 1; i < 1'000'000; ++i) bytes += "a";
  bytes += ".";
  const Pickle pickle = Read(bytes);
  EXPECT_EQ(Describe(pickle, pickle.root), "a list of 1");
}

}  // namespace
}  // namespace layercast
