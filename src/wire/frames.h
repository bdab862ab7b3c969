// The messages of the control link between a receiver and a publisher, as values; FORMAT.md specifies their bytes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "layercast/error.h"
#include "layercast/version.h"
#include "src/tensor/kernels/axis_amax.h"
#include "src/wire/questions.h"

namespace layercast::wire {

// The protocols that this release speaks: only one, because no release spoke protocol 1. A later release that changes a
// message gives its protocol the next number, and speaks both that one and the one before.
inline constexpr std::uint16_t kOldestProtocol = 3;
inline constexpr std::uint16_t kNewestProtocol = 3;
inline constexpr std::size_t kMaxFrameBytes = 256U << 20;
inline constexpr std::size_t kMaxAskBytes = 32U << 20;    // for frames that a receiver sends
inline constexpr std::size_t kMaxConfigBytes = 1U << 20;  // of a welcome's config

// What an end says about the host that it runs on. The fields are those of HostIdentity
// (src/net/host_identity.h).
struct Host {
  std::string boot_id;
  std::string network;
  std::string user;
  std::string process;
  bool operator==(const Host&) const = default;
};

struct Hello {
  std::uint16_t oldest_protocol = kOldestProtocol;
  std::uint16_t newest_protocol = kNewestProtocol;
  std::string engine;
  std::uint64_t attempt = 0;
  std::uint32_t rank = 0;
  std::uint32_t ranks = 1;  // of the engine
  Host host;
  std::string lineage;  // empty: any
  bool step_known = false;
  std::uint64_t step = 0;
  // Set: the version of this digest, and if a lineage is named, of that lineage and step too. Then step_known is true.
  Digest digest{};
  bool operator==(const Hello&) const = default;
};

struct ChannelAddress {
  std::string name;
  std::string address;
  bool operator==(const ChannelAddress&) const = default;
};

// What publishing has cost the trainer, in microseconds: how long it was held up, and the time that cores were busy.
struct TrainerCost {
  std::uint64_t held_up_us = 0;
  std::uint64_t core_us = 0;
  bool operator==(const TrainerCost&) const = default;
};

struct Welcome {
  std::uint16_t protocol = kNewestProtocol;
  std::string publisher;
  Host host;
  std::string run{};  // PublishOptions::run; empty: none is known
  bool stream = false;
  std::vector<ChannelAddress> channels;
  std::vector<std::byte> manifest;
  TrainerCost cost;               // for a snapshot; a stream's comes with StreamEnd
  std::vector<std::byte> config;  // of the version's model; empty: the publisher was given none
  bool operator==(const Welcome&) const = default;
};

struct Subscribe {
  Digest schedule_digest;
  std::vector<std::byte> schedule;  // empty: the publisher may know it by its digest
  std::vector<AmaxRequest> amax_requests;
  // The fields below are for snapshots only.
  bool takes_relays = false;     // the receiver waits for 'fetch_from' before it asks for a chunk
  std::string relay_endpoint{};  // where the receiver relays what it has taken; empty: it is no relay
  std::uint64_t relay_offer = 0;
  bool operator==(const Subscribe&) const = default;
};

struct NeedSchedule {
  bool operator==(const NeedSchedule&) const = default;
};

struct AxisAmax {
  std::uint32_t tensor = 0;
  std::vector<float> values;
  bool operator==(const AxisAmax&) const = default;
};

struct Subscribed {
  std::uint64_t offer_id = 0;
  // For a snapshot, the first chunk digests and amaxes; MoreDigests has the rest. Empty for a stream.
  std::vector<Digest> chunk_digests;
  std::vector<AxisAmax> amax;
  bool operator==(const Subscribed&) const = default;
};

// A tensor of a stream that waits for the receiver.
struct ReadyTensor {
  std::uint32_t sequence = 0;  // from 1 on, in the order in which they come
  std::uint32_t tensor = 0;
  std::uint64_t offer_id = 0;
  std::uint64_t offset = 0;  // of the tensor in the offer
  float amax = 0;
  Digest digest;
  std::vector<float> axis_amax;
  std::vector<Digest> chunk_digests;  // one for each chunk of the schedule that belongs to this tensor, in order
  bool operator==(const ReadyTensor&) const = default;
};

struct TensorsReady {
  std::vector<ReadyTensor> tensors;
  bool operator==(const TensorsReady&) const = default;
};

// Of this tensor, and of all before it.
struct TensorDone {
  std::uint32_t sequence = 0;
  bool operator==(const TensorDone&) const = default;
};

struct StreamEnd {
  std::uint32_t tensors = 0;
  TrainerCost cost;
  bool operator==(const StreamEnd&) const = default;
};

struct Ping {
  bool operator==(const Ping&) const = default;
};
struct Pong {
  bool operator==(const Pong&) const = default;
};
struct Bye {
  bool operator==(const Bye&) const = default;
};

struct Refused {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  bool operator==(const Refused&) const = default;
};

// The digests of a snapshot's next chunks, continuing where the last message with digests ended, and the amaxes that
// these chunks need.
struct MoreDigests {
  std::vector<Digest> chunk_digests;
  std::vector<AxisAmax> amax{};
  bool operator==(const MoreDigests&) const = default;
};

// Tells a receiver where to fetch its chunks from now on.
struct FetchFrom {
  std::string relay;  // its endpoint; empty: the publisher itself
  std::uint64_t offer = 0;
  bool operator==(const FetchFrom&) const = default;
};

// A receiver reports that it cannot fetch from a relay, and asks for another FetchFrom.
struct RelayLost {
  std::string relay;
  std::uint64_t offer = 0;
  std::string why;
  bool operator==(const RelayLost&) const = default;
};

// A relay tells a receiver that the first `chunks` chunks of the schedule can be fetched from it.
struct ChunksReady {
  std::uint32_t chunks = 0;
  bool operator==(const ChunksReady&) const = default;
};

// How far a receiver has come.
struct Progress {
  std::uint64_t bytes = 0;             // of chunks that have been consumed
  std::uint64_t elapsed_us = 0;        // since the receiver began
  std::uint64_t waited_us = 0;         // the part of elapsed_us that it spent waiting for chunks
  std::uint64_t bytes_per_second = 0;  // measured on its channel to the publisher when chosen; 0: not measured
  bool operator==(const Progress&) const = default;
};

// Asks a publisher for its ServingCost.
struct CostRequest {
  bool operator==(const CostRequest&) const = default;
};

// How long cores were busy serving receivers, this one and others, since this session began. Microseconds.
struct ServingCost {
  std::uint64_t core_us = 0;
  bool operator==(const ServingCost&) const = default;
};

// Asks that what the session announces be signed (src/session/signing/signed_text.h). Comes before Subscribe.
struct AskSigned {
  std::array<std::byte, 32> nonce{};  // at random, so that an earlier signature does not answer
  bool operator==(const AskSigned&) const = default;
};

// Follows each message that announces chunks to a receiver that has asked for it.
struct SignedDigests {
  std::vector<std::array<std::byte, 32>> chunk_hashes{};  // SHA-256 of the chunks that were announced, in their order
  std::array<std::byte, 32> key{};                        // by which it is signed
  std::array<std::byte, 64> signature{};
  bool operator==(const SignedDigests&) const = default;
};

// Asks a publisher for a snapshot's chunks as deltas of those of a version that the receiver keeps. Comes before
// Subscribe, and is answered with Delta.
struct AskDelta {
  std::string lineage;  // of the version that it keeps
  std::uint64_t step = 0;
  Digest digest;
  Digest schedule_digest;        // by which it took that, and will ask for this one
  std::uint64_t most_bytes = 0;  // with more than that, it would rather have all bytes
  bool operator==(const AskDelta&) const = default;
};

struct Delta {
  std::uint64_t offer_id = 0;              // frame i (src/delta/FORMAT.md) is its tensor i
  std::vector<std::uint64_t> chunk_bytes;  // of the frame of each chunk of the schedule; empty: there are none
  std::string why;                         // if there are none
  bool operator==(const Delta&) const = default;
};

// The messages in the order of their type numbers, which begin with 1.
using Message = std::variant<Hello, Welcome, Subscribe, NeedSchedule, Subscribed, TensorsReady, TensorDone, StreamEnd,
                             Ping, Pong, Bye, Refused, StatusRequest, StatusAnswer, MoreDigests, FetchFrom, RelayLost,
                             ChunksReady, Progress, CostRequest, ServingCost, VersionsRequest, VersionsAnswer,
                             PinVersion, EvictVersion, PublishFolder, PublishedFolder, AskSigned, SignedDigests,
                             OfferedSince, OfferedVersions, HoldVersion, AskDelta, Delta, SessionTrace>;

struct Frame {
  std::uint16_t protocol = kNewestProtocol;  // the one that the sender speaks
  std::uint64_t session = 0;
  Message message;
  bool operator==(const Frame&) const = default;
};

// "hello", "tensors_ready", ...
std::string_view MessageName(const Message& message);

std::vector<std::byte> Encode(const Frame& frame);
// Throws kCorrupt, naming the message and the byte at which it breaks the format.
Frame Decode(std::span<const std::byte> bytes);

}  // namespace layercast::wire
