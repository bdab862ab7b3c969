// Versions that a publisher signs, and receivers that take no others.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/net/keys/signing_key.h"
#include "src/session/relay/relay.h"
#include "tests/support/error_of.h"
#include "tests/support/session/relaying.h"
#include "tests/support/session/tampering_peer.h"
#include "tests/support/temp_folder.h"

// Stands before libcrypto's own, and counts: all SHA-256 of this process goes through it.
static std::atomic<std::size_t> hashed_bytes{0};
extern "C" int EVP_DigestUpdate(void* context, const void* data, std::size_t bytes) {
  using Update = int (*)(void*, const void*, std::size_t);
  static const auto real = reinterpret_cast<Update>(::dlsym(RTLD_NEXT, "EVP_DigestUpdate"));
  hashed_bytes += bytes;
  return real(context, data, bytes);
}

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// Streams if the parameter says so.
class SignedVersionTest : public RelayTest, public ::testing::WithParamInterface<bool> {
 protected:
  SignedVersionTest() {
    for (const char* name : {"trainer", "next", "stranger"}) MakeSigningKey(In(name));
    Write("trusted", Text("trainer.public") + "# the one that takes its place\n" + Text("next.public"));
  }

  ~SignedVersionTest() override {
    for (const auto& service : services_) service->Stop();  // before the memory that they offer is freed
  }

  std::string In(const std::string& name) const { return (folder_ / name).string(); }
  std::string Text(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void Write(const std::string& name, const std::string& text) {
    std::filesystem::remove(folder_ / name);
    folder_.Write(name, text);
    std::filesystem::permissions(folder_ / name, std::filesystem::perms(0644));
  }

  // A publisher that signs by that key; by none if it is empty.
  OfferService& Publisher(const std::string& key) {
    OfferServiceOptions options;
    options.endpoint = "tcp://127.0.0.1:0";
    options.name = "publisher";
    if (!key.empty()) options.keys = Keys::From({.sign = In(key)});
    return *services_.emplace_back(std::make_unique<OfferService>(options, pool_, publisher_failpoints_));
  }
  void Offer(OfferService& service, std::uint64_t step) {
    if (GetParam()) {
      service.Offer(std::make_shared<OfferedVersion>(
          Manifest::OfSpecs("run", step, weights_.ToManifest().specs()),
          [this](std::span<const std::string>) { return weights_.Stream(); }, false));
    } else {
      snapshots_.emplace_back(service, weights_, "run", step);
    }
  }
  static Schedule Wanted() { return SomeSchedule(GetParam()); }

  void Fetch(const std::string& endpoint, CollectingSink& sink, const std::string& trusted = "trusted",
             Deadline deadline = Soon()) {
    FetchOptions options;
    options.channels = &channels_;
    if (!trusted.empty()) options.keys = Keys::From({.trust = In(trusted)});
    FetchSession::Open(std::vector{endpoint}, {"engine", 1, 0, 1}, "run", 3, options, receiver_failpoints_, deadline)
        ->Fetch(Wanted(), {}, sink, deadline);
  }
  std::string FetchError(const std::string& endpoint, ErrorCode code, const std::string& trusted = "trusted") {
    CollectingSink sink;
    const std::string error = ErrorOf([&] { Fetch(endpoint, sink, trusted); }, code);
    EXPECT_TRUE(sink.chunks.empty()) << "something that nobody has signed was handed on";
    return error;
  }
  void ExpectAll(const CollectingSink& sink) const {
    const auto expected = BytesOf(Wanted(), weights_);
    ASSERT_EQ(sink.chunks.size(), expected.size());
    for (std::uint32_t i = 0; i < expected.size(); ++i) EXPECT_EQ(sink.chunks.at(i), expected[i]) << i;
  }

  const TempFolder folder_;
  std::deque<std::unique_ptr<OfferService>> services_;
  std::deque<PublishedWeights> snapshots_;  // in their memory
};

INSTANTIATE_TEST_SUITE_P(Of, SignedVersionTest, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "AStream" : "ASnapshot"; });

TEST_P(SignedVersionTest, IsTakenByWhoeverTrustsOneOfItsKeysOrAsksForNone) {
  for (const char* key : {"trainer", "next"}) {
    OfferService& service = Publisher(key);
    Offer(service, 3);
    for (const char* trusted : {"trusted", ""}) {
      CollectingSink sink;
      Fetch(service.endpoint(), sink, trusted);
      ExpectAll(sink);
    }
  }
}

TEST_P(SignedVersionTest, ThatNobodyHasSignedIsRefusedByItsName) {
  OfferService& service = Publisher("");
  Offer(service, 3);
  EXPECT_THAT(FetchError(service.endpoint(), ErrorCode::kPermissionDenied),
              AllOf(HasSubstr("publisher " + service.endpoint()), HasSubstr("version run@3"),
                    HasSubstr("is not signed: this publisher was given no key")));
}

TEST_P(SignedVersionTest, ThatAnotherKeyHasSignedIsRefusedAndTheKeyIsNamed) {
  OfferService& service = Publisher("stranger");
  Offer(service, 3);
  const std::string stranger = ShortText(SigningKey::Read(In("stranger")).public_key());
  EXPECT_THAT(
      FetchError(service.endpoint(), ErrorCode::kPermissionDenied),
      AllOf(HasSubstr("run@3"), HasSubstr("signed by key " + stranger), HasSubstr("expected one of " + In("trusted"))));
}

// What may stand between: each changes one thing that the receiver would believe.
TEST_P(SignedVersionTest, OfWhichAnythingWasChangedOnTheWayIsRefused) {
  OfferService& service = Publisher("trainer");
  Offer(service, 3);
  Offer(service, 4);
  std::optional<wire::SignedDigests> earlier;
  const auto change = [](auto change_one) {
    return [change_one](wire::Message message) -> std::optional<wire::Message> {
      std::visit([&](auto& one) { change_one(one); }, message);
      return message;
    };
  };
  const auto relabelled = [](const wire::Welcome& welcome, std::string lineage, std::uint64_t step, float amax) {
    Manifest manifest = Manifest::Decode(welcome.manifest);
    std::vector<TensorSummary> summaries = manifest.summaries();
    if (amax >= 0) summaries.front().amax = amax;
    return Manifest(std::move(lineage), step, manifest.layout(), std::move(summaries), manifest.part()).Encode();
  };
  struct Lie {
    const char* what;
    TamperingPeer::Change ask;
    TamperingPeer::Change answer;
  };
  const auto as_it_is = TamperingPeer::AsItIs;
  const std::vector<Lie> lies = {
      {"another version is asked for than the receiver has asked for, and called as that",
       change([]<typename M>(M& one) {
         if constexpr (std::same_as<M, wire::Hello>) one.step = 4;
       }),
       change([&]<typename M>(M& one) {
         if constexpr (std::same_as<M, wire::Welcome>) one.manifest = relabelled(one, "run", 3, -1);
       })},
      {"the version is called as another one", as_it_is, change([&]<typename M>(M& one) {
         if constexpr (std::same_as<M, wire::Welcome>) one.manifest = relabelled(one, "run", 9, -1);
       })},
      {"the manifest's magnitudes", as_it_is, change([&]<typename M>(M& one) {
         if constexpr (std::same_as<M, wire::Welcome>) one.manifest = relabelled(one, "run", 3, 7);
       })},
      {"the configuration", as_it_is, change([]<typename M>(M& one) {
         if constexpr (std::same_as<M, wire::Welcome>) one.config = {std::byte{'{'}, std::byte{'}'}};
       })},
      {"the run", as_it_is, change([]<typename M>(M& one) {
         if constexpr (std::same_as<M, wire::Welcome>) one.run = "other";
       })},
      {"a digest that was announced", as_it_is, change([]<typename M>(M& one) {
         if constexpr (std::same_as<M, wire::Subscribed>) {
           if (!one.chunk_digests.empty()) one.chunk_digests.front().low ^= 1;
         }
         if constexpr (std::same_as<M, wire::TensorsReady>) one.tensors.front().digest.low ^= 1;
       })},
      {"a hash", as_it_is, change([]<typename M>(M& one) {
         if constexpr (std::same_as<M, wire::SignedDigests>) {
           if (!one.chunk_hashes.empty()) one.chunk_hashes.front()[5] ^= std::byte{1};
         }
       })},
      {"the signature", as_it_is, change([]<typename M>(M& one) {
         if constexpr (std::same_as<M, wire::SignedDigests>) one.signature[0] ^= std::byte{1};
       })},
      {"what was signed for an earlier session", as_it_is, change([&]<typename M>(M& one) {
         if constexpr (std::same_as<M, wire::SignedDigests>) {
           if (earlier) one = *earlier;
         }
       })},
  };
  TamperingPeer listens(service.endpoint(), as_it_is, [&](wire::Message message) -> std::optional<wire::Message> {
    if (const auto* one = std::get_if<wire::SignedDigests>(&message); one != nullptr && !earlier) earlier = *one;
    return message;
  });
  CollectingSink sink;
  Fetch(listens.endpoint(), sink);
  ExpectAll(sink);
  EXPECT_THAT(listens.Heard(), AllOf(Contains("ask_signed"), Contains("signed_digests")));
  ASSERT_TRUE(earlier);
  for (const Lie& lie : lies) {
    TamperingPeer liar(service.endpoint(), lie.ask, lie.answer);
    EXPECT_THAT(FetchError(liar.endpoint(), ErrorCode::kPermissionDenied), HasSubstr("has not signed")) << lie.what;
  }
}

TEST_P(SignedVersionTest, WhoseSignaturesAreKeptBackIsWaitedForNoLongerThanTheDeadline) {
  OfferService& service = Publisher("trainer");
  Offer(service, 3);
  TamperingPeer liar(service.endpoint(), TamperingPeer::AsItIs,
                     [](wire::Message message) -> std::optional<wire::Message> {
                       if (std::holds_alternative<wire::SignedDigests>(message)) return std::nullopt;
                       return message;
                     });
  CollectingSink sink;
  const std::string error =
      ErrorOf([&] { Fetch(liar.endpoint(), sink, "trusted", Deadline::After(std::chrono::milliseconds(1500))); });
  EXPECT_THAT(error, HasSubstr("publisher " + liar.endpoint()));
  EXPECT_TRUE(sink.chunks.empty());
}

TEST_P(SignedVersionTest, CostsWhoDidNotAskForItNothing) {
  OfferService& service = Publisher("trainer");
  Offer(service, 3);
  TamperingPeer listens(service.endpoint(), TamperingPeer::AsItIs, TamperingPeer::AsItIs);
  hashed_bytes = 0;
  CollectingSink sink;
  Fetch(listens.endpoint(), sink, "");
  ExpectAll(sink);
  EXPECT_EQ(hashed_bytes, 0U);
  EXPECT_THAT(listens.Heard(), AllOf(Not(Contains("ask_signed")), Not(Contains("signed_digests"))));

  CollectingSink again;
  Fetch(service.endpoint(), again);
  EXPECT_GE(hashed_bytes, 2 * Wanted().total_bytes()) << "both ends hash what is signed";
}

// Ten chunks of 8 MiB: more than are announced in one message.
class BigSignedVersionTest : public SignedVersionTest {};

INSTANTIATE_TEST_SUITE_P(Of, BigSignedVersionTest, ::testing::Values(false),
                         [](const auto& /*test*/) { return "ASnapshot"; });

TEST_P(BigSignedVersionTest, IsSignedMessageByMessage) {
  constexpr std::uint64_t kChunk = 8U << 20;
  Weights weights;
  weights.AddRandom({"big", DType::kBF16, {10, kChunk / 2}}, 1);
  Schedule schedule;
  for (std::uint64_t i = 0; i < 10; ++i) {
    schedule.Add(std::vector<Region>{{.tensor = 0, .offset = i * kChunk, .row_bytes = kChunk, .rows = 1, .stride = 0}});
  }
  OfferService& service = Publisher("trainer");
  snapshots_.emplace_back(service, weights, "run", 3);
  TamperingPeer listens(service.endpoint(), TamperingPeer::AsItIs, TamperingPeer::AsItIs);
  Taker taker(std::vector{listens.endpoint()}, channels_);
  taker.options.keys = Keys::From({.trust = In("trusted")});
  taker.Fetch(schedule);
  taker.ExpectTook(schedule, weights);
  EXPECT_GE(std::ranges::count(listens.Heard(), "more_digests"), 2);
}

// Bytes of which XXH3 makes the same digest. It multiplies both halves of eight bytes, after they were combined with a
// secret that everybody knows. Where the lower half is that secret the product is nought whatever the upper half is, so
// two such upper halves, 64 bytes apart, may change places.
class CollidingBytes {
 public:
  static void PutInto(std::span<std::byte> leaf) {
    std::ranges::copy(std::as_bytes(std::span(kFirst)), leaf.begin());
    std::ranges::copy(std::as_bytes(std::span(kSecond)), leaf.begin() + 64);
    leaf[4] = leaf[68] ^ std::byte{1};  // the upper halves differ
  }
  static void Exchange(std::span<std::byte> leaf) {
    std::swap_ranges(leaf.begin() + 4, leaf.begin() + 8, leaf.begin() + 68);
  }

 private:
  static constexpr std::array<unsigned char, 4> kFirst = {0xb8, 0xfe, 0x6c, 0x39};   // XXH3's secret, from byte 0 on
  static constexpr std::array<unsigned char, 4> kSecond = {0x7c, 0x01, 0x81, 0x2c};  // from byte 8 on
};

// Serves on other bytes than it has verified.
class LyingSink final : public FetchSink {
 public:
  void OnTensor(std::uint32_t /*tensor*/, float /*amax*/, const Digest& /*digest*/) override {}
  void OnAxisAmax(std::uint32_t /*tensor*/, std::span<const float> /*amax*/) override {}
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override {
    if (chunk != 1) return;
    const RegionView& kept = regions.front();  // the relay's own memory
    CollidingBytes::Exchange({const_cast<std::byte*>(kept.base), kept.num_bytes()});
  }
};

class LyingRelayTest : public SignedVersionTest {
 protected:
  // Has all chunks, of which the second is no longer what the publisher has.
  void Lie(const OfferService& service) {
    relay_.emplace(RelayOptions{.endpoint = "tcp://127.0.0.1:0", .channels = {kRelayChannel}}, pool_,
                   receiver_failpoints_);
    FetchOptions options;
    options.channels = &copying_;
    options.relay = &*relay_;
    LyingSink lies;
    FetchSession::Open(std::vector{service.endpoint()}, {"liar", 1, 0, 1}, "", std::nullopt, options,
                       receiver_failpoints_, Soon())
        ->Fetch(Wanted(), {}, lies, Soon());
  }
  std::optional<Relay> relay_;
};

INSTANTIATE_TEST_SUITE_P(Of, LyingRelayTest, ::testing::Values(false),
                         [](const auto& /*test*/) { return "ASnapshot"; });

TEST_P(LyingRelayTest, IsFoundByTheHashAlthoughItsBytesHaveTheRightDigest) {
  Weights weights;
  for (std::size_t i = 0; i < weights_.size(); ++i)
    weights.AddRandom(weights_.spec(i), 40 + static_cast<std::uint32_t>(i));
  std::vector<std::byte>& tensor = weights.bytes(2);
  CollidingBytes::PutInto(tensor);
  std::vector<std::byte> other = tensor;
  CollidingBytes::Exchange(other);
  ASSERT_NE(other, tensor);
  ASSERT_EQ(DigestOf(other), DigestOf(tensor)) << "XXH3 tells these apart, so this test shows nothing";

  OfferService& service = Publisher("trainer");
  snapshots_.emplace_back(service, weights, "run", 3);
  Lie(service);
  Taker believes(service, copying_);
  believes.Fetch(Wanted());
  EXPECT_EQ(believes.relayed(), Wanted().total_bytes());
  EXPECT_NE(believes.sink.collected.chunks.at(1), BytesOf(Wanted(), weights)[1]) << "the relay did not lie";

  Taker checks(service, copying_);
  checks.options.keys = Keys::From({.trust = In("trusted")});
  checks.Fetch(Wanted());
  checks.ExpectTook(Wanted(), weights);
  EXPECT_LT(checks.relayed(), Wanted().total_bytes());
}

}  // namespace
}  // namespace layercast::testing
