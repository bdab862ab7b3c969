// The receiver's end of the shm channel: maps the segments of an offer once, and answers requests with views into them.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "src/transport/channel/channel.h"
#include "src/transport/channel/connection_guard.h"
#include "src/transport/channel/mapping_cache.h"
#include "src/transport/shm/memfd.h"
#include "src/transport/shm/offer_table.h"
#include "src/transport/shm/unix_socket.h"

namespace layercast::shm_channel {

// Mappings of segments, each by its file. The number of an inode is not used again while the file is mapped.
using SegmentCache = MappingCache<FileIdentity, Mapping>;

// One thread only.
class ShmFetchingEnd final : public FetchingEnd {
 public:
  // Throws kUnavailable or kDeadlineExceeded, naming `address`. `cache` is shared with the transport.
  ShmFetchingEnd(const std::string& address, std::shared_ptr<SegmentCache> cache, Deadline deadline);
  ~ShmFetchingEnd() override { Close(); }

  bool attaches() const override { return true; }
  void Submit(const ChunkRequest& request) override;
  std::optional<ChunkCompletion> Poll(Deadline deadline) override;
  bool Rest() noexcept override;
  bool Resume() noexcept override;
  void Close() noexcept override;

 private:
  void LetGo() noexcept;  // of everything that views may point into
  // The offer's table; attaches to the offer first unless it is attached and still live.
  const ReadTable& Attached(std::uint64_t offer_id);
  void Attach(std::uint64_t offer_id);
  // Sends a message and waits for the answer. Throws kUnavailable if the publisher is gone, kCorrupt if the answer is
  // malformed, and kDeadlineExceeded.
  Message Ask(const Message& question, std::vector<UniqueFd>& fds, Deadline deadline);
  void ExpectThere();  // throws kUnavailable if the publisher is gone

  const std::string address_;
  ConnectionGuard guard_;
  const std::shared_ptr<SegmentCache> cache_;
  UniqueFd socket_;
  bool rests_ = false;
  std::map<std::uint64_t, ReadTable> tables_;
  std::set<std::shared_ptr<const Mapping>> used_;  // all that views may point into; kept until Close
  std::deque<ChunkCompletion> done_;
};

}  // namespace layercast::shm_channel
