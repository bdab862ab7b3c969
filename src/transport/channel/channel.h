// A data channel: how chunks get from a publisher's memory to a rank. One folder per transport; all of them pass one
// conformance suite (tests/conformance). Sessions sit above and trust none: they check digest, count and version.
//
// Pull: the publisher's end only offers memory; the receiving end asks, and supplies the memory that bytes go to. A
// slow or dead receiver therefore holds nobody up, and nothing is written after a failure.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/memory.h"
#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/net/host_identity.h"
#include "src/tensor/region.h"

namespace layercast {

// One tensor of an offer. Value; the memory is borrowed.
struct OfferedTensor {
  const std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  const std::atomic<bool>* written = nullptr;  // requests for the tensor are refused until it is set; null: complete
};

// The offer by which a channel is measured: not tensors of a version, but bytes that both ends know
// (session/channel_probe.h).
inline constexpr std::uint64_t kProbeOffer = ~std::uint64_t{0};
// The fail point of a request for a chunk of that offer.
constexpr std::string_view FailPointOf(std::uint64_t offer_id) {
  return offer_id == kProbeOffer ? "serve.probe" : "serve.chunk";
}

// What a publisher lets receivers read: the tensors of a version (or of one stream slot), by manifest index. Value. The
// memory is borrowed, and does not change while it is offered, except for tensors that a relay has yet to receive.
struct Offer {
  std::uint64_t id = 0;                // unique within a publisher
  std::vector<OfferedTensor> tensors;  // tensors[i] is tensor i of the manifest; empty (null, 0): not in this offer
  Device device{};                     // where all of the tensors lie
  // What keeps the memory mapped for receivers of this process, which may be reading it when the offer goes, and its
  // publisher with it. CarriedOffer fills it in; the second owner is the arena.
  std::vector<std::shared_ptr<const void>> mappings{};
};

// The publisher's end; serves any number of receivers. Thread-safe. Its destructor ends every connection; after that,
// nobody reads the memory of any offer through a copying channel.
class OfferingEnd {
 public:
  virtual ~OfferingEnd() = default;
  // Where receivers connect. The session carries it in its handshake and does not interpret it. What follows a '#' is a
  // secret that only the receiver may know that is told it: each call gives another one, which is good for a few
  // connections and a short time (Invitations). Error messages and logs leave it out.
  virtual std::string address() const = 0;
  // The session that was told `address` has ended: whoever connects by it is refused, and whoever has is cut. An end
  // that hands out no secrets does nothing; receivers that attached keep the mapping.
  virtual void TakeBack(const std::string& /*address*/) {}
  // The memory in which offers of this channel must lie, because it can hand over no other without a copy; null if any
  // host memory will do.
  virtual MemoryResource* arena() { return nullptr; }
  // What keeps those of the tensors that lie in the arena mapped, though it lets go of them or ends.
  virtual std::vector<std::shared_ptr<const void>> MappingsOf(std::span<const OfferedTensor> /*tensors*/) const {
    return {};
  }
  // Whether Add copies what lies in host memory, so that receivers see nothing that is written there later.
  virtual bool copies() const { return false; }
  // Whether offers may also lie in the memory of that device. In host memory they always may.
  virtual bool reads_from(const Device& /*device*/) const { return false; }
  // Throws kInvalidArgument if the offer's memory lies outside the arena, or there is an offer with this id already.
  virtual void Add(const Offer& offer) = 0;
  // After it returns, no receiver reads the offer's memory through a copying channel any more, and a new request for it
  // is answered with kNotFound. Receivers that attached keep the mapping: the session's release says when they let go.
  // Receivers that have stopped reading lose their connection after a second or so. Does nothing if there is no such
  // offer.
  virtual void Remove(std::uint64_t offer_id) = 0;
  // From now on the end hits the fail point `serve.chunk` at each request for a chunk of a version, and `serve.probe`
  // at each for one of the probe. `failpoints` must outlive the end.
  virtual void Arm(FailPoints& /*failpoints*/) {}
  // CPU seconds that the end's own threads have used so far, and those of its library's threads that can be told apart.
  virtual double core_seconds() { return 0; }
};

struct ChunkRequest {
  std::uint64_t ticket = 0;  // the caller's name for it, unique among those under way
  std::uint64_t offer_id = 0;
  std::span<const Region> regions;   // read during Submit only
  std::span<std::byte> destination;  // at least the regions' bytes, untouched by the caller until completion;
                                     // may be empty for a channel that attaches
};

struct ChunkCompletion {
  std::uint64_t ticket = 0;
  // One view per region, in order. The views of a copying channel lie in `destination`, packed. Those of an attaching
  // channel lie in the publisher's memory and stay valid until Close, but the publisher may reuse the memory of an
  // offer that it has removed. So whoever reads such views makes a request without regions afterwards: it fails with
  // kNotFound if what was read may no longer have been the offer. Only within one process may an offer lie in memory
  // that nothing keeps mapped, since no arena has it; whoever frees that sees to it that nobody reads it any more.
  std::vector<RegionView> views;
};

// The receiving end: one connection to one publisher. One thread only.
class FetchingEnd {
 public:
  virtual ~FetchingEnd() = default;
  virtual bool attaches() const = 0;  // hands out views of the publisher's memory: requests need no destination
  // Whether destinations may also lie in the memory of that device. In host memory they always may.
  virtual bool writes_to(const Device& /*device*/) const { return false; }
  // The path that the bytes take, if a library has chosen one ("tcp/eth0"); empty if the transport's name says it all.
  virtual std::string lane() const { return {}; }
  // Asks for a chunk. Throws what Poll throws.
  virtual void Submit(const ChunkRequest& request) = 0;
  // The next completion, in any order; nullopt when the deadline passes first, and at once when nothing is under way.
  // Throws kUnavailable (the peer is gone, or has been silent for seconds), kNotFound (the offer is gone),
  // kInvalidArgument (the peer refused the regions) or kCorrupt (the peer broke the protocol), each naming the address.
  // The connection is then of no more use, and every later call throws the same again. After Close it throws
  // kFailedPrecondition.
  virtual std::optional<ChunkCompletion> Poll(Deadline deadline) = 0;
  // Keeps the connection for a later session, and nothing else: views end as by Close. False if this channel does not,
  // or a request is under way; nothing was done then. After it, only Resume and Close may be called.
  virtual bool Rest() noexcept { return false; }
  // Goes on after Rest. False if the connection has ended meanwhile: the end is then of no more use.
  virtual bool Resume() noexcept { return false; }
  // Drops every request under way; once it has returned, no destination is written any more. Idempotent; the destructor
  // calls it too.
  virtual void Close() noexcept = 0;
};

// The options of an offering end; each transport heeds those that concern it. Value.
struct OfferingOptions {
  std::string bind_host = "127.0.0.1";  // the interface a network channel listens on
  std::size_t fleet_size = 1;           // how many receivers fetch the same bytes at once: `nccl` serves them together
};

// One transport: makes the ends of its channels. Thread-safe. Keep it for as long as you make connections, because
// `shm` and `cuda_ipc` keep mappings in it for the next version.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const = 0;  // "shm"
  // Why this process cannot use it with anybody ("no CUDA device is here: ..."); empty: it can.
  virtual std::string WhyNotHere() const { return {}; }
  // Why a receiver at `mine` cannot reach a publisher at `theirs`; empty: it can.
  virtual std::string WhyNotBetween(const HostIdentity& /*mine*/, const HostIdentity& /*theirs*/) const {
    return WhyNotHere();
  }
  // Whether a receiver may choose it without having been told to use it.
  virtual bool ByDefault(const HostIdentity& /*mine*/, const HostIdentity& /*theirs*/) const { return true; }
  // Whether publishers offer it if they were not told which transports to offer.
  virtual bool OfferedUnasked() const { return true; }
  // Throws kInvalidArgument.
  virtual std::unique_ptr<OfferingEnd> Offering(const OfferingOptions& options) const = 0;
  // The longest that connecting to a healthy publisher takes: after this time a session gives the channel up.
  virtual std::chrono::milliseconds connect_time() const { return std::chrono::seconds(5); }
  // Throws kUnavailable or kDeadlineExceeded naming `address`.
  virtual std::unique_ptr<FetchingEnd> Connect(const std::string& address, Deadline deadline) const = 0;
};

}  // namespace layercast
