// What a publisher refuses of its own process: options, walks that are none, calls in the wrong place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "layercast/publisher.h"
#include "tests/support/error_of.h"
#include "tests/support/forked_child.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;
using testing::IsTrueInAForkedChild;

constexpr float kFour[] = {1, 2, 3, 4};

std::vector<NamedTensor> OneTensor() {
  return {{"w", {DType::kF32, {4}, reinterpret_cast<const std::byte*>(kFour), {}}, nullptr}};
}

Weights Walking(std::function<void()> before = [] {}) {
  return {.specs = {}, .walk = [before](std::span<const std::string>) {
            before();
            return MakeWeightsIterator(OneTensor());
          }};
}

TEST(PublisherMisuse, OptionsOutOfTheirBoundsAreNamed) {
  const auto refused = [](const PublisherOptions& options) {
    return ErrorOf([&] { const Publisher publisher(options); }, ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(refused({.retained_versions = 0}), HasSubstr("retained_versions: expected 1 to"));
  EXPECT_THAT(refused({.threads = 0}), HasSubstr("threads: expected 1 to 1024, got 0"));
  EXPECT_THAT(refused({.threads = 100'000}), HasSubstr("threads: expected 1 to 1024, got 100000"));
  EXPECT_THAT(refused({.nccl_fleet = 65}), HasSubstr("nccl_fleet: expected 1 to 64, got 65"));
  EXPECT_THAT(refused({.peer_timeout = std::chrono::milliseconds(0)}), HasSubstr("peer_timeout (ms): expected 1 to"));
  EXPECT_THAT(refused({.eviction_time = std::chrono::milliseconds(-1)}), HasSubstr("eviction_time (ms): expected 0"));
}

TEST(PublisherMisuse, AWalkWithoutAnIteratorIsRefused) {
  Publisher publisher({});
  const Weights none{.specs = {}, .walk = [](std::span<const std::string>) { return nullptr; }};
  EXPECT_THAT(ErrorOf([&] { publisher.Publish({.lineage = "run", .step = 1}, none); }, ErrorCode::kInvalidArgument),
              HasSubstr("gave no iterator"));
  EXPECT_THAT(ErrorOf([&] { static_cast<void>(Weights::Once({}, nullptr)); }, ErrorCode::kInvalidArgument),
              HasSubstr("without an iterator"));
}

TEST(PublisherMisuse, AWalkThatPublishesIsRefusedInsteadOfWaitingForItself) {
  Publisher publisher({});
  std::string refused;
  publisher.Publish({.lineage = "run", .step = 1}, Walking([&] {
                      refused = ErrorOf([&] { publisher.Publish({.lineage = "other", .step = 1}, Walking()); },
                                        ErrorCode::kFailedPrecondition);
                    }));
  EXPECT_THAT(refused, HasSubstr("by the walk of another Publish"));
  publisher.Publish({.lineage = "run", .step = 2}, Walking());
}

TEST(PublisherMisuse, AForkedChildCannotUseItAndEndsAllTheSame) {
  std::optional<Publisher> publisher(PublisherOptions{.channels = {"zmq"}});
  publisher->Publish({.lineage = "run", .step = 1}, Walking());  // its threads are idle after it
  EXPECT_TRUE(IsTrueInAForkedChild([&] {
    bool refused = false;
    try {
      publisher->Publish({.lineage = "run", .step = 2}, Walking());
    } catch (const Error& error) {
      refused = error.code() == ErrorCode::kFailedPrecondition;
    }
    publisher.reset();
    return refused;
  }));
  publisher->Publish({.lineage = "run", .step = 2}, Walking());
}

TEST(PublisherMisuse, NoiseIsOfABaseAndOfASigma) {
  Publisher publisher({});
  const auto refusal = [&](const Noise& noise, Weights weights, ErrorCode code) {
    return ErrorOf([&] { publisher.Publish({.lineage = "run", .step = 1, .noise = noise}, std::move(weights)); }, code);
  };
  EXPECT_THAT(refusal({.sigma = -1}, Walking(), ErrorCode::kInvalidArgument), HasSubstr("finite sigma above 0"));
  const Weights adapter{.specs = {}, .walk = [](std::span<const std::string>) {
                          std::vector<NamedTensor> tensors = OneTensor();
                          tensors.front().name = "adapters/policy/w";
                          return MakeWeightsIterator(std::move(tensors));
                        }};
  EXPECT_THAT(refusal({.sigma = 0.1F}, adapter, ErrorCode::kUnsupported), HasSubstr("a version of adapters alone"));
  publisher.Publish({.lineage = "run", .step = 1}, adapter);
  publisher.Publish({.lineage = "run", .step = 2, .noise = Noise{.sigma = 0.1F}}, Walking());
}

}  // namespace
}  // namespace layercast
