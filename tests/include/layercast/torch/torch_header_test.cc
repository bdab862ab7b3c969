#include "layercast/torch/publish.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/module.h>

#include <cstring>

#include "layercast/torch/adopt.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using layercast::testing::ErrorOf;
using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::pair<std::string, std::vector<std::byte>>> WalkAll(const Weights& weights,
                                                                    std::span<const std::string> order = {}) {
  std::vector<std::pair<std::string, std::vector<std::byte>>> walked;
  const auto iterator = weights.walk(order);
  while (const auto tensor = iterator->Next()) {
    const auto bytes = static_cast<std::size_t>(tensor->tensor.num_bytes());
    walked.emplace_back(tensor->name, std::vector<std::byte>(tensor->tensor.data, tensor->tensor.data + bytes));
  }
  return walked;
}

std::vector<std::byte> Bytes(const at::Tensor& tensor) {
  const at::Tensor rows = tensor.contiguous();
  const auto* data = static_cast<const std::byte*>(rows.const_data_ptr());
  return {data, data + rows.nbytes()};
}

ErrorCode CodeOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST(TorchWeights, GiveEveryParameterOfAModuleUnderItsName) {
  auto module = std::make_shared<torch::nn::Module>();
  auto child = module->register_module("layer", std::make_shared<torch::nn::Module>());
  const at::Tensor first = child->register_parameter("weight", at::randn({3, 4}));
  const at::Tensor second = module->register_parameter("scale", at::randn({5}, at::kBFloat16));
  const Weights weights = TorchWeights(*module);
  ASSERT_EQ(weights.specs.size(), 2U);
  const auto walked = WalkAll(weights);
  ASSERT_EQ(walked.size(), 2U);
  EXPECT_EQ(walked[0].first, "scale");
  EXPECT_EQ(walked[0].second, Bytes(second));
  EXPECT_EQ(walked[1].first, "layer.weight");
  EXPECT_EQ(walked[1].second, Bytes(first));
  EXPECT_EQ(WalkAll(weights), walked);  // again
}

TEST(TorchWeights, GiveATransposedTensorRowMajor) {
  const at::Tensor tensor = at::arange(12, at::kFloat).view({3, 4}).t();
  const Weights weights = TorchWeights(std::vector<NamedAtTensor>{{"w", tensor}});
  EXPECT_EQ(weights.specs[0], (TensorSpec{.name = "w", .dtype = DType::kF32, .shape = {4, 3}}));
  EXPECT_EQ(WalkAll(weights)[0].second, Bytes(tensor));
}

TEST(TorchWeights, CanBeWalkedInAnotherOrderByName) {
  const Weights weights = TorchWeights(std::vector<NamedAtTensor>{{"a", at::ones({1})}, {"b", at::zeros({2})}});
  const std::vector<std::string> order = {"b", "a"};
  const auto walked = WalkAll(weights, order);
  ASSERT_EQ(walked.size(), 2U);
  EXPECT_EQ(walked[0].first, "b");
  const std::vector<std::string> unknown = {"c"};
  EXPECT_EQ(CodeOf([&] { weights.walk(unknown); }), ErrorCode::kNotFound);
}

TEST(TorchWeights, OfAGeneratorAreWalkedOnce) {
  int made = 0;
  const Weights weights = TorchWeights([&made]() -> std::optional<NamedAtTensor> {
    if (made == 2) return std::nullopt;
    ++made;
    return NamedAtTensor("t" + std::to_string(made), at::full({2}, made));
  });
  EXPECT_EQ(WalkAll(weights).size(), 2U);
  EXPECT_EQ(CodeOf([&] { weights.walk({}); }), ErrorCode::kFailedPrecondition);
}

TEST(TorchWeights, RefuseATypeThatNoSafetensorsFileHolds) {
  const at::Tensor tensor = at::zeros({2}, at::kComplexDouble);
  EXPECT_EQ(CodeOf([&] { TorchWeights(std::vector<NamedAtTensor>{{"w", tensor}}); }), ErrorCode::kUnsupported);
}

// What is wrong with a tensor, and how it is told.
struct Wrong {
  at::Tensor tensor;
  const char* message;
};

at::Tensor Freed() {
  at::Tensor tensor = at::zeros({2, 3});
  tensor.storage().set_nbytes(0);
  return tensor;
}

std::vector<Wrong> WrongTensors() {
  return {
      {at::Tensor(), "got an undefined one"},
      {at::zeros({2, 2}).to_sparse(), "got one that is not laid out in strides"},
      {at::zeros({2, 2}).to_sparse_csr(), "got one that is not laid out in strides"},
      {at::empty({2, 2}, at::TensorOptions().device(at::kMeta)), "got one on meta"},
      {Freed(), "got a storage of 0 bytes where it needs 24: was it freed?"},
      {at::quantize_per_tensor(at::zeros({2, 2}), 0.5, 0, at::kQInt8), "torch type QInt8 has no dtype"},
      {at::zeros({2}, at::kComplexDouble), "torch type ComplexDouble has no dtype"},
  };
}

TEST(TorchWeights, NameATensorThatTheyCannotPublish) {
  for (const Wrong& wrong : WrongTensors()) {
    const auto expected = AllOf(HasSubstr("'model.w'"), HasSubstr(wrong.message));
    EXPECT_THAT(ErrorOf([&] { TorchWeights(std::vector<NamedAtTensor>{{"model.w", wrong.tensor}}); }), expected);
    EXPECT_THAT(ErrorOf([&] { TorchShards({{"model.w", wrong.tensor}}); }), expected);
    const Weights once = TorchWeights([&]() { return std::optional(NamedAtTensor("model.w", wrong.tensor)); });
    EXPECT_THAT(ErrorOf([&] { (void)once.walk({})->Next(); }), expected);
  }
}

// It was whole when it was listed.
TEST(TorchWeights, NameATensorThatIsFreedBeforeItIsRead) {
  at::Tensor tensor = at::zeros({4});
  const Weights weights = TorchWeights(std::vector<NamedAtTensor>{{"model.w", tensor}});
  tensor.storage().set_nbytes(0);
  EXPECT_THAT(ErrorOf([&] { WalkAll(weights); }), AllOf(HasSubstr("'model.w'"), HasSubstr("was it freed?")));
}

TEST(TorchWeights, RefuseANameTwice) {
  EXPECT_THAT(ErrorOf([] { TorchWeights(std::vector<NamedAtTensor>{{"w", at::zeros({2})}, {"w", at::ones({2})}}); }),
              HasSubstr("'w' is to be published twice"));
}

TEST(TorchWeights, GiveTheValuesOfEmptyStridedAndLazilyComputedTensors) {
  const at::Tensor wide = at::arange(24, at::kFloat).view({4, 6}).requires_grad_();
  const at::Tensor lazy = at::complex(at::arange(3, at::kFloat), at::ones({3})).conj();
  const std::vector<NamedAtTensor> tensors = {
      {"empty", at::zeros({0, 4})},  {"scalar", at::scalar_tensor(3.0)},
      {"part", wide.slice(1, 1, 4)}, {"expanded", at::ones({1, 3}).expand({2, 3})},
      {"conjugated", lazy},          {"negated", at::imag(lazy)}};
  const auto walked = WalkAll(TorchWeights(tensors));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_EQ(walked[i].second,
              Bytes(at::clone(tensors[i].second.detach(), at::MemoryFormat::Contiguous).resolve_conj().resolve_neg()))
        << walked[i].first;
  }
}

TEST(TorchWeights, GiveATiedParameterUnderBothOfItsNames) {
  auto module = std::make_shared<torch::nn::Module>();
  const at::Tensor shared = module->register_parameter("embed", at::randn({3, 4}));
  module->register_parameter("head", shared);
  const auto walked = WalkAll(TorchWeights(*module));
  ASSERT_EQ(walked.size(), 2U);
  EXPECT_EQ(walked[0].second, walked[1].second);
}

TEST(TorchWeights, ArePublishedFromALivingModuleWithoutTouchingIt) {
  auto module = std::make_shared<torch::nn::Module>();
  const at::Tensor weight = module->register_parameter("weight", at::randn({8, 8}));
  Publisher publisher({});
  const Version first = publisher.Publish({.lineage = "run", .step = 1}, TorchWeights(*module)).version();
  const Version same = publisher.Publish({.lineage = "run", .step = 2}, TorchWeights(*module)).version();
  {
    const at::NoGradGuard no_gradients;
    weight.mul_(2);
  }
  const Version changed = publisher.Publish({.lineage = "run", .step = 3}, TorchWeights(*module)).version();
  EXPECT_EQ(first.digest, same.digest);
  EXPECT_NE(first.digest, changed.digest);
  EXPECT_TRUE(weight.requires_grad());
}

TEST(TorchShards, SayWhereTheyLieAndMayBeEmpty) {
  const at::Tensor whole = at::arange(20, at::kFloat).view({5, 4});
  const auto rows = [&](std::int64_t first, std::int64_t end) {
    return TorchShard{"w", whole.slice(0, first, end), TensorPart{.whole = {5, 4}, .offsets = {first, 0}}};
  };
  Publisher publisher({});
  std::uint64_t step = 0;
  const auto publish = [&](std::vector<TorchShard> shards, int rank) {
    const PublishOptions options{.lineage = "run", .step = ++step, .part = {rank, 3}};
    return publisher.Publish(options, TorchShards(std::move(shards))).version();
  };
  const Version first = publish({rows(0, 3), {"norm", at::ones({4})}}, 0);
  const Version second = publish({rows(3, 5)}, 1);
  const Version third = publish({rows(5, 5)}, 2);  // more ranks than rows
  EXPECT_NE(first.digest, second.digest);
  EXPECT_NE(second.digest, third.digest);
  EXPECT_EQ(CodeOf([&] { publish({{"w", whole, TensorPart{.whole = {5, 4}, .offsets = {1, 0}}}}, 2); }),
            ErrorCode::kInvalidArgument);  // it leaves its tensor
  EXPECT_EQ(WalkAll(TorchShards({rows(1, 3)}))[0].second, Bytes(whole.slice(0, 1, 3)));
  const PublishOptions stream{.lineage = "run", .step = ++step, .mode = PublishMode::kStream, .part = {1, 3}};
  EXPECT_EQ(publisher.Publish(stream, TorchShards({rows(3, 5)})).version().step, step);  // parts are known beforehand
}

TEST(AdoptTensors, KeepsAddressesAndStrides) {
  const at::Tensor wide = at::arange(24, at::kFloat).view({4, 6});
  const at::Tensor part = wide.slice(1, 0, 3);
  const CapturedBuffers captured = AdoptTensors({{"part", part}});
  const CapturedBuffer* buffer = captured.Find("part");
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(buffer->address, static_cast<std::byte*>(part.data_ptr()));
  EXPECT_EQ(buffer->strides, (std::vector<std::int64_t>{6, 1}));
  EXPECT_EQ(captured.Read(*buffer), Bytes(part));
}

TEST(AdoptTensors, RefusesATensorWithoutMemoryThatItKnows) {
  const at::Tensor meta = at::empty({2, 2}, at::TensorOptions().device(at::kMeta));
  EXPECT_EQ(CodeOf([&] { AdoptTensors({{"nowhere", meta}}); }), ErrorCode::kUnsupported);
}

TEST(AdoptTensors, NameATensorThatCannotBeWritten) {
  for (const Wrong& wrong : WrongTensors()) {
    if (wrong.tensor.defined() && wrong.tensor.is_meta()) continue;  // above
    EXPECT_THAT(ErrorOf([&] { AdoptTensors({{"model.w", wrong.tensor}}); }),
                AllOf(HasSubstr("'model.w'"), HasSubstr(wrong.message)));
  }
  const at::Tensor twice = at::zeros({4});
  EXPECT_THAT(ErrorOf([&] { AdoptTensors({{"w", twice}, {"w", at::zeros({4})}}); }),
              HasSubstr("'w': it is named twice"));
  EXPECT_THAT(ErrorOf([&] { AdoptTensors({{"w", twice}, {"head", twice}}); }), HasSubstr("its bytes overlap"));
  EXPECT_THAT(ErrorOf([&] { AdoptTensors({{"w", at::ones({1, 3}).expand({2, 3})}}); }), HasSubstr("over each other"));
  EXPECT_THAT(ErrorOf([&] { AdoptTensors({{"w", at::zeros({3}, at::kComplexFloat).conj()}}); }),
              HasSubstr("a view that is computed when it is read"));
}

TEST(AdoptTensors, NoticesATensorThatMoved) {
  at::Tensor tensor = at::zeros({4});
  const CapturedBuffers captured = AdoptTensors({{"t", tensor}});
  captured.CheckUnmoved();
  tensor.set_data(at::zeros({4}));
  EXPECT_EQ(CodeOf([&] { captured.CheckUnmoved(); }), ErrorCode::kFailedPrecondition);
}

}  // namespace
}  // namespace layercast
