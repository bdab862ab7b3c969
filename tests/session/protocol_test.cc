// Sessions with the release before, whose newest protocol was 2, in both directions. Its bytes are put together here by
// hand, as FORMAT.md of that release has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "layercast/error.h"
#include "src/base/bytes.h"
#include "tests/session/publishing.h"
#include "tests/session/raw_version.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr std::uint64_t kSession = 5;

ByteWriter Header(std::uint16_t type, std::uint64_t session) {
  ByteWriter bytes;
  bytes.PutBytes("LCWF");
  bytes.Put(std::uint16_t{2});
  bytes.Put(type);
  bytes.Put(session);
  return bytes;
}

void Put(ByteWriter& bytes, const Digest& digest) {
  bytes.Put(digest.high);
  bytes.Put(digest.low);
}

Bytes SubscribeOfProtocol2(std::uint64_t session, const Schedule& schedule, bool with_bytes, std::uint32_t tensor) {
  const Bytes encoded = with_bytes ? schedule.Encode() : Bytes();
  ByteWriter bytes = Header(3, session);
  Put(bytes, schedule.digest());
  bytes.Put(static_cast<std::uint32_t>(encoded.size()));
  bytes.PutBytes({reinterpret_cast<const char*>(encoded.data()), encoded.size()});
  bytes.Put(std::uint32_t{1});  // tensors whose magnitudes are wanted
  bytes.Put(tensor);
  bytes.Put(kKeptRows);
  return std::move(bytes).Take();
}

Bytes SubscribedOfProtocol2(std::uint64_t session, std::uint64_t offer, const std::vector<Digest>& chunks,
                            std::uint32_t tensor, const std::vector<float>& rows) {
  ByteWriter bytes = Header(5, session);
  bytes.Put(offer);
  bytes.Put(static_cast<std::uint32_t>(chunks.size()));
  for (const Digest& digest : chunks) Put(bytes, digest);
  bytes.Put(std::uint32_t{1});
  bytes.Put(tensor);
  bytes.Put(static_cast<std::uint32_t>(rows.size()));
  for (const float row : rows) bytes.Put(std::bit_cast<std::uint32_t>(row));
  return std::move(bytes).Take();
}

class ProtocolTest : public SessionTest {
 protected:
  std::vector<float> RowAmax(const Weights& weights, std::uint32_t tensor) {
    return AmaxOver(weights.spec(tensor), weights.bytes(tensor).data(), kKeptRows, pool_);
  }
};

TEST_F(ProtocolTest, AReceiverOfProtocol2IsAnsweredInItsOwnBytes) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  const PublishedWeights published(*service, weights, "run", 3);
  RawReceiver receiver(service->endpoint());
  wire::Hello hello;
  hello.oldest_protocol = hello.newest_protocol = 2;
  receiver.Send(wire::Encode({2, kSession, hello}));
  const wire::Frame welcome = wire::Decode(receiver.ReceiveBytes());
  EXPECT_EQ(welcome.protocol, 2);
  EXPECT_EQ(std::get<wire::Welcome>(welcome.message).protocol, 2);

  const Schedule schedule = SomeSchedule(false);
  receiver.Send(SubscribeOfProtocol2(kSession, schedule, true, 1));
  EXPECT_EQ(receiver.ReceiveBytes(), SubscribedOfProtocol2(kSession, published.version->offer().id,
                                                           DigestsOf(schedule, weights), 1, RowAmax(weights, 1)));
}

TEST_F(ProtocolTest, APublisherOfProtocol2IsAskedInItsOwnBytes) {
  const Weights weights = SomeWeights();
  RawVersion publisher(weights, 2);
  const Schedule schedule = SomeSchedule(false);
  auto receiver = FetchInBackground(publisher.link.endpoint(), channels_, schedule, {{1, kKeptRows}});
  publisher.Welcome();
  EXPECT_EQ(publisher.link.ReceiveBytes(), SubscribeOfProtocol2(publisher.session, schedule, false, 1));
  publisher.Send(wire::NeedSchedule{});
  EXPECT_EQ(publisher.link.ReceiveBytes(), SubscribeOfProtocol2(publisher.session, schedule, true, 1));
  const std::vector<float> rows = RowAmax(weights, 1);
  publisher.Send(wire::Subscribed{publisher.offer.id, DigestsOf(schedule, weights), {{1, rows}}});
  EXPECT_EQ(publisher.link.ReceiveBytes(), Header(11, publisher.session).Take());  // bye

  Fetched fetched = receiver.get();
  EXPECT_EQ(fetched.error, "");
  const auto expected = BytesOf(schedule, weights);
  for (std::uint32_t i = 0; i < expected.size(); ++i) EXPECT_EQ(fetched.sink.chunks[i], expected[i]) << i;
  EXPECT_EQ(fetched.sink.axis_amax[1], rows);
}

TEST_F(ProtocolTest, AReceiverOfProtocol2IsNotTakenInByAPartOfAVersion) {
  const auto service = MakeService();
  const auto part = std::make_shared<OfferedVersion>(Manifest("run", 3, {}, {.rank = 1, .ranks = 2}), Offer(), false);
  service->Offer(part);
  RawReceiver receiver(service->endpoint());
  wire::Hello hello;
  hello.oldest_protocol = 1;
  hello.newest_protocol = 2;
  receiver.Send(wire::Encode({2, kSession, hello}));
  EXPECT_THAT(
      receiver.Refusal(),
      AllOf(HasSubstr("run@3"), HasSubstr("is published in 2 parts: expected a receiver that speaks protocol 3, "
                                          "got one that speaks 1 to 2")));
}

TEST_F(ProtocolTest, AStatusIsAnsweredInTheProtocolThatItWasAskedIn) {
  const auto service = MakeService();
  service->Offer(std::make_shared<OfferedVersion>(Manifest("run", 3, {}, {.rank = 1, .ranks = 2}), Offer(), false));
  RawReceiver asker(service->endpoint());
  const auto answer_in = [&](std::uint16_t protocol) {
    asker.Send(wire::Encode({protocol, kSession, wire::StatusRequest{}}));
    return wire::Decode(asker.ReceiveBytes());
  };
  for (const auto& [asked, answered] : {std::pair(1, 2), std::pair(2, 2), std::pair(3, 3), std::pair(4, 4),
                                        std::pair(5, 5), std::pair(6, 6), std::pair(7, 6)}) {
    const wire::Frame frame = answer_in(static_cast<std::uint16_t>(asked));
    EXPECT_EQ(frame.protocol, answered);
    const wire::VersionStatus& version = std::get<wire::StatusAnswer>(frame.message).versions.at(0);
    EXPECT_EQ(version.part_ranks, answered >= 3 ? 2U : 1U);
  }
}

}  // namespace
}  // namespace layercast::testing
