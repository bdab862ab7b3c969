// The loader of `pt`, on files spelled out by tests/support/torch_file.h. What torch itself writes is in test_pt.py.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <ios>
#include <string>

#include "layercast/error.h"
#include "src/checkpoint/formats/checkpoint.h"
#include "tests/support/temp_folder.h"
#include "tests/support/torch_file.h"

namespace layercast {
namespace {

using namespace std::string_literals;
using namespace torch_file;
using ::testing::HasSubstr;

using Tensors = std::vector<std::pair<TensorSpec, std::string>>;

Tensors Load(const std::filesystem::path& path) {
  Tensors tensors;
  const auto weights = Checkpoint::Open(path).Weights();
  while (const auto named = weights->Next()) {
    const auto bytes = static_cast<std::size_t>(named->tensor.num_bytes());
    tensors.push_back({{named->name, named->tensor.dtype, named->tensor.shape},
                       bytes == 0 ? "" : std::string(reinterpret_cast<const char*>(named->tensor.data), bytes)});
  }
  return tensors;
}

class PtLoader : public ::testing::Test {
 protected:
  std::string MessageOf(ErrorCode code, const std::string& file) {
    try {
      Load(folder_.Write("pytorch_model.bin", file));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      return error.what();
    }
    return "no error";
  }

  // Of one tensor "w" in storage "0", whose bytes are `storage`.
  std::string MessageOfTensor(const std::string& tensor, const std::string& storage,
                              ErrorCode code = ErrorCode::kCorrupt) {
    return MessageOf(code, File(Pickled(Dict({{"w", tensor}})), {storage}));
  }

  const TempFolder folder_;
};

const char kBytes[] = "abcdefghijklmnopqrstuvwx";  // six fp32 elements

std::string Good() {
  const std::string storage = Storage("FloatStorage", "0", 6);
  return File(Pickled(Dict({{"whole", Tensor(storage, 0, {2, 3}, {3, 1})},
                            {"transposed", Tensor(storage, 0, {3, 2}, {1, 3})},
                            {"row", Tensor(storage, 3, {3}, {1})},
                            {"scalar", Tensor(storage, 5, {}, {})},
                            {"none", Tensor(storage, 6, {0, 4}, {4, 1})},
                            {"bytes", Tensor(Storage("ByteStorage", "1", 3), 1, {2}, {1})}})),
              {kBytes, "xyz"});
}

const Tensors kGood = {
    {{"whole", DType::kF32, {2, 3}}, kBytes},    {{"transposed", DType::kF32, {3, 2}}, "abcdmnopefghqrstijkluvwx"},
    {{"row", DType::kF32, {3}}, "mnopqrstuvwx"}, {{"scalar", DType::kF32, {}}, "uvwx"},
    {{"none", DType::kF32, {0, 4}}, ""},         {{"bytes", DType::kU8, {2}}, "yz"}};

TEST_F(PtLoader, ViewsOfEveryKindOfOneStorage) {
  folder_.Write("pytorch_model.bin", Good());
  EXPECT_EQ(Load(folder_.path()), kGood);
}

TEST_F(PtLoader, ParametersAndTensorsThatSayTheirDType) {
  const std::string parameter = Call(Global("torch._utils", "_rebuild_parameter"),
                                     {Tensor(Storage("HalfStorage", "0", 4), 0, {4}, {1}), "\x88", OrderedDict()});
  const std::string untyped =
      Tuple({Text("storage"), Global("torch.storage", "UntypedStorage"), Text("0"), Text("cpu"), Int(8)}) + "Q";
  const std::string fp8 =
      Call(Global("torch._utils", "_rebuild_tensor_v3"),
           {untyped, Int(2), Ints({3}), Ints({2}), "\x89", OrderedDict(), Global("torch", "float8_e4m3fn")});
  const std::string wide =
      Call(Global("torch._utils", "_rebuild_tensor_v3"),
           {untyped, Int(1), Ints({1}), Ints({1}), "\x89", OrderedDict(), Global("torch", "uint32")});
  folder_.Write("a.pt", File(Pickled(Dict({{"p", parameter}, {"q", fp8}, {"u", wide}})), {"abcdefgh"}));
  EXPECT_EQ(Load(folder_.path()), (Tensors{{{"p", DType::kF16, {4}}, "abcdefgh"},
                                           {{"q", DType::kF8E4M3, {3}}, "ceg"},
                                           {{"u", DType::kU32, {1}}, "efgh"}}));
}

TEST_F(PtLoader, TheStateDictOfATrainingScript) {
  const std::string tensor = Tensor(Storage("ByteStorage", "0", 3), 0, {3}, {1});
  folder_.Write("a.pt", File(Pickled(Dict({{"epoch", Int(3)}, {"model", Dict({{"w", tensor}})}})), {"xyz"}));
  EXPECT_EQ(Load(folder_.path()), (Tensors{{{"w", DType::kU8, {3}}, "xyz"}}));
  EXPECT_THAT(
      MessageOf(ErrorCode::kCorrupt,
                File(Pickled(Dict(
                         {{"model", Dict({{"w", tensor}})}, {"epoch", Int(3)}, {"state_dict", Dict({{"w", tensor}})}})),
                     {"xyz"})),
      HasSubstr("expected one state dict, got dicts under 'model' and under 'state_dict'"));
  // Beside tensors it is nothing that is known.
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported,
                        File(Pickled(Dict({{"w", tensor}, {"model", Dict({{"w", tensor}})}})), {"xyz"})),
              HasSubstr("tensor 'model': at byte"));
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, File(Pickled(Dict({{"epoch", Int(3)}})), {})),
              HasSubstr("tensor 'epoch': at byte 14: expected a tensor, got the integer 3"));
}

TEST_F(PtLoader, ATensorThatLeavesItsStorageIsRefusedWithTheNumbers) {
  const std::string storage = Storage("FloatStorage", "0", 6);
  const auto message = [&](std::int64_t offset, std::vector<std::int64_t> size, std::vector<std::int64_t> strides) {
    return MessageOfTensor(Tensor(storage, offset, size, strides), kBytes);
  };
  EXPECT_THAT(message(0, {7}, {1}),
              HasSubstr("[7] f32 with strides [1] at element 0: expected it inside a storage of 6 elements"));
  EXPECT_THAT(message(1, {2, 3}, {3, 1}), HasSubstr("at element 1: expected it inside a storage of 6 elements"));
  EXPECT_THAT(message(6, {}, {}), HasSubstr("expected it inside a storage"));
  EXPECT_THAT(message(7, {0}, {1}), HasSubstr("expected it inside a storage"));
  EXPECT_THAT(message(0, {2}, {INT64_MAX}), HasSubstr("expected it inside a storage"));
  EXPECT_THAT(message(INT64_MAX, {1}, {1}), HasSubstr("expected it inside a storage"));
  EXPECT_THAT(message(0, {INT64_MAX, INT64_MAX}, {0, 0}), HasSubstr("expected it inside a storage"));
  EXPECT_THAT(message(0, {7, 1}, {0, 1}), HasSubstr("expected it inside a storage"));  // expand: 7 elements of 6
  EXPECT_THAT(message(0, {0, INT64_MAX, INT64_MAX}, {1, 1, 1}), HasSubstr("tensor 'w': at byte"));
  EXPECT_THAT(message(0, {2, 3}, {1}), HasSubstr("expected as many strides as dimensions, got [1] for [2, 3]"));
  EXPECT_THAT(message(0, {-1}, {1}), HasSubstr("its size: expected no negative number, got the integer -1"));
  EXPECT_THAT(message(0, {2}, {-1}), HasSubstr("its strides: expected no negative number"));
  EXPECT_THAT(message(-1, {2}, {1}), HasSubstr("its offset in the storage: expected no negative number"));
  EXPECT_THAT(message(0, std::vector<std::int64_t>(65, 1), std::vector<std::int64_t>(65, 1)),
              HasSubstr("expected at most 64 dimensions, got 65"));
}

TEST_F(PtLoader, ASizeOfASizeOfASizeIsRefused) {
  const auto message = [&](int levels) {
    std::string size;
    for (int i = 0; i < levels; ++i) size += Global("torch", "Size") + "(";
    size += Ints({6});
    for (int i = 0; i < levels; ++i) size += "tR";
    return MessageOfTensor(Call(Global("torch._utils", "_rebuild_tensor_v2"),
                                {Storage("FloatStorage", "0", 6), Int(0), size, Ints({1}), "\x89", OrderedDict()}),
                           kBytes);
  };
  EXPECT_EQ(message(1), "no error");
  EXPECT_THAT(message(2), HasSubstr("its size"));
  EXPECT_THAT(message(100'000), HasSubstr("its size"));
}

TEST_F(PtLoader, AStorageThatIsNotWhatItSaysIsRefused) {
  const auto message = [&](const std::string& storage) {
    return MessageOfTensor(Tensor(storage, 0, {1}, {1}), kBytes);
  };
  EXPECT_THAT(message(Storage("FloatStorage", "0", 5)),
              HasSubstr("storage '0': expected 5 elements of 4 bytes, got a record of 24 bytes"));
  EXPECT_THAT(message(Storage("FloatStorage", "0", INT64_MAX)), HasSubstr("got a record of 24 bytes"));
  EXPECT_THAT(message(Storage("FloatStorage", "1", 6)), HasSubstr("expected the record data/1, got none"));
  EXPECT_THAT(message(Storage("Size", "0", 6)), HasSubstr("expected a storage's class, got torch.Size"));
  EXPECT_THAT(message("N"), HasSubstr("expected a storage, got None"));
  EXPECT_THAT(message("NQ"), HasSubstr("expected a storage's id, got None"));
  EXPECT_THAT(message(")Q"), HasSubstr("expected 5 fields, got 0"));
  EXPECT_THAT(message(Tuple({Text("module"), "N", "N", "N", "N"}) + "Q"), HasSubstr("expected 'storage'"));
}

// Two bytes of a pickle name again what its memo holds.
TEST_F(PtLoader, ATensorThatIsNamedOverAndOverIsRefusedBeforeItIsManyTimesItsFile) {
  const auto message = [&](std::size_t dimensions, int times) {
    const std::vector<std::int64_t> ones(dimensions, 1);
    std::string dict = "}(" + Text("w") + Tensor(Storage("FloatStorage", "0", 6), 0, ones, ones) + "q\1";
    for (int i = 0; i < times; ++i) dict += Text(std::to_string(i)) + "h\1";
    return MessageOf(ErrorCode::kCorrupt, File(Pickled(dict + "u"), {kBytes}));
  };
  EXPECT_EQ(message(2, 30), "no error");  // tied weights
  EXPECT_THAT(message(64, 1000), HasSubstr("expected no more sizes, strides and letters of storages' keys in all "
                                           "tensors than the pickle has bytes ("));
}

TEST_F(PtLoader, WhatIsNoStateDictIsRefused) {
  const auto message = [&](const std::string& object, ErrorCode code = ErrorCode::kCorrupt) {
    return MessageOf(code, File(Pickled(object), {kBytes}));
  };
  const std::string tensor = Tensor(Storage("FloatStorage", "0", 6), 0, {6}, {1});
  EXPECT_THAT(message(tensor), HasSubstr("data.pkl: at byte"));
  EXPECT_THAT(message("]"), HasSubstr("expected a dict of tensors, got a list of 0"));
  EXPECT_THAT(message(Dict({{"w", tensor}, {"w", tensor}})), HasSubstr("tensor 'w': at byte"));
  EXPECT_THAT(message("}" + Int(1) + tensor + "s"), HasSubstr("expected a tensor's name, got the integer 1"));
  EXPECT_THAT(message(Dict({{"w", Call(Global("torch", "Size"), {Ints({1})})}}), ErrorCode::kUnsupported),
              HasSubstr("expected a tensor, got torch.Size(...)"));
  EXPECT_THAT(message(Dict({{"w", Call(Global("torch._utils", "_rebuild_tensor_v2"), {"N"})}})),
              HasSubstr("expected 6 to 7 arguments, got 1"));
  const std::string negated = Call(
      Global("torch._utils", "_rebuild_tensor_v2"),
      {Storage("FloatStorage", "0", 6), Int(0), Ints({6}), Ints({1}), "\x89", OrderedDict(), Dict({{"neg", "\x88"}})});
  EXPECT_THAT(message(Dict({{"w", negated}}), ErrorCode::kUnsupported), HasSubstr("expected no metadata"));
}

TEST_F(PtLoader, AnythingExecutableIsRefusedByName) {
  for (const char* module : {"posix", "builtins", "subprocess", "torch._utils"}) {
    EXPECT_THAT(
        MessageOf(ErrorCode::kUnsupported, File(Pickled(Dict({{"w", Call(Global(module, "eval"), {Text("1")})}})), {})),
        HasSubstr("the global '" + std::string(module) + ".eval' is none that a state dict needs: refused"));
  }
}

TEST_F(PtLoader, OtherFilesAreNamedForWhatTheyAre) {
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e rest"s),
              HasSubstr("the form that torch.save had before 1.6"));
  EXPECT_THAT(MessageOf(ErrorCode::kCorrupt, "version https://git-lfs"), HasSubstr("at byte 0: expected a zip file"));
  EXPECT_THAT(MessageOf(ErrorCode::kCorrupt, ""), HasSubstr("at byte 0: expected a zip file"));
  EXPECT_THAT(MessageOf(ErrorCode::kCorrupt, Zip({{"readme", "x"}})), HasSubstr("expected a record data.pkl"));
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, Zip({{"a/data.pkl", Pickled("}")}, {"a/constants.pkl", "x"}})),
              HasSubstr("is a TorchScript program"));
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, Zip({{"a/data.pkl", Pickled("}")}, {"a/byteorder", "big"}})),
              HasSubstr("record byteorder: expected 'little', got 'big'"));
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, Zip({{"a/data.pkl", Pickled("}"), 8}})),
              HasSubstr("record 'a/data.pkl': expected a stored record, as torch.save writes them, got method 8"));
  EXPECT_THAT(MessageOf(ErrorCode::kUnsupported, Zip({{"a/data.pkl", Pickled("}"), 0, 1}})),
              HasSubstr("got an encrypted one"));
  EXPECT_THAT(MessageOf(ErrorCode::kCorrupt, Zip({{"a/data.pkl", "x"}, {"a/data.pkl", "x"}})),
              HasSubstr("'a/data.pkl' is there twice"));
}

TEST_F(PtLoader, ADamagedRecordIsNamedWhenItsTensorsAreRead) {
  std::string file = Good();
  file[file.find("mnop")] = 'M';
  EXPECT_THAT(MessageOf(ErrorCode::kCorrupt, file),
              HasSubstr("record 'archive/data/0': crc-32 of its 24 bytes at byte"));
}

TEST_F(PtLoader, AFileCutAnywhereIsAnError) {
  const std::string file = Good();
  for (std::size_t size = 0; size < file.size(); ++size) {
    EXPECT_NE(MessageOf(ErrorCode::kCorrupt, file.substr(0, size)), "no error") << "cut at " << size;
  }
}

TEST_F(PtLoader, AnyFlippedBitIsAnErrorOrChangesNothing) {
  const std::string file = Good();
  const auto path = folder_.Write("pytorch_model.bin", file);
  std::fstream in_place(path, std::ios::binary | std::ios::in | std::ios::out);
  const auto put = [&](std::size_t at, char byte) {
    in_place.seekp(static_cast<std::streamoff>(at)).put(byte).flush();
  };
  int accepted = 0;
  for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
    put(bit / 8, static_cast<char>(file[bit / 8] ^ (1 << bit % 8)));
    if (bit % 8 == 0 && bit > 0) put(bit / 8 - 1, file[bit / 8 - 1]);
    try {
      ASSERT_EQ(Load(path), kGood) << "bit " << bit;
      ++accepted;
    } catch (const Error& error) {
      ASSERT_THAT(error.what(), HasSubstr("pytorch_model.bin'")) << "bit " << bit;
    }
  }
  EXPECT_GT(accepted, 0);  // times, versions and attributes mean nothing here
  EXPECT_LT(accepted, static_cast<int>(file.size() * 8 / 2));
}

TEST_F(PtLoader, SeveralFilesAndTheirIndex) {
  const auto one = [](const std::string& name, const std::string& bytes) {
    return File(Pickled(Dict({{name, Tensor(Storage("ByteStorage", "0", 1), 0, {1}, {1})}})), {bytes});
  };
  folder_.Write("pytorch_model-00001-of-00002.bin", one("a", "A"));
  folder_.Write("pytorch_model-00002-of-00002.bin", one("b", "B"));
  folder_.Write("training_args.bin", "no weights");
  EXPECT_EQ(Load(folder_.path()).size(), 2U);
  const std::string index = R"({"weight_map":{"a":"pytorch_model-00001-of-00002.bin","b":)";
  folder_.Write("pytorch_model.bin.index.json", index + R"("pytorch_model-00002-of-00002.bin"}})");
  EXPECT_EQ(Load(folder_.path()), (Tensors{{{"a", DType::kU8, {1}}, "A"}, {{"b", DType::kU8, {1}}, "B"}}));
  folder_.Write("pytorch_model.bin.index.json", index + R"("pytorch_model-00001-of-00002.bin"}})");
  try {
    Load(folder_.path());
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("pytorch_model.bin.index.json': tensor 'b': expected in "
                                        "'pytorch_model-00001-of-00002.bin', got nothing of that name"));
  }
}

}  // namespace
}  // namespace layercast
