// Deltas that mean a receiver ill: a publisher that says what it likes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "src/delta/delta_frame.h"
#include "tests/support/error_of.h"
#include "tests/support/session/keeping.h"
#include "tests/support/session/raw_version.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kNoError = "no error";  // of ErrorOf

// Deltas by an offer that tests know, over inproc, whose frames they make.
class RawDeltaTest : public DeltaSessionTest {
 protected:
  RawDeltaTest() {
    auto chunks = std::make_shared<KeptChunks>(schedule_, memory_, "a test's chunks");
    const auto bytes = BytesOf(schedule_, old_);
    for (std::uint32_t i = 0; i < bytes.size(); ++i) std::ranges::copy(bytes[i], chunks->Place(i).begin());
    base_ = std::make_shared<SourceCopy>();
    base_->parts.push_back({{"run", 2, {1, 2}}, chunks});
    const auto next = BytesOf(schedule_, new_);
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      frames_.push_back(EncodeDelta({bytes[i]}, {next[i]}, 2, DeltaEffort::kSmall));
    }
  }

  // What becomes of a fetch whose publisher has these deltas, and says that they have these sizes.
  std::string Outcome(const std::vector<std::vector<std::byte>>& frames, std::vector<std::uint64_t> sizes) {
    RawVersion publisher(new_);
    Offer offer{.id = 12, .tensors = {}};
    for (const auto& frame : frames) offer.tensors.push_back({frame.data(), frame.size()});
    publisher.AlsoOffer(offer);
    Keeper keeper({publisher.link.endpoint()}, channels_, "inproc");
    keeper.options.base = base_;
    auto fetched = std::async(std::launch::async, [&] { return ErrorOf([&] { keeper.Fetch(schedule_); }); });
    publisher.Welcome();
    const wire::Frame asked = wire::Decode(publisher.link.ReceiveBytes());
    EXPECT_TRUE(std::holds_alternative<wire::AskDelta>(asked.message));
    publisher.Send(wire::Delta{.offer_id = 12, .chunk_bytes = std::move(sizes), .why = {}});
    const wire::Frame subscribe = wire::Decode(publisher.link.ReceiveBytes());
    if (std::holds_alternative<wire::Subscribe>(subscribe.message)) {
      publisher.Send(wire::Subscribed{11, DigestsOf(schedule_, new_), {}});
    }
    std::string outcome = fetched.get();
    if (outcome == kNoError) keeper.ExpectTook(schedule_, new_);
    return outcome;
  }
  std::string Outcome(const std::vector<std::vector<std::byte>>& frames) {
    std::vector<std::uint64_t> sizes;
    for (const auto& frame : frames) sizes.push_back(frame.size());
    return Outcome(frames, std::move(sizes));
  }

  HostMemory memory_;
  const Weights old_ = SomeWeights();
  const Weights new_ = Changed(old_, 3, random_);
  std::shared_ptr<SourceCopy> base_;
  std::vector<std::vector<std::byte>> frames_;
};

TEST_F(RawDeltaTest, AFlippedBitInAnyByteOfADeltaIsFound) {
  EXPECT_EQ(Outcome(frames_), kNoError);
  for (std::size_t chunk = 0; chunk < frames_.size(); ++chunk) {
    for (std::size_t byte = 0; byte < frames_[chunk].size(); ++byte) {
      auto frames = frames_;
      frames[chunk][byte] ^= static_cast<std::byte>(1U << (byte % 8));
      EXPECT_THAT(Outcome(frames), HasSubstr("chunk " + std::to_string(chunk + 1) + " of 3")) << byte;
    }
  }
  EXPECT_EQ(Outcome(frames_), kNoError);  // what is kept is as it was
}

TEST_F(RawDeltaTest, ADeltaThatLeadsToOtherBytesThanTheVersionsIsFound) {
  auto frames = frames_;
  const auto before = BytesOf(schedule_, old_);
  const auto other = BytesOf(schedule_, Changed(old_, 30, random_));
  frames[1] = EncodeDelta({before[1]}, {other[1]}, 2, DeltaEffort::kSmall);
  EXPECT_THAT(Outcome(frames), AllOf(HasSubstr("chunk 2 of 3"), HasSubstr("digest expected")));
}

TEST_F(RawDeltaTest, ADeltaOfMoreOrFewerBytesThanTheChunkHasIsRefusedBeforeOneIsWritten) {
  const std::vector<std::byte> large(20'000);
  for (const std::size_t bytes : {7'998UL, 8'002UL, 20'000UL, 2UL}) {
    auto frames = frames_;
    auto changed = large;
    changed[1] = std::byte{1};
    frames[1] = EncodeDelta({std::span(large).first(bytes)}, {std::span(changed).first(bytes)}, 2, DeltaEffort::kSmall);
    EXPECT_THAT(Outcome(frames), AllOf(HasSubstr("chunk 2 of 3"), HasSubstr("bytes to apply it to"))) << bytes;
  }
}

TEST_F(RawDeltaTest, SizesThatCannotBeAreRefused) {
  EXPECT_THAT(Outcome(frames_, {100, 100}), HasSubstr("has deltas of 2 chunks, expected 3"));
  EXPECT_THAT(Outcome(frames_, {100, 0, 100}), HasSubstr("has a delta of 0 bytes of chunk 2"));
  EXPECT_THAT(Outcome(frames_, {100, 100, std::uint64_t{1} << 62}), HasSubstr("of chunk 3, expected 1 to 8128"));
}

}  // namespace
}  // namespace layercast::testing
