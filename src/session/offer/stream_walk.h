// One walk of a stream, for all ranks of one engine: yields tensors into a window that is bounded in bytes and in
// tensors, and goes on as the ranks take them. A full window is what pushes back on the trainer. Used by the desk
// of versions.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/session/link/offered_version.h"
#include "src/session/offer/serve_context.h"
#include "src/session/offer/stream_blocks.h"
#include "src/session/signing/signed_text.h"
#include "src/tensor/kernels/axis_amax.h"
#include "src/wire/schedule.h"

namespace layercast {

// One rank that takes part in a walk. Value.
struct StreamReader {
  SessionKey key;
  std::shared_ptr<const Schedule> schedule;            // the second owner is the service's cache
  std::map<std::uint32_t, AmaxRequest> amax_requests;  // by tensor
  std::optional<SignedText> signed_text{};             // empty: nothing is to be signed
};

// How many bytes all walks of a publisher may have waiting for receivers. The walks that are under way have equal
// shares of it. A walk keeps what it has when another begins, so n walks together have at most 1 + 1/2 + ... + 1/n
// times as much, and a tensor each.
struct StreamWindow {
  const std::uint64_t bytes;
  std::atomic<std::size_t> walks{0};  // how many are under way
  std::uint64_t share() const { return bytes / walks; }
};

// A walk's share of the window, which it has while it is under way. Resource.
class StreamShare {
 public:
  explicit StreamShare(StreamWindow& window) : window_(window) { ++window_.walks; }
  ~StreamShare() { --window_.walks; }
  StreamShare(const StreamShare&) = delete;
  StreamShare& operator=(const StreamShare&) = delete;

 private:
  StreamWindow& window_;
};

// Resource; thread-safe: the walk runs on a thread of its own. What it borrows outlives it.
class StreamWalk {
 public:
  StreamWalk(std::shared_ptr<OfferedVersion> version, std::vector<StreamReader> readers, const ServeContext& context,
             StreamWindow& window);
  ~StreamWalk() = default;  // stops it
  StreamWalk(const StreamWalk&) = delete;
  StreamWalk& operator=(const StreamWalk&) = delete;

  void Done(const SessionKey& reader, std::uint32_t sequence);
  void Leave(const SessionKey& reader);
  bool ended() const;

 private:
  void Run(const std::stop_token& stop);
  void Fail(const Error& error);
  std::vector<std::string> Order() const;
  void WalkAll(const std::stop_token& stop);
  std::uint32_t Declared(const NamedTensor& named) const;
  void Send(std::uint32_t sequence, std::uint32_t tensor, const NamedTensor& named);
  TensorView CopyIn(const NamedTensor& named, std::span<std::byte> place) const;
  std::vector<Digest> DigestChunks(std::size_t reader, std::uint32_t tensor, std::span<std::byte> place) const;
  std::vector<Hash> HashChunks(std::size_t reader, std::uint32_t tensor, std::span<const std::byte> place) const;
  // Tells the reader of a tensor, and signs that if it asked for it.
  void Announce(const StreamReader& reader, wire::ReadyTensor ready, std::vector<Hash> hashes);
  // Waits until the blocks are as `enough` says. Returns false if no reader is left.
  template <class Enough>
  bool AwaitReaders(const std::stop_token& stop, const Enough& enough);
  std::uint32_t TakenByAll() const;
  void End();

  const std::shared_ptr<OfferedVersion> version_;  // the second owner is the publisher
  std::optional<VersionHold> hold_;                // held by the walk's thread until it ends
  const std::vector<StreamReader> readers_;
  const ServeContext& context_;
  const StreamWindow& window_;
  std::optional<StreamShare> share_;                                    // held by the walk's thread until it ends
  std::vector<std::multimap<std::uint32_t, std::uint32_t>> chunks_of_;  // by reader: tensor -> chunk

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<SessionKey, std::uint32_t> taken_;  // by reader that is there: how many tensors; guarded by mutex_
  bool left_ = false;                          // some reader has, since the walk last looked; guarded by mutex_
  bool ended_ = false;                         // guarded by mutex_
  StreamBlocks blocks_;                        // of the walk's thread
  std::jthread thread_;                        // last: joined before the rest goes
};

}  // namespace layercast
